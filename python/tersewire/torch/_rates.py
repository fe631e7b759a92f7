"""Learning rates of optimizers that encoded gradients make take smaller steps."""

import contextlib
import functools
import types
from typing import Any, Callable, Iterator, Sequence

import torch


def is_adam(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it is Adam, or one that differs in how it decays or where it runs, or has one.

    Steps of LAMB and Lion are as long with encoded gradients; others were not tried.
    """
    wrapped = [getattr(optimizer, name, None) for name in ("optimizer", "optim")]
    return any("Adam" in kind.__name__ for one in (optimizer, *wrapped)
               for kind in type(one).__mro__)


@contextlib.contextmanager
def scaled_rates(groups: Sequence[Any], gain: float) -> Iterator[None]:
    """Within it, the learning rates of these parameter groups are multiplied by `gain`.

    One that is set within it, by an optimizer with a schedule of its own, is so too.
    """
    scaled = [group for group in groups if gain != 1 and group.get("lr") is not None]
    rates = [(group["lr"], group["lr"] * gain) for group in scaled]
    for group, (_, multiplied) in zip(scaled, rates):
        group["lr"] = multiplied
    try:
        yield
    finally:
        for group, (own, multiplied) in zip(scaled, rates):
            group["lr"] = own if group["lr"] == multiplied else group["lr"] / gain


def scale_steps(optimizers: Sequence[Any], gain: Callable[[], float]) -> None:
    """Multiplies the learning rates of optimizers that others call, within their steps.

    As torch's schedulers do, it puts a step() into each optimizer that calls the one it had.
    """
    within = False  # one that wraps another gives it its rates

    def wrapped(step: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(getattr(step, "__func__", step))
        def scaled_step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal within
            if within:
                return step(*args, **kwargs)
            within = True
            try:
                with scaled_rates(optimizer.param_groups, gain()):
                    return step(*args, **kwargs)
            finally:
                within = False

        return scaled_step

    for optimizer in optimizers:
        # A method, as schedulers that are made later expect.
        optimizer.step = types.MethodType(wrapped(optimizer.step), optimizer)
