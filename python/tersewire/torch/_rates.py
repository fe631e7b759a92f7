"""Learning rates of optimizers that encoded gradients make take smaller steps."""

import contextlib
import weakref
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any

import torch

from ._private import has_step_hooks, make_innermost, untraced
from ._tensors import refuse, say_once

# Parameter groups, by id(), whose rates are multiplied now: a wrapper may share them with another.
_multiplied: set[int] = set()


def innermost(optimizer: Any) -> list[Any]:
    """The optimizers that take its steps: those that it wraps, however deep, or itself."""
    found, seen, waiting = [], set(), [optimizer]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        wrapped = [value for value in vars(one).values()
                   if isinstance(value, torch.optim.Optimizer) and value is not one]
        waiting += wrapped
        found += [] if wrapped else [one]
    return found


def is_adam(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it is Adam, or one that differs in how it decays or where it runs, or wraps one.

    Steps of LAMB and Lion are as long with encoded gradients; others were not tried.
    """
    return all(_is_called(one, "Adam") for one in innermost(optimizer))


def is_muon(optimizer: torch.optim.Optimizer) -> bool:
    """Whether its steps are as long whatever the gradients, since it makes them orthogonal."""
    return all(_is_called(one, "Muon") for one in innermost(optimizer))


def is_adaptive(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it divides by the size of gradients, as Adam does: all but SGD, and its wrappers.

    There are other SGDs than torch's, such as FusedSGD and SGDW.
    """
    return not any(_is_called(one, "SGD") for one in innermost(optimizer))


def _is_called(optimizer: Any, name: str) -> bool:
    return any(name in kind.__name__ for kind in type(optimizer).__mro__)


def groups_of(optimizer: Any) -> list[dict[str, Any]]:
    """Its parameter groups, and those of the optimizers that it wraps."""
    groups = {id(group): group for one in (optimizer, *innermost(optimizer))
              for group in one.param_groups}
    return list(groups.values())


@contextlib.contextmanager
def scaled_rates(gains: Iterable[tuple[dict[str, Any], float]]) -> Iterator[None]:
    """Within it, the learning rates of these parameter groups are multiplied.

    One that is set within it, by an optimizer with a schedule of its own, is so too.
    """
    scaled = [(group, group["lr"], group["lr"] * gain, gain) for group, gain in gains
              if gain != 1 and group.get("lr") is not None and id(group) not in _multiplied]
    ids = {id(group) for group, *_ in scaled}
    _multiplied.update(ids)
    for group, _, multiplied, _ in scaled:
        group["lr"] = multiplied
    try:
        yield
    finally:
        _multiplied.difference_update(ids)
        of_others = {multiplied for _, _, multiplied, _ in scaled}
        for group, own, multiplied, gain in scaled:
            if group["lr"] == multiplied:
                group["lr"] = own
                continue
            is_copied = group["lr"] in of_others  # by a wrapper, from its own groups
            group["lr"] = group["lr"] / gain
            if not is_copied:
                say_once(f"a step() sets its learning rate, which is multiplied by {gain:g} within "
                           "it, so what it has set is divided by that; pass rate_gain=1 if it sets "
                           "what does not depend on the rate before")


def scale_steps(optimizers: Iterable[Any], averager: Any,
                parameters: Container[torch.Tensor]) -> "list[Scaling]":
    """Multiplies learning rates by `averager.rate_gain` within the optimizers' steps: those of
    groups with any of the parameters, in the first step after each of its exchanges."""
    found = []
    for optimizer in optimizers:
        if has_step_hooks(optimizer):
            found.append(_scalings.setdefault(optimizer, Scaling(optimizer)))
            found[-1].serve(averager, parameters)
        elif innermost(optimizer) == [optimizer]:
            say_once(f"a {type(optimizer).__name__} does not call torch.optim.Optimizer.__init__(), "
                     "so its learning rates stay as they are; have it do so")
    return found


class OptimizerHook:
    """A hook of one optimizer. In a copy of that, or in what is read from a file, it does nothing."""

    def __init__(self, call: Callable[..., Any] | None = None) -> None:
        self._call = call

    @untraced
    def __call__(self, *arguments: Any) -> Any:
        return None if self._call is None else self._call(*arguments)

    def __reduce__(self) -> Any:
        return type(self), ()


class Scaling:
    """What scale_steps() does with one optimizer, by hooks of its steps.

    Other hooks of its steps see the rates that the script has set.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._handles: tuple[Any, Any] | None = None
        self._scaled = contextlib.ExitStack()
        # The averagers, by reference, their parameters, and the exchanges that steps have followed.
        self._served: list[tuple[Any, Container[torch.Tensor], int]] = []

    def serve(self, averager: Any, parameters: Container[torch.Tensor]) -> None:
        self._served.append((weakref.ref(averager), parameters, averager._steps_here))
        self.prepare()

    def prepare(self) -> None:
        """Before a step: of its hooks these are the innermost, and a step that failed has had its rates."""
        self._scaled.close()
        optimizer = self._optimizer()
        if optimizer is None:
            return
        if self._handles is None:
            optimizer.register_state_dict_pre_hook(OptimizerHook(lambda _: self._scaled.close()))
            self._handles = (optimizer.register_step_pre_hook(OptimizerHook(self._before)),
                             optimizer.register_step_post_hook(OptimizerHook(self._after)))
        make_innermost(optimizer, *self._handles)

    def _before(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._scaled.close()  # where a step() is within another's
        self._scaled.enter_context(scaled_rates(self._gains(optimizer)))
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if not callable(closure):
            return None

        def own_rates_closure() -> Any:
            self._scaled.close()
            try:
                return closure()
            finally:  # there may have been an exchange
                self._scaled.enter_context(scaled_rates(self._gains(optimizer)))

        if "closure" in kwargs:
            return args, {**kwargs, "closure": own_rates_closure}
        return (args[0], own_rates_closure, *args[2:]), kwargs

    def _after(self, *_: Any) -> None:
        self._scaled.close()
        self._served = [(weakref.ref(averager), parameters, averager._steps_here)
                        for averager, parameters, _ in self._alive()]

    def _gains(self, optimizer: Any) -> list[tuple[dict[str, Any], float]]:
        """Of each group that is to be updated with encoded gradients."""
        fresh = [(parameters, averager.rate_gain) for averager, parameters, steps in self._alive()
                 if averager._steps_here > steps]
        gains = []
        for group in groups_of(optimizer) if fresh else ():
            found = {gain for parameters, gain in fresh
                     if any(parameter in parameters for parameter in group["params"])}
            if len(found) > 1:
                refuse("a parameter group has parameters of models whose codecs need learning rates "
                       f"multiplied by {' and '.join(f'{gain:g}' for gain in sorted(found))}; give "
                       "each model's parameters a group of their own, or pass rate_gain=1")
            gains += [(group, gain) for gain in found]
        return gains

    def _alive(self) -> list[tuple[Any, Container[torch.Tensor], int]]:
        found = [(reference(), parameters, steps) for reference, parameters, steps in self._served]
        return [one for one in found if one[0] is not None]


_scalings: "weakref.WeakKeyDictionary[torch.optim.Optimizer, Scaling]" = weakref.WeakKeyDictionary()
