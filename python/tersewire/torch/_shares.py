"""An optimizer whose ranks own a share of the model each (exchange parameter-server)."""

import collections
from collections.abc import Sequence
from typing import Any

import numpy
import torch

import tersewire
from tersewire import _core

from ._averager import GradientAverager, States, as_list
from ._groups import AnyGroup, Group
from ._rates import innermost
from ._settings import Settings
from ._tensors import rates_of, refuse

EXCHANGE = "parameter-server"
_TRIED = 4, 4  # the shape of a tensor on which an optimizer is tried

# A run of a tensor: its first element, how many, and its values and the optimizer's state of them,
# by name.
Run = tuple[int, int, dict[str, Any]]


# Whatever runs before or after a step would run for every part, with another optimizer.
_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")


class _OwnPart:
    """A run of a tensor whose values, in the shared model, are this rank's to update."""

    def __init__(self, tensor: int, begin: int, elems: int) -> None:
        self.tensor, self.begin, self.elems = tensor, begin, elems
        self.values = torch.empty(0, dtype=torch.float32, device="cpu")  # before the first step


class Share:
    """The parts that this rank owns, and the optimizer that updates them.

    Its averager's thread calls it, and it has no reference to the averager.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, names: Sequence[str],
                 parameters: Sequence[torch.Tensor]) -> None:
        if innermost(optimizer) != [optimizer]:
            refuse(f"a {type(optimizer).__name__} takes another optimizer's steps, which are of "
                   "whole parameters; wrap the one within it, or use another exchange")
        self._names, self._parameters = names, parameters
        for group in optimizer.param_groups:
            _try_parts(optimizer, group, dict(zip(parameters, names)))
        self._optimizer = _for_parts(optimizer)
        self._group_of = {parameter: number for number, group in enumerate(optimizer.param_groups)
                          for parameter in group["params"]}
        self._groups: list[dict[str, Any]] = []
        self._rate_gain = 1.0  # what their rates are multiplied by
        self.parts: dict[int, _OwnPart] = {}
        self._unused: set[int] = set()  # parts whose means have all been zeros
        self.begun = False

    def begin(self, optimizer: torch.optim.Optimizer, rate_gain: float) -> None:
        """Before an exchange: takes the wrapped optimizer's rates and, once, its state."""
        self._groups, self._rate_gain = optimizer.param_groups, rate_gain
        if self.begun:
            return
        self.take(self.cut({number: [(0, parameter.numel(), {
            "values": parameter.detach(), "state": optimizer.state.get(parameter, {})})]
            for number, parameter in enumerate(self._parameters)}))
        optimizer.state.clear()  # of all parameters, on every rank

    def update(self, number: int, mean: "numpy.ndarray[Any, Any]",
               change: "numpy.ndarray[Any, Any]") -> None:
        """The shared model's change under a mean gradient; none as long as all have been zeros."""
        if number in self._unused and not mean.any():
            change[...] = 0
            return
        self._unused.discard(number)
        values = self.parts[number].values
        before = values.clone()
        given_group = self._groups[self._group_of[self._parameters[self.parts[number].tensor]]]
        group = _group_of_parts(given_group, [values])
        if group.get("lr") is not None:
            group["lr"] = group["lr"] * self._rate_gain  # a tensor is the wrapped optimizer's own
        given, own = dict(group), self._attributes()
        self._optimizer.param_groups = [group]
        # A copy, as optimizers may keep it.
        values.grad = torch.from_numpy(mean).view(values.shape).clone()
        try:
            self._optimizer.step()
        finally:
            values.grad = None
        for where, now, then, names in (("groups", group, given, {*group, *given}),
                                        ("attributes", self._attributes(), own, own)):
            if any(not _is_same(now.get(name), then.get(name)) for name in names):
                refuse(f"a {type(self._optimizer).__name__} keeps state in its {where}, which parts "
                       "of tensors do not share; use another exchange")
        torch.sub(values, before, out=torch.from_numpy(change).view(values.shape))

    def _attributes(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self._optimizer).items()
                if name not in ("state", "param_groups")}

    def state(self) -> dict[int, list[Run]]:
        """By tensor: copies. Nothing before the first step."""
        runs: dict[int, list[Run]] = {}
        for part in self.parts.values() if self.begun else ():
            state = {name: _copy(value)
                     for name, value in self._optimizer.state[part.values].items()}
            runs.setdefault(part.tensor, []).append(
                (part.begin, part.elems, {"values": part.values.clone(), "state": state}))
        return runs

    def cut(self, runs: dict[int, list[Run]]) -> list[tuple[torch.Tensor, dict[str, Any]]]:
        """Copies of each part's values and state, of what state() returned on all ranks.

        That of this rank is enough if its parts are the same. Changes nothing.
        """
        return [self._cut(part, runs.get(part.tensor, [])) for part in self.parts.values()]

    def take(self, cut: Sequence[tuple[torch.Tensor, dict[str, Any]]]) -> None:
        """Continues from what cut() returned."""
        self._optimizer.state.clear()
        for part, (values, state) in zip(self.parts.values(), cut):
            part.values = values
            self._optimizer.state[values] = state
        self._unused = {number for number, (_, state) in zip(self.parts, cut) if not state}
        self.begun = True

    def _cut(self, part: _OwnPart,
             runs: Sequence[Run]) -> tuple[torch.Tensor, dict[str, Any]]:
        end = part.begin + part.elems
        found = sorted((run for run in runs if run[0] < end and run[0] + run[1] > part.begin),
                       key=lambda run: run[0])
        if sum(min(end, run[0] + run[1]) - max(part.begin, run[0]) for run in found) != part.elems:
            refuse(f"the states lack values of '{self._names[part.tensor]}'; pass those of all "
                   "ranks, once")
        found = found or list(runs[:1])  # of no values
        if not found:
            return torch.empty(0, dtype=torch.float32, device="cpu"), {}

        def joined(of_runs: list[torch.Tensor]) -> torch.Tensor:
            pieces = [values.detach().flatten()[max(0, part.begin - run[0]):end - run[0]]
                      for run, values in zip(found, of_runs)]
            return torch.cat(pieces).float().cpu()

        values = joined([run[2]["values"] for run in found])
        # A value without dimensions, as a temperature, keeps its state's shape.
        by_element = self._parameters[part.tensor].dim() > 0
        state = {}
        for name, value in found[0][2]["state"].items():
            if by_element and _is_by_element(value, found[0][1]):
                state[name] = joined([run[2]["state"][name] for run in found])
            else:
                state[name] = _copy(value)
        return values if by_element else values.view(()), state


