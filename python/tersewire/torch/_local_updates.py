"""Local updates: ranks train on their own, and exchange their changes now and then."""

import copy
import dataclasses
import datetime
import functools
import weakref
from dataclasses import dataclass
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

import tersewire
from tersewire import _core

from ._averager import Bucket, Counters, States, as_list, change_all, total_of
from ._groups import (AnyGroup, Group, HubGroup, agree, compare_values, group_of, share_model,
                      values_of)
from ._members import MayLeave, Members, Replica, refuse_elastic
from ._private import has_step_hooks, steps_under_way
from ._rates import OptimizerHook, innermost
from ._settings import Settings
from ._site import Site
from ._tensors import (are_same, check_optimizer, places, refuse, tensor_infos, trained, uncompiled,
                       without_grad)

# Handed over: parameters, momentum, and residuals of sent data and of means.
_VALUES_HANDED_OVER = 4
_watched: "weakref.WeakSet[torch.optim.Optimizer]" = weakref.WeakSet()
_STATE_NAMES = {"steps", "turn", "age", "met", "fragments"}
_ANY_FOR_SEPARATORS = str.maketrans(":;", "??")


@dataclass(frozen=True)
class _LocalSettings(Settings):
    every: int = 100
    outer: str | None = None
    fragments: int = 1
    delay: int = 0

    _most_without_servers = 2  # Adam does not see these means

    @property
    def turn(self) -> int:
        """Steps from one fragment's exchange to the next one's."""
        return self.every // self.fragments

    @property
    def outer_text(self) -> str:
        return _core._default_outer(self.every) if self.outer is None else self.outer

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_auto:
            refuse("codec auto decides from how long each step's exchange takes, and local updates "
                   "exchange once in many steps; name a codec, such as 3lc")
        for name, least in (("every", 1), ("fragments", 1), ("delay", 0)):
            self._check(name, int, f"a whole number, {least} or more", least)
        if self.every % self.fragments:
            refuse(f"every={self.every} steps cannot be divided among {self.fragments} fragments; "
                   "pass a multiple of that")
        if self.delay >= self.turn:
            refuse(f"delay={self.delay} is not below the {self.turn} steps from one exchange to "
                   "the next (every / fragments); pass less, or a longer every")
        self._check("outer", (str, type(None)), "an outer optimizer's text")
        _core._outer_optimizer(self.outer_text)


