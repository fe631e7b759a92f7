"""Learning rates of optimizers that encoded gradients make take smaller steps."""

import contextlib
import functools
import inspect
import logging
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from ._tensors import refuse

_log = logging.getLogger("tersewire")
# Where an optimizer has its _ScaledStep.
_SCALED_STEP = "_tersewire_scaled_step"
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
                _warn_once(f"a step() sets its learning rate, which is multiplied by {gain:g} within "
                           "it, so what it has set is divided by that; pass rate_gain=1 if it sets "
                           "what does not depend on the rate before")


@functools.lru_cache(None)
def _warn_once(sentence: str) -> None:
    _log.warning(sentence)


def scale_steps(optimizers: Iterable[Any], averager: Any) -> None:
    """Multiplies learning rates by `averager.rate_gain` within the optimizers' steps, which others
    call: those of groups with its parameters, in a step after each of its exchanges."""
    for optimizer in optimizers:
        if not isinstance(vars(optimizer).get(_SCALED_STEP), _ScaledStep):
            setattr(optimizer, _SCALED_STEP, _ScaledStep(optimizer))
            optimizer.step = vars(optimizer)[_SCALED_STEP]
        vars(optimizer)[_SCALED_STEP].serve(averager)


def _as_is(step: Any) -> Any:
    return step


class StepInPlace:
    """Takes the place of an optimizer's step(), a method that does not keep the optimizer alive.

    A copy of the optimizer, here or in a file, has what was there before.
    """

    def __init__(self, optimizer: Any) -> None:
        step = optimizer.step
        functools.update_wrapper(self, step)  # keeps the mark of a scheduler
        del self.__wrapped__  # type: ignore[attr-defined]
        self.__signature__ = inspect.signature(step)
        self._optimizer = weakref.ref(optimizer)
        is_own = getattr(step, "__self__", None) is optimizer
        self._step: Callable[..., Any] = step.__func__ if is_own else lambda _, *args, **kwargs: step(
            *args, **kwargs)
        self._before = None if is_own and not isinstance(step, StepInPlace) else step

    def take(self, *args: Any, **kwargs: Any) -> Any:
        """The step that was there before."""
        return self._step(self._optimizer(), *args, **kwargs)

    def __reduce__(self) -> Any:
        if isinstance(self._before, StepInPlace):
            return self._before.__reduce__()
        return _as_is, (self._before or types.MethodType(self._step, self._optimizer()),)

    # As torch's schedulers expect of a method.
    @property
    def __self__(self) -> Any:
        return self._optimizer()

    @property
    def __func__(self) -> Callable[..., Any]:
        return lambda _, *args, **kwargs: self(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


class _ScaledStep(StepInPlace):
    """One that scale_steps() makes."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)
        self._averagers: list[tuple[Any, int]] = []  # by reference; the exchanges that steps followed

    def serve(self, averager: Any) -> None:
        self._averagers.append((weakref.ref(averager), averager._steps_here))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        closure = kwargs.get("closure", args[0] if args else None)
        with contextlib.ExitStack() as scaled:
            def own_rates_closure() -> Any:
                scaled.close()
                try:
                    return closure()
                finally:  # there may have been an exchange
                    scaled.enter_context(scaled_rates(self._gains()))

            if callable(closure) and "closure" in kwargs:
                kwargs["closure"] = own_rates_closure
            elif callable(closure):
                args = own_rates_closure, *args[1:]
            scaled.enter_context(scaled_rates(self._gains()))
            try:
                return self.take(*args, **kwargs)
            finally:
                self._averagers = [(weakref.ref(averager), averager._steps_here)
                                   for averager, _ in self._alive()]

    def _gains(self) -> list[tuple[dict[str, Any], float]]:
        """Of each group that is to be updated with encoded gradients."""
        fresh = [(averager._numbers, averager.rate_gain) for averager, steps in self._alive()
                 if averager._steps_here > steps]
        gains = []
        for group in groups_of(self._optimizer()) if fresh else ():
            found = {gain for numbers, gain in fresh
                     if any(parameter in numbers for parameter in group["params"])}
            if len(found) > 1:
                refuse("a parameter group has parameters of models whose codecs need learning rates "
                       f"multiplied by {' and '.join(f'{gain:g}' for gain in sorted(found))}; give "
                       "each model's parameters a group of their own, or pass rate_gain=1")
            gains += [(group, gain) for gain in found]
        return gains

    def _alive(self) -> list[tuple[Any, int]]:
        found = [(reference(), steps) for reference, steps in self._averagers]
        return [(averager, steps) for averager, steps in found if averager is not None]