def _for_parts(optimizer: torch.optim.Optimizer) -> Any:
    """An optimizer with its step, for parts instead of whole parameters, and without state."""
    made: Any = object.__new__(type(optimizer))
    made.__dict__.update(vars(optimizer))
    made.__dict__.update({hooks: collections.OrderedDict() for hooks in _HOOKS})
    made.state = collections.defaultdict(dict)
    return made


def _group_of_parts(group: dict[str, Any], parts: list[torch.Tensor]) -> dict[str, Any]:
    """Its settings, for parts on the CPU."""
    settings = {name: _on_cpu(value) for name, value in group.items() if name != "params"}
    settings.update({name: False for name in ("fused", "capturable") if name in settings})
    return {**settings, "params": parts}


def _try_parts(optimizer: torch.optim.Optimizer, group: dict[str, Any],
               names: dict[torch.Tensor, str]) -> None:
    """Refuses an optimizer that changes a tensor in another way than its parts."""
    largest = max((one for one in group["params"] if one in names), key=torch.Tensor.dim, default=None)
    if largest is None:
        return
    numbers = torch.Generator("cpu").manual_seed(1)
    values, *gradients = torch.randn((3, *_TRIED), generator=numbers, device="cpu")

    def stepped(parts: list[torch.Tensor]) -> torch.Tensor:
        tried = _for_parts(optimizer)
        tried.param_groups = [_group_of_parts(group, parts)]
        if group.get("lr") is not None:
            tried.param_groups[0]["lr"] = 0.1  # whatever a schedule begins with
        for gradient in gradients:
            for part, its in zip(parts, gradient.flatten().split([part.numel() for part in parts])):
                part.grad = its.view(part.shape).clone()
            tried.step()
        return torch.cat([part.flatten() for part in parts])

    why = "it does not treat every value by itself"
    try:
        whole = stepped([values.clone() if largest.dim() > 1 else values.flatten()])
        parts = stepped([part.clone() for part in values.flatten().split([5, values.numel() - 5])])
        if torch.allclose(whole, parts, rtol=1e-4, atol=1e-6):
            return
    except Exception as failure:  # such as Muon's, which takes no vectors
        why = str(failure).splitlines()[0].rstrip(".") if str(failure) else type(failure).__name__
    refuse(f"a {type(optimizer).__name__} cannot update parts of '{names[largest]}', within which "
           f"shares end ({why}); use exchange gradient-server")