class _Fragment(Replica):
    """Parameters that are exchanged together, and their shared values."""

    _settings: _LocalSettings

    def __init__(self, chosen: Sequence[int], parameters: Sequence[torch.nn.Parameter],
                 infos: Sequence[tersewire.TensorInfo], group: AnyGroup,
                 settings: _LocalSettings) -> None:
        self._infos_of_all = infos
        super().__init__([infos[i] for i in chosen], group, settings)
        self._parameters = [parameters[i] for i in chosen]
        self.shared = torch.zeros(sum(value.numel() for value in self._parameters),
                                  dtype=torch.float32, device="cpu")
        nesterov, lr, momentum = _core._outer_optimizer(settings.outer_text)
        self._outer = torch.optim.SGD([self.shared], lr=lr, momentum=momentum, nesterov=nesterov)
        self._begun: Bucket | None = None  # the exchange under way
        self._ends = False  # in a call of end(), or in one that was interrupted
        # The rank's values when it began, where their progress meanwhile is to be added.
        self._begun_with: torch.Tensor | None = None

    def share(self) -> None:
        """Sets the shared values to the ranks' parameters."""
        for parameter, shared in places(self._parameters, self.shared):
            shared.copy_(parameter)

    def begin(self) -> None:
        """Sends how far this rank has moved from the shared values."""
        change = torch.empty_like(self.shared)
        for parameter, moved, shared in places(self._parameters, change, self.shared):
            # The rank's starting point: the shared values in its parameters' dtype.
            moved.copy_(shared.to(parameter.dtype)).sub_(parameter.to("cpu", torch.float32))
        self._begun_with = torch.cat([parameter.flatten().to("cpu", torch.float32) for parameter in
                                      self._parameters]) if self._settings.delay else None
        self._begun, self._ends = self._begin_average(change), False

    def end(self) -> None:
        """Waits for the others, and updates the shared values; without an exchange does nothing."""
        bucket = self._begun
        if bucket is None:
            return
        if self._ends:
            raise self._within_step()
        self._ends = True
        self._end_average(bucket)
        self.shared.grad = bucket.buffer
        self._outer.step()
        self.shared.grad = self._begun = None

    def is_taken(self) -> bool:
        """Whether the parameters are the shared values."""
        return all(torch.equal(parameter, shared.to(parameter))
                   for parameter, shared in places(self._parameters, self.shared))

    def take(self) -> None:
        for parameter, shared in places(self._parameters, self.shared):
            parameter.copy_(shared)
        self._begun_with = None

    def take_later(self) -> None:
        """Takes the shared values, and keeps what this rank learned since the exchange began."""
        begun_with = self.shared if self._begun_with is None else self._begun_with
        for parameter, shared, begun in places(self._parameters, self.shared, begun_with):
            parameter.copy_(shared + (parameter.to("cpu", torch.float32) - begun))
        self._begun_with = None

    def state(self) -> dict[str, Any]:
        self.alike()  # the momentum is there before the first round
        begun_with = self._begun_with
        if begun_with is None and self._settings.delay:  # none is under way
            begun_with = torch.zeros_like(self.shared)
        return {"averager": self.state_dict(), "shared": self.shared.clone(),
                "outer": copy.deepcopy(self._outer.state_dict()), "begun_with": begun_with}

    def load(self, own: dict[str, Any], averagers: Sequence[dict[str, Any]]) -> None:
        """Continues from this rank's own state(), and those of the averagers of all ranks."""
        self.load_state_dict(averagers)
        self.shared.copy_(own["shared"])
        self._outer.load_state_dict(copy.deepcopy(own["outer"]))  # it keeps what it is given
        self._begun, self._begun_with = None, own["begun_with"]

    def _keep_state(self) -> None:
        super()._keep_state()
        self._begun = None  # nobody will end it

    def go_on(self, group: HubGroup) -> None:
        super().go_on(group)
        if group._member.begun_with is not None:
            for name, values in self.alike().items():
                group._member.begin_with(name, values)

    def alike(self) -> dict[str, torch.Tensor]:
        found = {"parameters": self.shared}
        if self._outer.defaults["momentum"]:
            found["momentum"] = self._outer.state[self.shared].setdefault(
                "momentum_buffer", torch.zeros_like(self.shared))
        return found

    def _meet(self, settings: _LocalSettings) -> _core._MeanWorker:  # type: ignore[override]
        codecs = tersewire.choose_codecs(settings.policy, settings.codec_text, self._infos_of_all,
                                         local_updates=settings.every)
        # By name, since rules apply to all tensors, including first and last. Where a name has what
        # ends a rule or its condition, ? stands for it, after the rules of exact names.
        texts = {info.name: codec.text for info, codec in zip(self._infos_of_all, codecs)}
        patterns = {info.name: info.name.translate(_ANY_FOR_SEPARATORS) for info in self._infos}
        here = dataclasses.replace(settings, policy="; ".join(
            f"name={pattern}:{texts[name]}"
            for name, pattern in sorted(patterns.items(), key=lambda pair: pair[0] != pair[1])))
        worker = super()._meet(here)
        self._settings = settings
        return worker


def _choose_fragments(parameters: Sequence[torch.Tensor], fragments: int) -> list[list[int]]:
    """As even as whole parameters allow: from the largest on, each goes to the least filled."""
    if fragments > len(parameters):
        refuse(f"fragments={fragments} is too many, since each has a parameter of the model at least; "
               f"pass {len(parameters)} or fewer")
    chosen: list[list[int]] = [[] for _ in range(fragments)]
    values = [0] * fragments
    for i in sorted(range(len(parameters)), key=lambda i: -parameters[i].numel()):
        least = values.index(min(values))
        chosen[least].append(i)
        values[least] += parameters[i].numel()
    return [sorted(fragment) for fragment in chosen]


