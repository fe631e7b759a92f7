"""For training without DistributedDataParallel: an optimizer that averages gradients first."""

import contextlib
import datetime
import functools
import inspect
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, cast

import torch
import torch.distributed as dist

import tersewire
from tersewire import Error, ErrorCode, _core

from ._averager import Counters, GradientAverager, States, as_list
from ._callers import refuse_loss
from ._deliveries import Deliveries
from ._groups import Group, HubGroup, check_root, compare_values, group_of
from ._members import (MayLeave, Members, Replica, as_floats, begin_with, packed_floats,
                       refuse_elastic)
from ._private import has_step_hooks, queue_callback, untraced
from ._rates import Scaling, innermost, is_adam, is_adaptive, scale_steps
from ._settings import Settings
from ._shares import EXCHANGE as _PARAMETER_SERVER, ShareAverager
from ._tensors import (are_same, check_optimizer, ddps_of, kinds_of, norms_in, own_name, places,
                       rates_of, refuse, say_once, tensor_info, through_host, uncompiled)
from ._trees import tree_bytes, tree_of

# Per value of a model: of an optimizer's state (Adam's takes 8), and of residuals.
_MOST_STATE_BYTES = 64
_MOST_NAME_BYTES = 1024  # of what describes it, per tensor
_RESIDUAL_BYTES = 8
# As often as the trainer compares its replicas.
_COMPARE_EVERY = 100


class _Accumulated(NamedTuple):
    """A parameter's gradient as a backward pass has left it."""

    parameter: torch.Tensor
    has_some: bool
    version: int

    def is_discarded(self) -> bool:
        """Whether it has been emptied since: zeros, by what sets them."""
        gradient = self.parameter.grad
        return not _has_some(gradient) and (
            self.has_some or gradient is None or gradient._version != self.version)


class _Averager(GradientAverager):
    """The `averager` of a DistributedOptimizer whose ranks stay and step with whole parameters."""

    _undoable = _tells_uses = True