def _on_cpu(setting: Any) -> Any:
    """A rate may be a tensor, and betas may be two."""
    if isinstance(setting, tuple):
        return tuple(map(_on_cpu, setting))
    return setting.cpu() if torch.is_tensor(setting) else setting


def _is_same(now: Any, then: Any) -> bool:
    return now is then or isinstance(then, (int, float, str)) and bool(now == then)


def _is_by_element(value: Any, elems: int) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0 and value.numel() == elems


def _copy(value: Any) -> Any:
    return value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value


class ShareAverager(GradientAverager):
    """The `averager` of a DistributedOptimizer with exchange="parameter-server".

    Its average() replaces gradients by the changes that their owners made of the means. change()
    takes all settings but another exchange.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: Sequence[torch.Tensor],
                 infos: Sequence[tersewire.TensorInfo], group: Group | AnyGroup | None,
                 settings: Settings) -> None:
        for info, parameter in zip(infos, parameters):
            if parameter.dtype is not torch.float32:
                refuse(f"parameter '{info.name}' is {parameter.dtype}, and a share's values are "
                       "float32; keep the model so, and use torch.autocast")
        self._optimizer = optimizer
        self._share = Share(optimizer, [info.name for info in infos], list(parameters))
        self._update = self._share.update
        super().__init__(infos, group, settings)
        self._share.parts = {number: _OwnPart(tensor, begin, elems) for number, (
            tensor, begin, elems, owner) in enumerate(self._worker.parts) if owner == self.rank}

    def _meet(self, settings: Settings) -> _core._MeanWorker:
        if settings.exchange != EXCHANGE:
            refuse("the other ranks would not have this one's share of the optimizer's state; keep "
                   f"exchange {EXCHANGE}")
        if settings.is_auto:
            refuse(f"codec auto does not choose for exchange {EXCHANGE}; name a codec, such as 3lc")
        if settings.loss_scale is not None:
            refuse(f"with exchange {EXCHANGE} gradients are unscaled before step(), as "
                   "GradScaler.step() does; omit loss_scale")
        return super()._meet(settings)

    def _job(self) -> Any:
        # An owner's rates are those of its share on every rank.
        return super()._job(), type(self._optimizer).__name__, rates_of(self._optimizer)

    def _average(self, gradients: torch.Tensor, skipped: int) -> None:
        self._share.begin(self._optimizer, self._rate_gain_in(self._step + 1))
        super()._average(gradients, skipped)

    def state_dict(self) -> dict[str, Any]:
        """As GradientAverager.state_dict(), and the optimizer's state of this rank's share."""
        return {**super().state_dict(), "shares": {
            self._infos[tensor].name: runs for tensor, runs in self._share.state().items()}}

    def load_state_dict(self, states: States) -> None:
        """As GradientAverager.load_state_dict(), after loading the model."""
        listed = as_list(states)
        if any("shares" not in state for state in listed):
            refuse(f"a state has no shares; pass what state_dict() returned with exchange {EXCHANGE}")
        runs: dict[int, list[Run]] = {
            number: [run for state in listed for run in state["shares"].get(info.name, [])]
            for number, info in enumerate(self._infos)}
        cut = self._share.cut(runs) if any(state["shares"] for state in listed) else None
        super().load_state_dict(states)
        self._optimizer.state.clear()
        self._share.begun = False
        if cut is not None:
            self._share.take(cut)
