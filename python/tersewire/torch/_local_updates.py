"""Local updates: ranks train by themselves, and exchange now and then how far they came."""

import dataclasses
import datetime
import functools
import types
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import torch

import tersewire
from tersewire import _core

from ._averager import Counters, GradientAverager
from ._groups import Group, HubGroup
from ._members import Members
from ._settings import Settings
from ._tensors import refuse, tensor_infos

_STATE_NAMES = {"steps", "turn", "age", "met", "fragments"}


@dataclass(frozen=True)
class _LocalSettings(Settings):
    every: int = 100
    outer: Optional[str] = None
    fragments: int = 1
    delay: int = 0
    mix: Optional[float] = None

    @property
    def turn(self) -> int:
        """Steps from one fragment's exchange to the next one's."""
        return self.every // self.fragments

    @property
    def outer_text(self) -> str:
        return _core._default_outer(self.every) if self.outer is None else self.outer

    @property
    def share_kept(self) -> float:
        return self.mix if self.mix is not None else 0.5 if self.delay else 0.0

    def check(self) -> None:
        super().check()
        if self.is_auto:
            refuse("codec auto goes by what each step's exchange takes, and local updates exchange "
                   "once in many; name a codec, such as 3lc")
        for name, least in (("every", 1), ("fragments", 1), ("delay", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                refuse(f"{name}={value!r} cannot be; pass a whole number, {least} or more")
        if self.every % self.fragments:
            refuse(f"every={self.every} steps are no whole number for each of {self.fragments} "
                   "fragments; pass a multiple of that")
        if self.delay >= self.turn:
            refuse(f"delay={self.delay} is not below the {self.turn} steps from one exchange to "
                   "the next (every / fragments); pass less, or a longer every")
        if not isinstance(self.share_kept, (int, float)) or not 0 <= self.share_kept < 1:
            refuse(f"mix={self.mix!r} cannot be; pass a number from 0 to below 1")
        if self.outer is not None and not isinstance(self.outer, str):
            refuse(f"outer={self.outer!r} cannot be; pass an outer optimizer's text")
        _core._outer_optimizer(self.outer_text)


def _outer_optimizer(text: str, shared: torch.Tensor) -> torch.optim.Optimizer:
    nesterov, lr, momentum = _core._outer_optimizer(text)
    return torch.optim.SGD([shared], lr=lr, momentum=momentum, nesterov=nesterov)


class _Fragment(GradientAverager):
    """Parameters that are exchanged together, and what ranks share of them."""

    _elastic = True

    def __init__(self, chosen: Sequence[int], parameters: Sequence[torch.nn.Parameter],
                 infos: Sequence[tersewire.TensorInfo], group: Optional[Group],
                 settings: _LocalSettings) -> None:
        self._infos_of_all = infos
        super().__init__([infos[i] for i in chosen], group, settings)
        self._parameters = [parameters[i] for i in chosen]
        self.shared = torch.zeros(sum(value.numel() for value in self._parameters))
        self._outer = _outer_optimizer(settings.outer_text, self.shared)
        self._begun: Any = None  # the exchange under way
        self.rounds = 0  # exchanges of these parameters so far

    def share(self) -> None:
        """Takes every rank's parameters as the shared ones."""
        for parameter, begin, end in self._places():
            self.shared[begin:end] = parameter.flatten().to("cpu", torch.float32)

    def begin(self) -> None:
        """Sends how far this rank has come from what is shared."""
        change = torch.empty_like(self.shared)
        for parameter, begin, end in self._places():
            # Whence the rank began: the shared values as its parameters can hold them.
            start = self.shared[begin:end].to(parameter.dtype).to(torch.float32)
            change[begin:end] = start - parameter.flatten().to("cpu", torch.float32)
        self._begun = self._begin_average(change)

    def end(self) -> None:
        """Waits for the others, and moves what is shared; nothing where no exchange is under way."""
        if self._begun is None:
            return
        _, bucket = self._begun
        self._end_average(self._begun)
        self._begun = None
        self.shared.grad = bucket.buffer
        self._outer.step()
        self.shared.grad = None
        self.rounds += 1

    def take(self, share_kept: float) -> None:
        for parameter, begin, end in self._places():
            values = self.shared[begin:end].view(parameter.shape)
            if share_kept:
                own = parameter.to("cpu", torch.float32)
                values = share_kept * own + (1 - share_kept) * values
            parameter.copy_(values)

    def state_dict(self) -> Dict[str, Any]:
        return {"averager": super().state_dict(), "shared": self.shared.clone(),
                "outer": self._outer.state_dict()}

    def load_state_dict(self, states: Union[Dict[str, Any], Sequence[Dict[str, Any]]]) -> None:
        listed = [states] if isinstance(states, dict) else list(states)
        own = next((state for state in listed if state["averager"]["rank"] == self.rank), listed[0])
        super().load_state_dict([state["averager"] for state in listed])
        self.shared.copy_(own["shared"])
        self._outer.load_state_dict(own["outer"])
        self._begun = None
        self.rounds = own["averager"]["step"]

    def go_on(self, group: HubGroup) -> None:
        """Meets those of another generation, and takes what all of it begin with alike."""
        self.rank, self._ranks, self._begun = group.rank, group.ranks, None
        self._worker.go_on(group._end, group._member)
        if group._member.begun_with is not None:
            self.rounds = group._member.begun_with
            for name, values in self.alike().items():
                group._member.begin_with(name, values)

    def hold(self, group: HubGroup, beside: Dict[str, torch.Tensor]) -> None:
        """Keeps what others may have to go on from."""
        self._worker.hold(group._member, {**self.alike(), **beside})

    def alike(self) -> Dict[str, torch.Tensor]:
        """What is the same on all ranks between two rounds."""
        found = {"parameters": self.shared}
        if self._outer.defaults["momentum"]:
            found["momentum"] = self._outer.state[self.shared].setdefault(
                "momentum_buffer", torch.zeros_like(self.shared))
        return found

    def _meet(self, settings: Settings) -> _core._MeanWorker:
        settings.check()
        codecs = tersewire.choose_codecs(settings.policy, settings.codec_text, self._infos_of_all)
        for codec in codecs:
            if codec.name == "inceptionn" and "ef=on" not in codec.text:
                refuse("codec inceptionn would never send changes below its bound, and a model "
                       "that moves in small steps would stand still; add ef=on")
            if self._share_kept(settings) and codec.encoder([1]).residual is not None:
                refuse(f"with mix={self._share_kept(settings)} ranks would send again what codec "
                       f"{codec.name} keeps in a residual, and the model would go too far; pass "
                       "mix=0, or a codec without a residual, such as int8")
        here = settings
        if len(self._infos) < len(codecs):  # rules are of all tensors, the first and the last too
            texts = {info.name: codec.text for info, codec in zip(self._infos_of_all, codecs)}
            here = dataclasses.replace(settings, policy="; ".join(
                f"name={info.name}:{texts[info.name]}" for info in self._infos))
        worker = super()._meet(here)
        self._settings = settings
        return worker

    @staticmethod
    def _share_kept(settings: Settings) -> float:
        return settings.share_kept if isinstance(settings, _LocalSettings) else 0.0

    def _places(self) -> Iterator[Tuple[torch.Tensor, int, int]]:
        """Each parameter, and where its values lie in what ranks share."""
        begin = 0
        for parameter in self._parameters:
            end = begin + parameter.numel()
            yield parameter, begin, end
            begin = end


def _choose_fragments(parameters: Sequence[torch.Tensor], fragments: int) -> List[List[int]]:
    """As even as whole parameters allow: from the largest on each goes to where there is least."""
    if fragments > len(parameters):
        refuse(f"fragments={fragments} cannot be: the model has {len(parameters)} parameters, and "
               "each is in one of them; pass fewer")
    chosen: List[List[int]] = [[] for _ in range(fragments)]
    values = [0] * fragments
    for i in sorted(range(len(parameters)), key=lambda i: -parameters[i].numel()):
        least = values.index(min(values))
        chosen[least].append(i)
        values[least] += parameters[i].numel()
    return [sorted(fragment) for fragment in chosen]


class LocalUpdates:
    """Has ranks train by themselves for `every` steps, then meet: local SGD, DiLoCo.

        local = tersewire.torch.LocalUpdates(model, optimizer, every=100)

    model      on each rank, not in DistributedDataParallel; all begin as rank 0's
    optimizer  the rank's own, of whatever kind, with whatever schedule; it is seen to step
    every      steps between two exchanges of a parameter
    outer      what turns the mean of how far ranks came into a step of the model that they share:
               nesterov, or sgd, whose rate of 1 makes that the mean of their models; None:
               sgd:lr=1 where `every` is below 10, else nesterov:lr=1,momentum=0.5
    codec      of what ranks send and get, as for register(), and so are the others
    fragments  groups of parameters that take turns, so that so much less is sent at once; `every`
               is a multiple
    delay      steps, fewer than every / fragments, that ranks go on by themselves while an exchange
               is under way
    mix        the share of its own values that a rank keeps when it takes the shared ones, from 0
               to below 1; 0, and 0.5 with a delay

    Buffers, as batch normalization's, stay each rank's own. Every rank takes as many steps. Call
    synchronize() before the model is tested or saved between two exchanges. Raises Error
    (kInvalidArgument) where ranks differ.

    Over a HubGroup(elastic=True) ranks come and go, in one fragment without delay and mix: train
    until `rounds` are as many as you want, call leave() where this rank has to go and end where it
    has `left`, and call close() after the last round. Raises Error (kAborted) where too few are
    left, and (kFailedPrecondition) where the hub refuses this rank or the job is over.
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, every: int = 100,
                 outer: Optional[str] = None, codec: Union[str, tersewire.Codec] = "3lc", *,
                 fragments: int = 1, delay: int = 0, mix: Optional[float] = None,
                 policy: str = "auto", exchange: Optional[str] = None, seed: int = 0,
                 threads: Optional[int] = None, timeout: Optional[datetime.timedelta] = None,
                 group: Optional[Group] = None) -> None:
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            refuse("this model is in DistributedDataParallel, which has ranks meet in every step; "
                   "pass the model within it, and train that")
        self._members: Optional[Members] = None
        elastic = isinstance(group, HubGroup) and group.elastic
        if elastic and exchange is None:
            exchange = "gradient-server"  # whatever the number of ranks becomes
        self._settings = _LocalSettings(
            codec, policy, exchange, seed, threads=threads, timeout=timeout, every=every,
            outer=outer, fragments=fragments, delay=delay, mix=mix)
        self._settings.check()
        if elastic and (fragments > 1 or delay or self._settings.share_kept):
            refuse("where ranks come and go all of the model is exchanged at a round's end; leave "
                   "fragments, delay and mix out")
        infos = tensor_infos(model)
        parameters = [value for value in model.parameters() if value.requires_grad]
        self._fragments = [_Fragment(chosen, parameters, infos, group, self._settings)
                           for chosen in _choose_fragments(parameters, fragments)]
        if isinstance(group, HubGroup) and group.elastic:
            self._members = Members(model, self._fragments[0], group, self._settings)
        else:
            self._fragments[0]._group._share_model(model)
            with torch.no_grad():
                for fragment in self._fragments:
                    fragment.share()
        self._steps = 0  # of this round
        self._turn = 0  # the fragment that is exchanged next
        self._age: Optional[int] = None  # steps since the last one's exchange, which is to be taken
        self._met = True  # every rank has the shared model, and no other
        self._watch(optimizer)

    @property
    def rank(self) -> int:
        """Of this process; where ranks come and go, among those that are there now."""
        return self._fragments[0].rank

    @property
    def rounds(self) -> int:
        """How often ranks have exchanged how far they came: of the job, before this one joined too."""
        return self._fragments[0].rounds

    def leave(self) -> None:
        """Has this rank leave, where ranks come and go, at the end of its round.

        It hands over what it has still to deliver. Returns at once, also in a signal's handler.
        """
        if self._members is None:
            refuse("the ranks of this job stay; call leave() with a HubGroup(elastic=True)")
        self._members.leave()

    @property
    def left(self) -> bool:
        """Whether this rank has left, and is not needed any more."""
        return self._members is not None and self._members.left

    @torch.no_grad()
    def synchronize(self) -> None:
        """Exchanges how far ranks have come, and gives each the model that comes of it.

        Nothing where they have just met.
        """
        if self._met:
            return
        if self._members is not None:
            self._members.meet()
            self._steps, self._met = 0, True
            return
        self._take_pending()
        for fragment in self._fragments:
            fragment.begin()
        for fragment in self._fragments:
            fragment.end()
            fragment.take(0.0)
        self._steps = self._turn = 0
        self._met = True

    @property
    def counters(self) -> Counters:
        """As a hook's; each fragment's exchange is a step."""
        total = Counters()
        for fragment in self._fragments:
            for name, value in vars(fragment.counters).items():
                setattr(total, name, getattr(total, name) + value)
        return total

    def summary(self) -> str:
        """As GradientAverager.summary(), a table for each fragment."""
        return "\n".join(fragment.summary() for fragment in self._fragments)

    @torch.no_grad()
    def state_dict(self) -> Dict[str, Any]:
        """What a restart of this rank would lose, beside the model and its own optimizer's state.

        Save all three on every rank, after the same step. Waits for an exchange under way.
        """
        for fragment in self._fragments:
            fragment.end()
        return {"steps": self._steps, "turn": self._turn, "age": self._age, "met": self._met,
                "fragments": [fragment.state_dict() for fragment in self._fragments]}

    @torch.no_grad()
    def load_state_dict(self, states: Union[Dict[str, Any], Sequence[Dict[str, Any]]]) -> None:
        """Takes back what state_dict() returned on every rank, in a run with as many or others.

        As GradientAverager.load_state_dict(). With another number of ranks the states must be of a
        moment at which all have met, and every rank goes on from the shared model.
        """
        self._refuse_elastic("load_state_dict")
        listed = [states] if isinstance(states, dict) else list(states)
        if not listed or any(set(state) != _STATE_NAMES for state in listed):
            refuse("a state is not of LocalUpdates; pass what its state_dict() returned")
        for state in listed:
            if len(state["fragments"]) != len(self._fragments):
                refuse(f"a state is of {len(state['fragments'])} fragments, and there are "
                       f"{len(self._fragments)}; pass as many to LocalUpdates")
        ranks = [state["fragments"][0]["averager"] for state in listed]
        own = next((state for state, averager in zip(listed, ranks)
                    if averager["rank"] == self.rank), listed[0])
        as_many = ranks[0]["ranks"] == self._fragments[0]._ranks
        for fragment, saved in zip(self._fragments, own["fragments"]):
            if fragment.shared.shape != saved["shared"].shape:
                refuse("a state is of another model; pass what state_dict() returned with this one")
        if not as_many and not all(state["met"] for state in listed):
            refuse("the states are within a round, and of another number of ranks; save them after "
                   "synchronize()")
        for i, fragment in enumerate(self._fragments):
            fragment.load_state_dict([state["fragments"][i] for state in listed])
            if not as_many:
                fragment.take(0.0)
        self._steps, self._turn = own["steps"], own["turn"]
        self._age, self._met = own["age"], own["met"]

    @torch.no_grad()
    def change(self, **settings: Any) -> None:
        """As GradientAverager.change(); `every`, `delay` and `mix` too. Between steps, on all ranks."""
        self._refuse_elastic("change")
        for name in ("outer", "fragments"):
            if name in settings:
                refuse(f"{name} stays as it is in a run, since the outer optimizer remembers how it "
                       "moved; change it in a run of its own")
        changed = dataclasses.replace(self._settings, **settings)
        changed.check()
        self._take_pending()
        for fragment in self._fragments:
            fragment.change(**settings)
        self._settings = changed

    def close(self) -> None:
        """As GradientAverager.close()."""
        for fragment in self._fragments:
            fragment.close()
        if self._members is not None:
            self._members.close()

    def _refuse_elastic(self, call: str) -> None:
        if self._members is not None:
            refuse(f"{call}() is for ranks that stay: one that comes has its state from the others; "
                   "end the job, and start another hub for one with other settings")

    def _watch(self, optimizer: torch.optim.Optimizer) -> None:
        step = optimizer.step

        @functools.wraps(step)  # with the mark of a scheduler, which may have it already
        def step_and_count(_: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            loss = step(*args, **kwargs)
            self._after_step()
            return loss

        setattr(optimizer, "step", types.MethodType(step_and_count, optimizer))

    @torch.no_grad()
    def _after_step(self) -> None:
        settings = self._settings
        self._met = False
        self._steps += 1
        if self._members is not None:
            if not self._members.follow():
                self._steps = 0
            elif self._steps >= settings.every:
                self._members.meet()
                self._steps = 0
            self._met = self._steps == 0
            return
        if self._age is not None:
            self._age += 1
            if self._age >= settings.delay:
                self._take_pending()
        if self._steps < (self._turn + 1) * settings.turn:
            return
        self._fragments[self._turn].begin()
        self._age = 0
        self._turn += 1
        if self._turn == len(self._fragments):
            self._steps = self._turn = 0
        if settings.delay == 0:
            self._take_pending()
            self._met = len(self._fragments) == 1 and settings.share_kept == 0

    def _take_pending(self) -> None:
        """What came of the last exchange, if that has not been taken."""
        if self._age is None:
            return
        fragment = self._fragments[self._turn - 1]  # at turn 0 the last of the round before
        fragment.end()
        fragment.take(self._settings.share_kept)
        self._age = None
