"""An optimizer whose ranks own a share of the model each (exchange parameter-server)."""

from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import numpy
import torch

import tersewire

from ._averager import GradientAverager
from ._groups import Group
from ._settings import Settings
from ._tensors import refuse

EXCHANGE = "parameter-server"

# A run of a tensor: its first element, how many, and its values and the optimizer's state of them,
# by name.
Run = Tuple[int, int, Dict[str, Any]]


class _OwnPart:
    """A run of a tensor whose values, in the shared model, are this rank's to update."""

    def __init__(self, tensor: int, begin: int, elems: int) -> None:
        self.tensor, self.begin, self.elems = tensor, begin, elems
        self.values: Optional[torch.Tensor] = None  # none before the first step


class Share:
    """The parts that this rank owns, and the optimizer that updates them.

    It has no reference to the averager, whose thread calls it.
    """

    def __init__(self, optimizer: torch.optim.Optimizer,
                 parameters: Sequence[torch.Tensor]) -> None:
        self._parameters = parameters
        # The wrapped optimizer's own step, for parts instead of whole parameters.
        self._optimizer: Any = object.__new__(type(optimizer))
        self._optimizer.__dict__.update(vars(optimizer))
        self._optimizer.state = type(optimizer.state)(dict)
        self._group_of = {parameter: number for number, group in enumerate(optimizer.param_groups)
                          for parameter in group["params"]}
        self._groups: List[Dict[str, Any]] = []
        self.parts: Dict[int, _OwnPart] = {}

    def begin(self, optimizer: torch.optim.Optimizer) -> None:
        """Before an exchange: takes the wrapped optimizer's rates and, once, its state."""
        self._groups = optimizer.param_groups
        if all(part.values is not None for part in self.parts.values()):
            if any(optimizer.state.values()):
                refuse("the optimizer was given a state of whole parameters when its shares had "
                       "begun; load that before the first step")
            return
        for part in self.parts.values():
            parameter = self._parameters[part.tensor]
            state = {name: value.flatten() if _is_by_element(value, parameter.numel()) else value
                     for name, value in optimizer.state[parameter].items()}
            whole = {"values": parameter.detach().flatten(), "state": state}
            self._take(part, [(0, parameter.numel(), whole)])
        optimizer.state.clear()  # of all parameters, on every rank

    def update(self, number: int, mean: "numpy.ndarray[Any, Any]",
               change: "numpy.ndarray[Any, Any]") -> None:
        """The shared model's change under a mean gradient."""
        part = self.parts[number]
        values = part.values
        assert values is not None
        before = values.clone()
        group = self._groups[self._group_of[self._parameters[part.tensor]]]
        self._optimizer.param_groups = [{**group, "params": [values]}]
        values.grad = torch.from_numpy(mean)
        self._optimizer.step()
        values.grad = None
        torch.sub(values, before, out=torch.from_numpy(change))

    def state(self) -> Dict[int, List[Run]]:
        """By tensor: copies."""
        runs: Dict[int, List[Run]] = {}
        for part in self.parts.values():
            if part.values is None:
                continue
            state = {name: value.clone() if isinstance(value, torch.Tensor) else value
                     for name, value in self._optimizer.state[part.values].items()}
            runs.setdefault(part.tensor, []).append(
                (part.begin, part.elems, {"values": part.values.clone(), "state": state}))
        return runs

    def load(self, runs: Dict[int, List[Run]]) -> None:
        """What state() returned on all ranks, or on this one if its parts are the same."""
        for part in self.parts.values():
            self._take(part, runs.get(part.tensor, []))

    def _take(self, part: _OwnPart, runs: Sequence[Run]) -> None:
        end = part.begin + part.elems
        found = sorted((run for run in runs if run[0] < end and run[0] + run[1] > part.begin),
                       key=lambda run: run[0])

        def joined(of_run: Any) -> torch.Tensor:
            pieces = [of_run(run)[max(0, part.begin - run[0]):end - run[0]] for run in found]
            return torch.cat(pieces).float().cpu().clone()

        if sum(min(end, run[0] + run[1]) - max(part.begin, run[0]) for run in found) != part.elems:
            refuse(f"the states lack values of parameter number {part.tensor}; pass those of all "
                   "ranks")
        part.values = joined(lambda run: run[2]["values"]) if found else torch.empty(0)
        state = {}
        for name, value in (found[0][2]["state"] if found else {}).items():
            by_element = _is_by_element(value, found[0][1])
            state[name] = joined(lambda run: run[2]["state"][name]) if by_element else (
                value.clone() if isinstance(value, torch.Tensor) else value)
        self._optimizer.state[part.values] = state


def _is_by_element(value: Any, elems: int) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0 and value.numel() == elems


class ShareAverager(GradientAverager):
    """The `averager` of a DistributedOptimizer with exchange="parameter-server".

    Its average() replaces gradients by the changes that their owners made of the means.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: Sequence[torch.Tensor],
                 infos: Sequence[tersewire.TensorInfo], group: Optional[Group],
                 settings: Settings) -> None:
        for info, parameter in zip(infos, parameters):
            if parameter.dtype is not torch.float32:
                refuse(f"parameter '{info.name}' is {parameter.dtype}, and a share's values are "
                       "float32; keep the model so, and use torch.autocast")
        _refuse_settings(settings)
        self._optimizer = optimizer
        self._share = Share(optimizer, list(parameters))
        self._update = self._share.update
        super().__init__(infos, group, settings)
        self._share.parts = {number: _OwnPart(tensor, begin, elems) for number, (
            tensor, begin, elems, owner) in enumerate(self._worker.parts) if owner == self.rank}

    def average(self, gradients: torch.Tensor, skipped: int = 0) -> None:
        self._share.begin(self._optimizer)
        super().average(gradients, skipped)

    def change(self, **settings: Any) -> None:
        """As GradientAverager.change(), except that the exchange stays."""
        if settings.get("exchange", EXCHANGE) != EXCHANGE:
            refuse("the other ranks would not have this one's share of the optimizer's state; keep "
                   f"exchange {EXCHANGE}")
        _refuse_settings(settings)
        super().change(**settings)

    def state_dict(self) -> Dict[str, Any]:
        """As GradientAverager.state_dict(), and the optimizer's state of this rank's share."""
        return {**super().state_dict(), "shares": {
            self._infos[tensor].name: runs for tensor, runs in self._share.state().items()}}

    def load_state_dict(self, states: Union[Dict[str, Any], Sequence[Dict[str, Any]]]) -> None:
        """As GradientAverager.load_state_dict(), after loading the model."""
        listed = [states] if isinstance(states, dict) else list(states)
        if any("shares" not in state for state in listed):
            refuse(f"a state has no shares; pass what state_dict() returned with exchange {EXCHANGE}")
        super().load_state_dict(states)
        runs: Dict[int, List[Run]] = {}
        for number, info in enumerate(self._infos):
            for state in listed:
                runs.setdefault(number, []).extend(state["shares"].get(info.name, []))
        self._share.load(runs)


def _refuse_settings(settings: Union[Settings, Dict[str, Any]]) -> None:
    given = vars(settings) if isinstance(settings, Settings) else settings
    if given.get("codec") == "auto":
        refuse(f"codec auto does not choose for exchange {EXCHANGE}; name a codec, such as 3lc")
    if given.get("loss_scale") is not None:
        refuse(f"with exchange {EXCHANGE} gradients are unscaled before step(), as "
               "GradScaler.step() does; omit loss_scale")
