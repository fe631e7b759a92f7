"""Local updates: ranks train by themselves, and exchange now and then how far they came."""

import datetime
import functools
import types
from dataclasses import dataclass
from typing import Any, Dict, Iterator, Optional, Sequence, Tuple, Union

import torch
import torch.distributed as dist

import tersewire
from tersewire import _core

from ._averager import GradientAverager
from ._settings import Settings
from ._tensors import refuse, tensor_infos


@dataclass(frozen=True)
class _LocalSettings(Settings):
    every: int = 100
    outer: str = _core._DEFAULT_OUTER

    def check(self) -> None:
        super().check()
        if not isinstance(self.every, int) or isinstance(self.every, bool) or self.every < 1:
            refuse(f"every={self.every!r} cannot be; pass a whole number, 1 or more")
        if not isinstance(self.outer, str):
            refuse(f"outer={self.outer!r} cannot be; pass an outer optimizer's text")
        _core._outer_optimizer(self.outer)


def _outer_optimizer(text: str, shared: torch.Tensor) -> torch.optim.Optimizer:
    nesterov, lr, momentum = _core._outer_optimizer(text)
    return torch.optim.SGD([shared], lr=lr, momentum=momentum, nesterov=nesterov)


class LocalUpdates(GradientAverager):
    """Has ranks train by themselves for `every` steps, then meet: local SGD, DiLoCo.

        local = tersewire.torch.LocalUpdates(model, optimizer, every=100)

    model      on each rank, not in DistributedDataParallel; all begin as rank 0's
    optimizer  the rank's own, of whatever kind, with whatever schedule; it is seen to step
    every      steps between two exchanges
    outer      what turns the mean of how far ranks came into a step of the model that they share:
               nesterov, or sgd, whose rate of 1 makes that the mean of their models
    codec      of what ranks send and get, as for register(), and so are the others

    Buffers, as batch normalization's, stay each rank's own. Every rank takes as many steps. Call
    synchronize() before the model is tested or saved between two exchanges. Raises Error
    (kInvalidArgument) where ranks differ.
    """

    _settings: _LocalSettings

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, every: int = 100,
                 outer: str = _core._DEFAULT_OUTER, codec: Union[str, tersewire.Codec] = "3lc", *,
                 policy: str = "auto", exchange: Optional[str] = None, seed: int = 0,
                 threads: Optional[int] = None, timeout: Optional[datetime.timedelta] = None,
                 group: Optional[dist.ProcessGroup] = None) -> None:
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            refuse("this model is in DistributedDataParallel, which has ranks meet in every step; "
                   "pass the model within it, and train that")
        group = group or dist.group.WORLD
        super().__init__(tensor_infos(model), group, _LocalSettings(
            codec, policy, exchange, seed, threads=threads, timeout=timeout, every=every,
            outer=outer))
        # As objects: Gloo has no bfloat16.
        begun = [{name: value.cpu() for name, value in model.state_dict().items()}]
        dist.broadcast_object_list(begun, dist.get_global_rank(group, 0), group)
        model.load_state_dict(begun[0])
        self._steps = 0  # since the last exchange
        self._parameters = [value for value in model.parameters() if value.requires_grad]
        self._shared = torch.cat([value.detach().flatten().to("cpu", torch.float32)
                                  for value in self._parameters])
        self._outer = _outer_optimizer(outer, self._shared)
        self._watch(optimizer)

    def synchronize(self) -> None:
        """Exchanges how far ranks have come, and gives each the model that comes of it.

        Nothing where they have just met.
        """
        if self._steps == 0:
            return
        with torch.no_grad():
            change = torch.empty_like(self._shared)
            for parameter, begin, end in self._places():
                # Whence the rank began: the shared values as its parameters can hold them.
                start = self._shared[begin:end].to(parameter.dtype).to(torch.float32)
                change[begin:end] = start - parameter.flatten().to("cpu", torch.float32)
            self.average(change)
            self._shared.grad = change
            self._outer.step()
            self._shared.grad = None
            self._take_shared()
        self._steps = 0

    def state_dict(self) -> Dict[str, Any]:
        """What a restart of this rank would lose, beside the model and its own optimizer's state.

        Save all three on every rank, after the same step.
        """
        return {"averager": super().state_dict(), "steps": self._steps,
                "shared": self._shared.clone(), "outer": self._outer.state_dict()}

    def load_state_dict(self, states: Union[Dict[str, Any], Sequence[Dict[str, Any]]]) -> None:
        """Takes back what state_dict() returned on every rank, in a run with as many or others.

        As GradientAverager.load_state_dict(). With another number of ranks the states must be of
        the end of a round, and every rank goes on from the shared model.
        """
        listed = [states] if isinstance(states, dict) else list(states)
        keys = set(self.state_dict())
        if not listed or any(set(state) != keys for state in listed):
            refuse("a state is not of LocalUpdates; pass what its state_dict() returned")
        own = next((state for state in listed if state["averager"]["rank"] == self.rank), listed[0])
        as_many = own["averager"]["ranks"] == self._ranks
        if own["shared"].shape != self._shared.shape:
            refuse("a state is of another model; pass what state_dict() returned with this one")
        if not as_many and any(state["steps"] for state in listed):
            refuse("the states are within a round, and of another number of ranks; save them after "
                   "synchronize()")
        super().load_state_dict([state["averager"] for state in listed])
        self._shared.copy_(own["shared"])
        self._outer.load_state_dict(own["outer"])
        self._steps = own["steps"]
        if not as_many:
            self._take_shared()

    def change(self, **settings: Any) -> None:
        """As GradientAverager.change(), and `every`. Between steps, on every rank."""
        if "outer" in settings:
            refuse("the outer optimizer remembers how it moved; change what it works with in a run "
                   "of its own")
        super().change(**settings)

    def _meet(self, settings: Settings) -> _core._MeanWorker:
        settings.check()
        for codec in tersewire.choose_codecs(settings.policy, settings.codec_text, self._infos):
            if codec.name == "inceptionn" and "ef=on" not in codec.text:
                refuse("codec inceptionn would never send changes below its bound, and a model "
                       "that moves in small steps would stand still; add ef=on")
        return super()._meet(settings)

    def _watch(self, optimizer: torch.optim.Optimizer) -> None:
        step = optimizer.step

        @functools.wraps(step)  # with the mark of a scheduler, which may have it already
        def step_and_count(_: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            loss = step(*args, **kwargs)
            self._steps += 1
            if self._steps >= self._settings.every:
                self.synchronize()
            return loss

        setattr(optimizer, "step", types.MethodType(step_and_count, optimizer))

    @torch.no_grad()
    def _take_shared(self) -> None:
        for parameter, begin, end in self._places():
            parameter.copy_(self._shared[begin:end].view(parameter.shape))

    def _places(self) -> Iterator[Tuple[torch.Tensor, int, int]]:
        """Each parameter, and where its values lie in what ranks share."""
        begin = 0
        for parameter in self._parameters:
            end = begin + parameter.numel()
            yield parameter, begin, end
            begin = end