class LocalUpdates(MayLeave):
    """Lets ranks train on their own for `every` steps, then exchange: local SGD, DiLoCo.

        local = tersewire.torch.LocalUpdates(model, optimizer, every=100)

    model      on each rank; all start as copies of rank 0's. In DistributedDataParallel if its ranks
               are a site, which trains as one: see group
    optimizer  the rank's own, of any kind, with any schedule; its step() calls are observed
    every      steps between two exchanges of a parameter
    outer      turns the mean of the ranks' changes into a step of the shared model: nesterov, or
               sgd, which at a rate of 1 gives the mean of their models; None: sgd:lr=1 if `every`
               is below 10, else nesterov:lr=1,momentum=0.5
    codec      for what ranks send and receive, as for register(), like the other arguments
    fragments  groups of parameters that take turns, so that this many times less is sent at once;
               `every` is a multiple
    delay      steps, fewer than every / fragments, that ranks train on their own while an exchange
               is in progress; they add what they learned in these to the shared values
    group      as of register(). With a model in DistributedDataParallel the first rank of its
               process group exchanges for all of them: it passes the group of the sites' first
               ranks, and the others omit this

    Buffers, such as batch normalization's, stay local to each rank. Every rank takes the same
    number of steps. Call synchronize(), on every rank, before the model is tested or saved between
    two exchanges. Raises Error (kInvalidArgument) if ranks differ.

    Over a HubGroup(elastic=True) ranks come and go, in one fragment without delay: train
    until `rounds` reaches the number that you want, call leave() if this rank must go and stop when
    it has `left`, and call close() after the last round. Raises Error (kAborted) if too few are
    left, and (kFailedPrecondition) if the hub refuses this rank or the job is over.
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, every: int = 100,
                 outer: str | None = None, codec: str | tersewire.Codec = "3lc", *,
                 fragments: int = 1, delay: int = 0,
                 policy: str = "auto", exchange: str | None = None, seed: int = 0,
                 threads: int | None = None, timeout: datetime.timedelta | None = None,
                 group: Group | None = None) -> None:
        check_optimizer(optimizer)
        model = uncompiled(model)
        if not isinstance(model, torch.nn.Module):
            refuse(f"a {type(model).__name__} is not a model; pass a torch.nn.Module")
        self._site: Site | None = None
        if isinstance(model, DistributedDataParallel):
            self._site, model = Site(model, group), model.module
        elastic = group if isinstance(group, HubGroup) and group.elastic else None
        self._settings = _LocalSettings(
            codec, policy, exchange, seed, threads=threads, timeout=timeout, every=every,
            outer=outer, fragments=fragments, delay=delay)
        if elastic and (fragments > 1 or delay):
            refuse("where ranks come and go all of the model is exchanged at a round's end; omit "
                   "fragments and delay")
        infos = tensor_infos(model)
        parameters = trained(model)
        known = {value for group in optimizer.param_groups for value in group["params"]}
        if not known.intersection(parameters):
            refuse("the optimizer trains none of the model's parameters; pass the model and its own "
                   "optimizer")
        steps = next(filter(has_step_hooks, (optimizer, *innermost(optimizer))), None)
        if steps is None:
            refuse(f"a {type(optimizer).__name__} does not call torch.optim.Optimizer.__init__(), so "
                   "its steps go unseen; have it do so")
        if steps in _watched:
            refuse("this optimizer has LocalUpdates already; make one for each model")
        self._model, self._parameters = model, parameters
        self._chosen = _choose_fragments(parameters, fragments)
        self._fragments: list[_Fragment] = []  # on a site's first rank only
        self._led = 0, 0  # that rank's `rank` and `rounds`

        def meet() -> None:
            ranks = group_of(group, elastic is not None, parameters)
            self._fragments = [_Fragment(chosen, parameters, infos, ranks, self._settings)
                               for chosen in self._chosen]
            if elastic:
                fragment = self._fragments[0]
                self._members = Members(
                    model, parameters, fragment, elastic,
                    4 * _VALUES_HANDED_OVER * fragment.shared.numel(), self._settings.alike, "round")
                return
            share_model(self._fragments[0]._group, model)
            for fragment in self._fragments:
                fragment.share()

        with torch.no_grad():
            self._in_site(meet, list(values_of(model).values()))
        self._compares = elastic is None  # in its next exchange; ranks that come and go always do
        self._steps = 0  # of this round
        self._turn = 0  # the fragment to exchange next
        self._age: int | None = None  # steps since the last exchange, if its result is pending
        self._all_took = True  # the shared model, and no step since
        _watched.add(steps)
        steps.register_step_post_hook(OptimizerHook(self._after_step))

    @property
    def _met(self) -> bool:
        """Whether this rank's parameters are the shared model, which all have just taken."""
        return self._all_took and all(map(_Fragment.is_taken, self._fragments))

    @property
    def rank(self) -> int:
        """Of this process, or of its site; if ranks come and go, among those present now."""
        return self._fragments[0].rank if self._fragments else self._led[0]

    @property
    def rounds(self) -> int:
        """Exchanges of the ranks' changes in the job so far, also before this one joined."""
        return self._fragments[0].rounds if self._fragments else self._led[1]

    @without_grad
    def synchronize(self) -> None:
        """Exchanges the ranks' changes, and gives each the resulting model.

        On every rank. If they have just exchanged, it only checks that all have, unless ranks come
        and go.
        """
        if self._members is not None:
            if not self._met:
                with self._members.here():
                    self._meet_members(self._members)
                self._steps, self._all_took = 0, True
            return
        self._take_pending()
        turns = [] if self._met else list(range(self._settings.fragments))

        def exchange() -> None:
            self._compare_models()
            for turn in turns:
                self._begin(turn)
            self._compare_steps()  # not before: a rank that is ahead may wait for this one in a step
            for turn in turns:
                self._fragments[turn].end()
                self._fragments[turn].take()

        self._in_site(exchange, self._parameters, bool(turns))
        self._steps = self._turn = 0
        self._all_took = True

    @property
    def counters(self) -> Counters:
        """As a hook's; each fragment's exchange is a step. In a site its first rank alone counts."""
        return total_of(fragment.counters for fragment in self._fragments)

    def summary(self) -> str:
        """As GradientAverager.summary(), a table for each fragment."""
        return "\n".join(fragment.summary() for fragment in self._fragments)

    @without_grad
    def state_dict(self) -> dict[str, Any]:
        """What a restart of this rank would lose, apart from the model and its optimizer's state.

        Save all three on every rank, after the same step. Waits for an exchange in progress.
        """
        for fragment in self._fragments:
            fragment.end()
        return {"steps": self._steps, "turn": self._turn, "age": self._age, "met": self._met,
                "fragments": [fragment.state() for fragment in self._fragments]}

    @without_grad
    def load_state_dict(self, states: States) -> None:
        """Restores what state_dict() returned on every rank, with the same or a different number of ranks.

        As GradientAverager.load_state_dict(). With another number of ranks the states must be from
        a moment when all have just exchanged, and every rank continues from the shared model. If
        ranks come and go, every rank of a new job loads, with `rounds` at 0; ranks that join later
        get their state from the others.
        """
        if self._members is not None:
            self._members.load(functools.partial(self._load, states))
        else:
            self._load(states)

    def _load(self, states: States) -> None:
        listed = as_list(states)
        if not listed or any(set(state) != _STATE_NAMES for state in listed):
            refuse("a state is not of LocalUpdates; pass what its state_dict() returned")
        first = listed[0]
        of_sites = [state for state in listed if state["fragments"]]  # of their first ranks
        self._in_site(functools.partial(self._load_fragments, of_sites),
                      self._parameters, first["met"])
        self._steps, self._turn = first["steps"], first["turn"]
        self._age, self._all_took = first["age"], first["met"]
        self._compares = self._members is None

    def _load_fragments(self, states: Sequence[dict[str, Any]]) -> None:
        fragments = self._settings.fragments
        if not states:
            refuse("the states are not those of a site's first rank; pass that, or those of all ranks")
        for state in states:
            if len(state["fragments"]) != fragments:
                refuse(f"a state is of fragments={len(state['fragments'])}, and this is of "
                       f"fragments={fragments}; pass as many to LocalUpdates")
        ranks = [state["fragments"][0]["averager"] for state in states]
        own = next((state for state, averager in zip(states, ranks)
                    if averager["rank"] == self.rank), states[0])
        as_many = ranks[0]["ranks"] == self._fragments[0]._group.ranks
        for fragment, saved in zip(self._fragments, own["fragments"]):
            if fragment.shared.shape != saved["shared"].shape:
                refuse("a state is of another model; pass what state_dict() returned with this one")
        if not as_many and not all(state["met"] for state in states):
            refuse("the states are within a round, and of another number of ranks; save them after "
                   "synchronize()")
        for i, fragment in enumerate(self._fragments):
            fragment.load(own["fragments"][i],
                          [state["fragments"][i]["averager"] for state in states])
            if own["met"]:
                fragment.take()

    @without_grad
    def change(self, **settings: Any) -> None:
        """As GradientAverager.change(), also `every` and `delay`. Between steps, all ranks."""
        if self._members is not None:
            refuse_elastic("change")
        for name in ("outer", "fragments"):
            if name in settings:
                refuse(f"{name} cannot change in a run, since the outer optimizer remembers "
                       "earlier rounds; change it in a new run")
        changed = self._settings.changed(settings)
        self._take_pending()
        self._in_site(functools.partial(change_all, self._fragments, settings), [], False)
        self._settings = changed

    def close(self) -> None:
        """As GradientAverager.close(). If ranks come and go, it ends the job: all rounds are done.

        Not where an exception led to the call: the others then go on without this rank.
        """
        for fragment in self._fragments:
            fragment.close()
        if self._members is not None:
            self._members.close()

    @without_grad
    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if steps_under_way(optimizer) > 1:  # within another of its steps, after which there is this again
            return
        settings = self._settings
        for fragment in self._fragments if self._members is None else ():
            fragment._check_open()
        self._all_took = False
        self._steps += 1
        if self._members is not None:
            with self._members.here():
                if not self._members.follow():
                    self._steps = 0
                elif self._steps >= settings.every:
                    self._meet_members(self._members)
                    self._steps = 0
            self._all_took = self._steps == 0
            return
        if self._age is not None:
            self._age += 1
            if self._age >= settings.delay:
                self._take_pending()
        if self._steps < (self._turn + 1) * settings.turn:
            return
        self._take_pending()  # change() may have made turns shorter than the delay
        self._in_site(functools.partial(self._begin, self._turn), [], False)
        self._age = 0
        self._turn = (self._turn + 1) % settings.fragments
        if self._turn == 0:
            self._steps = 0
        if settings.delay == 0:
            self._take_pending()
            self._all_took = settings.fragments == 1

    def _in_site(self, exchange: Callable[[], None], values: Sequence[torch.Tensor],
                 follow: bool = True) -> None:
        """Runs what exchanges: in a site on its first rank, which gives the others `values`, if it
        says that they `follow`."""
        if self._site is None:
            exchange()
            return

        def lead() -> tuple[int, int]:
            exchange()
            return self.rank, self.rounds

        self._led = self._site.share(lead, values, follow)

    def _begin(self, turn: int) -> None:
        if not are_same(trained(self._model), self._parameters):
            refuse("other parameters of the model are trained than when LocalUpdates was made, and "
                   "the ranks' models would drift apart; make it when all are there, with "
                   "requires_grad as it stays")
        self._compare_models()
        self._fragments[turn].begin()

    def _compare_steps(self) -> None:
        told = [text.split() for text in agree(self._fragments[0]._group, "synchronize", None,
                                               f"{self._steps} {self._turn} {self._met}")]
        for rank, other in enumerate(told):
            if other[:2] != told[0][:2]:
                refuse(f"rank {rank} has taken another number of steps than rank 0; take each step "
                       "on every rank or on none: a GradScaler skips those in which its own rank's "
                       "gradients overflow")
        moved = [rank for rank, other in enumerate(told) if other[2] == "False"]
        if 0 < len(moved) < len(told):
            refuse(f"rank {moved[0]} has other parameters than the shared model, which other ranks "
                   "still have; change parameters on every rank or on none")

    def _compare_models(self) -> None:
        """At the first exchange: ranks may have loaded what different runs saved."""
        if not self._compares:
            return
        compare_values(self._fragments[0]._group, {"values of the shared model": [
            value for fragment in self._fragments for value in fragment.alike().values()]},
            "load on every rank what it saved in one run after one step")
        self._compares = False

    def _meet_members(self, members: Members) -> None:
        """Ends a round with the members present."""
        fragment = self._fragments[0]

        def exchange() -> None:
            self._begin(0)
            fragment.end()
            members.hold(compares=True)

        if members.exchange(exchange):
            fragment.take()
            members.settle()

    def _take_pending(self) -> None:
        """Takes the last exchange's result, if still pending."""
        if self._age is None:
            return
        turn = (self._turn - 1) % self._settings.fragments
        self._in_site(functools.partial(self._take, turn),
                      [self._parameters[i] for i in self._chosen[turn]])
        self._age = None

    def _take(self, turn: int) -> None:
        fragment = self._fragments[turn]
        fragment.end()
        if self._settings.delay:
            fragment.take_later()
        else:
            fragment.take()