class _AveragesFirst:
    """Precedes a wrapped optimizer's own class. DistributedOptimizer() says more."""

    averager: GradientAverager
    _parameters: list[torch.Tensor]  # in the model's order
    _trained: list[torch.Tensor]  # the same in the optimizer's
    _frozen: list[torch.Tensor]  # those passed that nobody trains
    _buffer: torch.Tensor  # the gradients of all parameters, concatenated
    _sparse_as_dense: bool
    _deliveries: Deliveries
    _scalings: list[Scaling]
    _steps: bool = False  # in its own step(), which has exchanged
    _averaged: bool = False  # since the last step
    _void: bool = False  # the others have continued without this rank's gradients
    _skipped: int = 0  # steps
    _noted: set[torch.Tensor]  # parameters that the backward pass under way has reached
    _accumulated: _Accumulated | None = None  # since the last average

    def _note(self, parameter: torch.Tensor) -> None:
        """Before a gradient is added. A rank may not skip a step alone."""
        if self._noted and parameter not in self._noted:
            self._noted.add(parameter)
            return
        if self._averaged:  # and no step() since
            self._skipped += 0 if self._void else 1
            self._averaged = self._void = False
        elif self._accumulated and self._accumulated.is_discarded():
            self._skipped += 1
        elif self._noted and not _has_some(_least(self._noted).grad):  # that pass has failed
            self._skipped += 1
        self._accumulated = None
        self._noted = {parameter}
        end, this = type(self)._end_backward, weakref.ref(self)
        queue_callback(lambda: end(found) if (found := this()) is not None else None)

    def _end_backward(self) -> None:
        reached = [parameter for parameter in self._noted if parameter.grad is not None]
        self._noted = set()
        if reached:
            least = _least(reached)
            version = -1 if least.grad is None else least.grad._version
            self._accumulated = _Accumulated(least, _has_some(least.grad), version)

    @untraced
    @torch.no_grad()
    def synchronize(self) -> None:
        """Replaces every gradient by its mean over all ranks; step() does so if nobody has.

        A parameter without a gradient counts as one with zeros, and gets none where no rank has one.
        If ranks come and go, and the others have continued without this one, gradients stay, and
        the model becomes the others'.
        """
        if not self._exchange():
            return
        used = {number for number, use in enumerate(self.averager._uses.tolist()) if use}
        for number, (parameter, values) in enumerate(self._gradients()):
            if number in used:
                cast(torch.Tensor, parameter.grad).copy_(values)
            else:
                parameter.grad = None
        # What residuals hold of the others waits for their next use.
        self.averager._undo(set(range(len(self._parameters))) - used)
        self._deliveries.deliver(used)

    def _exchange(self) -> bool:
        """Averages the buffer; returns whether this rank's gradients counted."""
        if not are_same(_trained(self), self._trained):
            refuse("the optimizer trains other parameters than when it was wrapped, and the ranks' "
                   "models would drift apart; wrap it when all are there, with requires_grad as it "
                   "stays")
        if self.averager._steps_here == 0:  # a model may be wrapped later than its optimizer
            _refuse_ddp(self._parameters[0])
            state = self.state_dict().get("state", {})  # type: ignore[attr-defined]
            compare_values(
                self.averager._group, {"parameters": self._parameters + self._frozen,
                                       "values in its optimizer's state": _values_in(state)},
                "call broadcast_parameters(model.state_dict()) and broadcast_optimizer_state() "
                "before the first step, or load one checkpoint on every rank")
        used = torch.tensor([parameter.grad is not None for parameter in self._parameters], device="cpu")
        self._note_uses(used)
        for parameter in self._parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            if parameter.grad.is_sparse:
                if not self._sparse_as_dense:
                    refuse(f"a gradient of shape {tuple(parameter.shape)} is sparse; make its "
                           "embedding with sparse=False, or pass sparse_as_dense=True")
                parameter.grad = parameter.grad.to_dense()

        self.averager._undo(self._deliveries.begin_pass())
        bases = self._deliveries.bases(range(len(self._parameters)))

        def exchange() -> None:
            for number, (parameter, values) in enumerate(self._gradients()):
                values.copy_(cast(torch.Tensor, parameter.grad))
                if number in bases:  # only what is new is exchanged
                    values.sub_(bases[number].to(values.device))
            self.averager._average(self._buffer, self._skipped)
            for number, (_, values) in enumerate(self._gradients()) if bases else ():
                if number in bases:
                    values.add_(bases[number].to(values.device))

        self._void = not self.averager._among_ranks(exchange)
        self._accumulated, self._noted = None, set()
        self._averaged = True
        return not self._void

    @untraced
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Averages the gradients unless synchronize() has, then takes the optimizer's own step.

        After a backward pass following synchronize(), it averages again. A closure is called first,
        once: Error (kInvalidArgument) where the optimizer asks for a second gradient.
        """
        loss = _loss_of(closure)
        if not self._averaged:
            self.synchronize()
        if not self._void:
            for scaling in self._scalings:
                scaling.prepare()
            self._steps = True
            try:
                super().step(*self._closures(loss, closure))  # type: ignore[misc]
            finally:
                self._steps = False
                for scaling in self._scalings:
                    scaling.prepare()
        self._averaged = False  # if it failed on this rank alone, _note() counts the step as skipped
        if not self._void:
            self.averager._after_update()
        self._void = False
        return loss

    def _closures(self, loss: float | None,
                  closure: Callable[[], float] | None) -> list[Callable[[], float | None]]:
        """What to pass to the optimizer's own step: nothing, or what returns the loss found."""
        if closure is None or "closure" not in inspect.signature(super().step).parameters:  # type: ignore[misc]
            return []
        losses = [loss]

        def found() -> float | None:
            if not losses:
                _refuse_several_gradients(self)
            return losses.pop()

        return [found]

    # The optimizer's own step has torch's hooks; load_state_dict() would give them to this one too.
    step.hooked = True  # type: ignore[attr-defined]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refused: a copy, here or in a file, would have no ranks to exchange with."""
        raise Error(ErrorCode.kFailedPrecondition,
                    "a DistributedOptimizer cannot be copied or pickled; save its state_dict() and "
                    "its averager's, and of a scheduler's state what does not refer to it, which "
                    "OneCycleLR's 'anneal_func' does")

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """As in Horovod: around a step() after synchronize(), which is not repeated here anyway."""
        if not self._averaged:
            raise Error(ErrorCode.kFailedPrecondition,
                        "call synchronize() before skip_synchronize()")
        yield

    def _note_uses(self, used: torch.Tensor) -> None:
        """Of the step to be exchanged: whether each parameter has a gradient here."""
        self.averager._uses.copy_(used)

    def _gradients(self) -> Iterator[tuple[torch.Tensor, ...]]:
        """Each parameter and its gradient's place in the buffer."""
        return places(self._parameters, self._buffer)


