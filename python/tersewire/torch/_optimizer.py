"""For training without DistributedDataParallel: an optimizer that averages gradients first."""

import contextlib
import datetime
import functools
import itertools
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, Union

import torch
import torch.distributed as dist

import tersewire
from tersewire import Error, ErrorCode

from ._averager import Counters, GradientAverager
from ._groups import Group, HubGroup, group_of
from ._settings import Settings
from ._tensors import ddp_of, kind_of, refuse, tensor_info


class _AveragesFirst:
    """What a wrapped optimizer has in front of its own class. DistributedOptimizer() says more."""

    averager: GradientAverager
    _parameters: List[torch.Tensor]
    _buffer: torch.Tensor  # the gradients of all parameters, one behind the other
    _sparse_as_dense: bool
    _averaged: bool  # since the last step
    _skipped: int  # steps
    _first: Optional[torch.Tensor]  # parameter that got a gradient since the last average

    def _note(self, parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        """What has become of the gradients before one that comes: a rank may not skip alone."""
        if self._averaged:  # and no step() since
            self._skipped += 1
            self._averaged = False
        if self._first is None:
            self._first = parameter if _has_some(gradient) else None
        elif self._first is parameter and not _has_some(parameter.grad):
            self._skipped += 1

    def synchronize(self) -> None:
        """Replaces every gradient by its mean over all ranks; step() does it where nobody has.

        A parameter without a gradient counts as one with zeros.
        """
        if any(now is not then for now, then in itertools.zip_longest(
                _trained(self), self._parameters)):
            refuse("the optimizer trains other parameters than when it was wrapped, and those of "
                   "others would part; wrap it when all are there, with requires_grad as it stays")
        for parameter, values in self._gradients():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            if parameter.grad.is_sparse:
                if not self._sparse_as_dense:
                    refuse(f"a gradient of shape {tuple(parameter.shape)} is sparse; make its "
                           "embedding with sparse=False, or pass sparse_as_dense=True")
                parameter.grad = parameter.grad.to_dense()
            values.copy_(parameter.grad)
        self.averager.average(self._buffer, self._skipped)
        self._first = None
        for parameter, values in self._gradients():
            parameter.grad.copy_(values)
        self._averaged = True

    def step(self, closure: Optional[Callable[[], float]] = None) -> Optional[float]:
        """Averages the gradients unless synchronize() has, then takes the optimizer's own step.

        A backward pass after synchronize() makes it average again. A closure is called first, once.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if not self._averaged:
            self.synchronize()
        self._averaged = False
        super().step()  # type: ignore[misc]
        return loss

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """As in Horovod: around a step() after synchronize(), which is not repeated here anyway."""
        if not self._averaged:
            raise Error(ErrorCode.kFailedPrecondition,
                        "call synchronize() before skip_synchronize()")
        yield

    def _gradients(self) -> Iterator[Tuple[torch.Tensor, torch.Tensor]]:
        """Each parameter and where its gradient lies in the buffer."""
        begin = 0
        for parameter in self._parameters:
            end = begin + parameter.numel()
            yield parameter, self._buffer[begin:end].view(parameter.shape)
            begin = end


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
        optimizer: torch.optim.Optimizer,
        named_parameters: Optional[Iterable[Tuple[str, torch.Tensor]]] = None,
        codec: Union[str, tersewire.Codec] = "3lc", *, policy: str = "auto",
        exchange: Optional[str] = None, seed: int = 0, warm_up_steps: int = 0,
        loss_scale: Optional[Callable[[], float]] = None, threads: Optional[int] = None,
        timeout: Optional[datetime.timedelta] = None,
        on_step: Optional[Callable[[Counters], None]] = None,
        group: Optional[Group] = None, sparse_as_dense: bool = False,
        replay_decisions: Optional[List[Dict[str, Any]]] = None,
        budget: Optional[str] = None) -> Any:
    """Has an optimizer average compressed gradients over all ranks before each step.

    optimizer         of a model that is not in DistributedDataParallel, on the CPU or on a GPU,
                      from which gradients are copied to the CPU and back. It is this very object
                      that changes: what refers to it, a scheduler made later too, sees it
    named_parameters  model.named_parameters(): the names for summary() and states. Without them
                      parameters are numbered
    group             whose ranks take part: a process group, or a HubGroup; all of them without it
    sparse_as_dense   whether sparse gradients are made dense; they are refused otherwise
    others            as those of register(), which exchanges while the backward pass goes on;
                      this one exchanges in step(). Policies see a parameter's kind by its shape

    Returns the optimizer. It has synchronize(), for who clips gradients before step(), and
    skip_synchronize(); `averager` has counters, summary(), state_dict() and close(). Gradients
    that are accumulated over several backward passes are exchanged once, in step(). Begin with
    broadcast_parameters(). Raises Error (kInvalidArgument) where ranks differ, for parameters
    without a name, and for an optimizer that is wrapped already or has a scheduler: make it after.
    """
    if isinstance(optimizer, _AveragesFirst):
        refuse("this optimizer is a DistributedOptimizer already; wrap it once")
    if "step" in vars(optimizer):
        refuse("a scheduler has this optimizer already and would pass by the exchange; make the "
               "scheduler after DistributedOptimizer()")
    for name in ("averager", "synchronize", "skip_synchronize"):
        if hasattr(optimizer, name):
            refuse(f"a {type(optimizer).__name__} has '{name}' for itself, which would be "
                   "overwritten; wrap the optimizer within it")
    named = _named(optimizer, named_parameters)
    if all(name.startswith("module.") for name, _ in named) and ddp_of(named[0][1]):
        refuse("these are the parameters of a model in DistributedDataParallel, which averages "
               "gradients itself; use register(), or the model within it")
    infos = [tensor_info(name, parameter, kind_of(name, parameter)) for name, parameter in named]
    averager = GradientAverager(
        infos, group,
        Settings(codec, policy, exchange, seed, warm_up_steps, loss_scale, threads, timeout,
                 on_step, replay_decisions, budget))
    own = type(optimizer)
    optimizer.__class__ = type(own.__name__, (_AveragesFirst, own), {})
    wrapped: Any = optimizer
    wrapped.averager = averager
    wrapped._parameters = [parameter for _, parameter in named]
    wrapped._buffer = torch.empty(sum(parameter.numel() for _, parameter in named))
    wrapped._sparse_as_dense = sparse_as_dense
    wrapped._averaged, wrapped._skipped, wrapped._first = False, 0, None
    for parameter in wrapped._parameters:
        parameter.register_hook(functools.partial(wrapped._note, parameter))
    return wrapped


def _has_some(gradient: Optional[torch.Tensor]) -> bool:
    """Whether it is there and not zero."""
    if gradient is None:
        return False
    return bool((gradient._values() if gradient.is_sparse else gradient).any())


def _trained(optimizer: Any) -> List[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]
            if parameter.requires_grad]


def _named(optimizer: torch.optim.Optimizer,
           named_parameters: Optional[Iterable[Tuple[str, torch.Tensor]]]
           ) -> List[Tuple[str, torch.Tensor]]:
    """The parameters that the optimizer trains, in its order."""
    trained = _trained(optimizer)
    if named_parameters is None:
        return [(f"parameter {number}", parameter) for number, parameter in enumerate(trained)]
    names = {parameter: name for name, parameter in named_parameters}
    for parameter in trained:
        if parameter not in names:
            refuse(f"a parameter of shape {tuple(parameter.shape)} that the optimizer trains has "
                   "no name; pass model.named_parameters() of the whole model")
    return [(names[parameter], parameter) for parameter in trained]


def broadcast_parameters(state: Mapping[str, torch.Tensor], root_rank: int = 0,
                         group: Optional[Group] = None) -> None:
    """Gives every rank the values of one, in place: of model.state_dict(), before training."""
    if not isinstance(state, Mapping):
        refuse(f"a {type(state).__name__} has no names; pass model.state_dict()")
    group_of(group)._broadcast(state, root_rank)


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int = 0,
                              group: Optional[dist.ProcessGroup] = None) -> None:
    """Gives every rank's optimizer the state of one's, after that one has loaded a checkpoint.

    Over a process group alone: it is pickled, and who unpickles trusts who pickled.
    """
    if isinstance(group_of(group), HubGroup):
        refuse("an optimizer's state is not sent over a hub, as whoever unpickles it would have to "
               "trust every rank; give every rank the checkpoint")
    state = [optimizer.state_dict()]
    dist.broadcast_object_list(state, root_rank, group=group)
    optimizer.load_state_dict(state[0])