class _OwnsAShare(_AveragesFirst):
    """The same where each rank updates a share of the model. DistributedOptimizer() says more."""

    averager: ShareAverager
    _used: torch.Tensor | None = None  # parameters that have had a gradient here

    def _note_uses(self, used: torch.Tensor) -> None:
        if self._used is not None and bool((self._used & ~used).any()):
            number = int((self._used & ~used).nonzero()[0])
            say_once(f"'{self.averager._infos[number].name}' has no gradient in this step, and counts as one "
                     "of zeros with exchange parameter-server, so that it decays if no rank has one; "
                     "where that matters use another exchange")
        self._used = used if self._used is None else self._used | used

    def synchronize(self) -> None:
        """Refused: only an owner has its parameters' mean gradients."""
        raise Error(ErrorCode.kFailedPrecondition,
                    "with exchange parameter-server only owners have mean gradients; clip each "
                    "rank's own before step(), or use another exchange")

    @untraced
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Pushes the gradients to the owners and adds the changes that they made of the means.

        A closure is called first, once.
        """
        loss = _loss_of(closure)
        self._exchange()
        self._averaged = False
        for parameter, change in self._gradients():
            parameter.add_(change.to(parameter.device))
        return loss

    step.hooked = True  # type: ignore[attr-defined]

    def state_dict(self) -> dict[str, Any]:
        """This rank's share and residuals, and the rates: save it on every rank.

        Only an optimizer with this exchange can load it.
        """
        refuse_loss()
        whole = super().state_dict()  # type: ignore[misc]
        if self.averager._share.begun:
            del whole["state"]  # empty; without it nothing else takes this for its own
        return {**whole, "averager": self.averager.state_dict()}

    def load_state_dict(self, state_dict: States) -> None:
        """What state_dict() returned on this rank, or a list of what it did on all ranks.

        After loading the model. With another number of ranks, the list. Before the first step also
        the state of an optimizer that was not wrapped.
        """
        states = as_list(state_dict)
        own: list[Any] = [state.get("averager") for state in states]
        if own == [None]:
            if self.averager._share.begun:
                refuse("this state is of whole parameters, and their shares have begun; load it "
                       "before the first step")
        elif not own or None in own:
            refuse("these are not the states of all ranks; pass what state_dict() returned on each")
        else:
            self.averager.load_state_dict(own if len(own) > 1 else own[0])
        super().load_state_dict({  # type: ignore[misc]
            "state": states[0].get("state", {}), "param_groups": states[0]["param_groups"]})


class ElasticAverager(MayLeave, Replica):
    """The `averager` of a DistributedOptimizer if ranks come and go.

    Its `steps` count the job's, including those before this rank joined. Train until they reach the
    number that you want, set learning rates by them, call leave() if this rank must go and stop
    when it has `left`, and call close() after the last step.
    """

    _undoable = _tells_uses = True
    _group: HubGroup
    _members: Members

    def __init__(self, optimizer: Any, parameters: Sequence[torch.Tensor], model: torch.nn.Module,
                 infos: Sequence[tersewire.TensorInfo], group: HubGroup,
                 settings: Settings) -> None:
        self._optimizer, self._parameters = optimizer, list(parameters)
        super().__init__(infos, group, settings)
        values = sum(parameter.numel() for parameter in parameters)
        held = packed_floats(self._parameters).numel() * 4
        self._most_state_bytes = _MOST_STATE_BYTES * values + _MOST_NAME_BYTES * len(infos)
        self._members = Members(
            model, parameters, self, group,
            held + _RESIDUAL_BYTES * values + self._most_state_bytes,
            (settings.alike, type(optimizer).__name__), "step")

    @property
    def steps(self) -> int:
        """Exchanges so far."""
        return self.rounds

    def close(self) -> None:
        """As GradientAverager.close(). The first rank's call ends the job: all steps are taken.

        Not where an exception led to the call: the others then go on without this rank.
        """
        super().close()
        self._members.close()

    def change(self, **settings: Any) -> None:
        """Refused."""
        refuse_elastic("change")

    def load_state_dict(self, states: States) -> None:
        """As GradientAverager.load_state_dict(), in a new job with `steps` at 0.

        Every rank of it loads, after loading the model and the optimizer. Ranks that join later get
        their state from the others.
        """
        self._members.load(functools.partial(super().load_state_dict, states))

    def alike(self) -> dict[str, torch.Tensor]:
        state = tree_bytes(self._optimizer.state_dict()["state"], "the optimizer's state")
        if state.numel() > self._most_state_bytes:
            refuse(f"the optimizer's state has {state.numel()} bytes, and a rank that joins takes "
                   f"at most {self._most_state_bytes}, {_MOST_STATE_BYTES} a value and "
                   f"{_MOST_NAME_BYTES} a tensor; use an optimizer that keeps less, or ranks that stay")
        return {"parameters": packed_floats(self._parameters), "optimizer": as_floats(state)}

    def beside(self) -> dict[str, torch.Tensor]:
        return {"rates": as_floats(tree_bytes(rates_of(self._optimizer),
                                              "a parameter group of the optimizer"))}

    @torch.no_grad()
    def take(self) -> None:
        member = self._group._member
        if member.begun_with is None:  # all have been given the same model
            return
        begin_with(member, "parameters", self._parameters)
        begun, groups = self._begun("optimizer"), self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": begun, "param_groups": groups})
        # It casts to the parameter's type what the others have in another.
        for number, parameter in enumerate(_all_of(self._optimizer)):
            own = self._optimizer.state.get(parameter, {})
            own.update({name: value.to(own[name].device) for name, value
                        in begun.get(number, {}).items()
                        if torch.is_tensor(value) and value.dtype != own[name].dtype})

    def take_beside(self) -> None:
        for group, told in zip(self._optimizer.param_groups, self._begun("rates")):
            group.update(told)

    def go_on(self, group: HubGroup) -> None:
        super().go_on(group)
        self._optimizer._skipped = 0  # counts since a state that all have

    def _begun(self, name: str) -> Any:
        values = torch.empty(self._group._member.elems_of(name), dtype=torch.float32,
                             device="cpu")
        self._group._member.begin_with(name, values)
        return tree_of(values.view(torch.uint8))

    def _among_ranks(self, exchange: Callable[[], None]) -> bool:
        with self._members.here():
            return self._members.exchange(exchange)

    def _after_update(self) -> None:
        with self._members.here():
            try:
                self._members.hold(compares=self.rounds % _COMPARE_EVERY == 0)
            except Error as error:
                self._members.recover(error)
            else:
                self._members.settle_changes()


def DistributedOptimizer(
        optimizer: torch.optim.Optimizer,
        named_parameters: torch.nn.Module | Iterable[tuple[str, torch.Tensor]] | None = None,
        codec: str | tersewire.Codec = "3lc", *, policy: str = "auto",
        exchange: str | None = None, seed: int = 0, warm_up_steps: int = 0,
        loss_scale: Callable[[], float] | None = None, threads: int | None = None,
        timeout: datetime.timedelta | None = None,
        on_step: Callable[[Counters], None] | None = None,
        group: Group | None = None, sparse_as_dense: bool = False,
        replay_decisions: list[dict[str, Any]] | None = None,
        budget: str | None = None,
        pull_codec: str | tersewire.Codec | None = None,
        rate_gain: float | None = None, spike_limit: float | None = None) -> Any:
    """Makes an optimizer average compressed gradients over all ranks before each step.

    optimizer         of a model that is not in DistributedDataParallel, on the CPU or on a GPU;
                      from a GPU, gradients are copied to the CPU and back. This object itself is
                      changed: all references to it, a scheduler made later too, see it
    named_parameters  the model, or model.named_parameters(): the names for summary() and states.
                      Without them parameters are numbered
    group             whose ranks take part: a process group, or a HubGroup; without it, all ranks.
                      With HubGroup(elastic=True), and the model, ranks come and go
    sparse_as_dense   whether to make sparse gradients dense; otherwise they are refused
    pull_codec        as for register(): means of 3lc keep no residual unless the optimizer is an
                      SGD; others divide by the size of gradients, and what is late makes their
                      steps smaller
    rate_gain         what learning rates are multiplied by within step(): Adam's steps are smaller
                      with encoded gradients, whose noise it divides by. By default for an Adam
                      (AdamW, NAdam, ...) the codec's adaptive_rate_gain: s + 0.25 for 3lc,
                      1.4 for terngrad and stoch3 with their default clip, else 1
    spike_limit       as for register(): by default 4 for an Adam
    others            as for register(), which exchanges during the backward pass; this one
                      exchanges in step(). Without the model, policies infer a parameter's kind from its
                      name and shape

    With exchange="parameter-server" each rank keeps a share of the model and of the optimizer's
    state: it updates these with the mean gradients and sends their changes, which are compressed
    once more. step() alone exchanges, so gradients are clipped per rank, before it, and there is no
    synchronize(); the optimizer must treat every value by itself, as SGD, Adam and AdamW do, since
    a share may begin and end within a tensor; parameters are float32. With four ranks AdamW learned
    more from it than from gradient-server at the same bytes (docs/python.md).

    Returns the optimizer. It has synchronize(), for clipping gradients before step(), and
    skip_synchronize(); `averager` has counters, summary(), state_dict() and close(). Gradients
    accumulated over several backward passes are exchanged once, in step(). Begin with
    broadcast_parameters(), if ranks stay. Raises Error (kInvalidArgument) if ranks differ, for
    parameters without a name, and for an optimizer that is already wrapped or has a scheduler: make
    the scheduler after this call.

    If ranks come and go, it waits for them, and gives each the model, buffers and optimizer state
    of the others; `averager` is an ElasticAverager, which counts the job's steps. If the others
    have continued without this rank's gradients, step() changes only the model, which is then
    theirs. Raises Error (kAborted) if too few are left, and (kFailedPrecondition) if the hub
    refuses this rank or the job is over.
    """
    check_optimizer(optimizer)
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        _refuse_several_gradients(optimizer)
    if any(kind.__name__ == "ZeroRedundancyOptimizer" for kind in type(optimizer).__mro__):
        refuse("a ZeroRedundancyOptimizer updates other parameters on each rank; pass the optimizer "
               "within it with exchange=\"parameter-server\", which spreads its state as well, or put "
               "the model in DistributedDataParallel and call register()")
    if isinstance(optimizer, _AveragesFirst):
        refuse("this optimizer is a DistributedOptimizer already; wrap it once")
    if hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        refuse("a scheduler has this optimizer already and would bypass the exchange; make the "
               "scheduler after DistributedOptimizer()")
    if "step" in vars(optimizer):
        refuse("this optimizer's step was replaced, as by torch.compile(), and would bypass the "
               "exchange; replace it after DistributedOptimizer()")
    before = _OwnsAShare if exchange == _PARAMETER_SERVER else _AveragesFirst
    own = {*_AveragesFirst.__annotations__, *vars(_AveragesFirst), *vars(before)}
    for name in sorted(own - set(dir(torch.optim.Optimizer))):
        if not name.startswith("__") and hasattr(optimizer, name):
            refuse(f"a {type(optimizer).__name__} has its own '{name}', which would be "
                   "overwritten; wrap the optimizer within it")
    elastic = group if isinstance(group, HubGroup) and group.elastic else None
    named_parameters = uncompiled(named_parameters)
    model = named_parameters if isinstance(named_parameters, torch.nn.Module) else None
    if elastic and model is None:
        refuse("ranks that come and go give each other a whole model, its buffers too; pass the "
               "model in place of its named_parameters()")
    if elastic and codec == "auto":
        refuse("codec auto measures ranks that stay, and these come and go; name a codec, such as "
               "3lc")
    if elastic and exchange == _PARAMETER_SERVER:
        refuse("a share would be lost with its rank, and these come and go; use gradient-server or "
               "all-gather")
    named, frozen = _named(optimizer, named_parameters)
    parameters = [parameter for _, parameter in named]
    _refuse_ddp(parameters[0])
    kinds = kinds_of(model) if model is not None else norms_in(named)
    infos = [tensor_info(name, parameter,
                         kinds.get(name) or _core._usual_kind(name, parameter.dim()))
             for name, parameter in named]
    settings = Settings(codec, policy, exchange, seed, warm_up_steps, loss_scale, threads, timeout,
                        on_step, replay_decisions, budget, pull_codec, rate_gain, spike_limit,
                        _adaptive=is_adaptive(optimizer), _adam=is_adam(optimizer))
    if elastic and model is not None:
        averager: GradientAverager = ElasticAverager(optimizer, parameters, model, infos, elastic,
                                                     settings)
    elif exchange == _PARAMETER_SERVER:
        averager = ShareAverager(optimizer, parameters, infos, group_of(group, near=parameters),
                                 settings)
    else:
        averager = _Averager(infos, group_of(group, near=parameters), settings)
    base = type(optimizer)
    optimizer.__class__ = type(base.__name__, (before, base), {})
    wrapped: Any = optimizer
    if getattr(wrapped, "_step_supports_amp_scaling", False):
        # A fused step would unscale gradients and skip itself, unseen by the other ranks.
        wrapped._step_supports_amp_scaling = False
    wrapped.averager = averager
    wrapped._parameters, wrapped._trained = parameters, _trained(optimizer)
    wrapped._frozen = frozen
    wrapped._buffer = torch.empty(sum(parameter.numel() for parameter in parameters),
                                  dtype=torch.float32, device="cpu")
    wrapped._sparse_as_dense = sparse_as_dense
    wrapped._noted = set()
    wrapped._deliveries = Deliveries(parameters, moves=False)
    wrapped._scalings = [] if before is _OwnsAShare else scale_steps(
        [optimizer, *innermost(optimizer)], averager, set(parameters))
    if has_step_hooks(optimizer):
        optimizer.register_step_pre_hook(_refuse_bypass)
    for parameter in parameters:
        handle = parameter.register_hook(_noting(wrapped, parameter))
        weakref.finalize(wrapped, handle.remove).atexit = False
    return wrapped


@untraced
def _refuse_bypass(optimizer: Any, *_: Any) -> None:
    if not optimizer._steps:
        refuse("step() was taken from this optimizer before DistributedOptimizer(), perhaps by "
               "torch.compile(), and would bypass the exchange; take it after that")


def _noting(optimizer: Any, parameter: torch.Tensor) -> Callable[[torch.Tensor], None]:
    """The hook of a parameter, which must not keep the optimizer alive."""
    optimizer_of, parameter_of = weakref.ref(optimizer), weakref.ref(parameter)

    def note(_: torch.Tensor) -> None:
        noting, noted = optimizer_of(), parameter_of()
        if noting is not None and noted is not None:
            noting._note(noted)

    return note


def _refuse_ddp(parameter: torch.Tensor) -> None:
    if ddps_of(parameter):
        refuse("these are the parameters of a model in DistributedDataParallel, which averages "
               "gradients itself; use register(), or the model within it")


def _refuse_several_gradients(optimizer: Any) -> NoReturn:
    refuse(f"a {type(optimizer).__name__} computes several gradients in a step, and each would need an "
           "exchange; put the model in DistributedDataParallel and call register(), which exchanges "
           "each, or use another optimizer")


def _loss_of(closure: Callable[[], float] | None) -> float | None:
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def _least(parameters: Iterable[torch.Tensor]) -> torch.Tensor:
    return min(parameters, key=torch.Tensor.numel)


def _has_some(gradient: torch.Tensor | None) -> bool:
    """Whether it exists and is not zero."""
    if gradient is None:
        return False
    return bool((gradient._values() if gradient.is_sparse else gradient).any())


def _values_in(tree: Any) -> list[torch.Tensor]:
    """The tensors and numbers in dictionaries."""
    if isinstance(tree, dict):
        return [value for key in sorted(tree, key=str) for value in _values_in(tree[key])]
    if isinstance(tree, float):
        return [torch.tensor(tree, dtype=torch.float64, device="cpu")]
    return [torch.as_tensor(tree)] if isinstance(tree, (torch.Tensor, int)) else []


def _all_of(optimizer: Any) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _trained(optimizer: Any) -> list[torch.Tensor]:
    return [parameter for parameter in _all_of(optimizer) if parameter.requires_grad]


def _named(optimizer: torch.optim.Optimizer,
           named_parameters: torch.nn.Module | Iterable[tuple[str, torch.Tensor]] | None
           ) -> tuple[list[tuple[str, torch.Tensor]], list[torch.Tensor]]:
    """The parameters that the optimizer trains, in the model's order, and the model's frozen ones."""
    trained = _trained(optimizer)
    if not trained:
        refuse("the optimizer trains no parameter; pass one with parameters that require gradients")
    if named_parameters is None:
        return [(f"parameter {number}", value) for number, value in enumerate(trained)], []
    if isinstance(named_parameters, torch.nn.Module):
        named_parameters = named_parameters.named_parameters()
    pairs = None if isinstance(named_parameters, torch.Tensor) else list(named_parameters)
    if pairs is None or not all(isinstance(pair, tuple) and len(pair) == 2 and
                                isinstance(pair[0], str) and torch.is_tensor(pair[1])
                                for pair in pairs):
        refuse("named_parameters are not pairs of a name and a parameter; pass the model, or "
               "model.named_parameters()")
    names = {parameter: own_name(name) for name, parameter in pairs}
    for parameter in trained:
        if parameter not in names:
            refuse(f"a parameter of shape {tuple(parameter.shape)} that the optimizer trains has "
                   "no name; pass model.named_parameters() of the whole model")
    known = set(trained)
    return ([(name, parameter) for parameter, name in names.items() if parameter in known],
            [parameter for parameter in names if not parameter.requires_grad])


def broadcast_parameters(state: Mapping[str, torch.Tensor], root_rank: int = 0,
                         group: Group | None = None) -> None:
    """Copies one rank's values to all, in place: of model.state_dict(), before training."""
    if not isinstance(state, Mapping):
        refuse(f"a {type(state).__name__} has no names; pass model.state_dict()")
    if state and not any(torch.is_tensor(value) for value in state.values()):
        refuse("this state holds no tensors by name; pass model.state_dict(), and an optimizer to "
               "broadcast_optimizer_state()")
    ranks = group_of(group, near=filter(torch.is_tensor, state.values()))
    check_root(ranks, root_rank)
    ranks._broadcast(state, root_rank)


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int = 0,
                              group: dist.ProcessGroup | None = None) -> None:
    """Gives every rank's optimizer the state of one rank's, after that one loaded a checkpoint.

    Over a process group only: it is pickled, and unpickling it means trusting the sender.
    """
    check_optimizer(optimizer)
    ranks = group_of(group, near=_all_of(optimizer))
    check_root(ranks, root_rank)
    if isinstance(optimizer, _OwnsAShare):
        refuse("with exchange parameter-server every rank has a share of its own; call this before "
               "DistributedOptimizer(), or load what each rank saved")
    if isinstance(ranks, HubGroup):
        refuse("an optimizer's state is not sent over a hub, as whoever unpickles it would have to "
               "trust every rank; give every rank the checkpoint")
    # Unpickled, it would otherwise be on the root's device.
    state = [through_host(optimizer.state_dict())]
    ranks._broadcast_objects(state, root_rank)
    optimizer.load_state_dict(state[0])
