"""Everything here uses names that torch does not promise to keep; test_private.py tries each."""

import datetime
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch._C._distributed_c10d import GradBucket
from torch._compile import _disable_dynamo as untraced

__all__ = ["GradBucket", "default_store", "devices_of", "exchanges_nothing", "has_own_hook", "has_step_hooks",
           "make_innermost", "queue_callback", "reduces_in_python", "steps_in_backward",
           "steps_under_way", "timeout_of", "untraced", "uses_of"]


def default_store() -> Any:
    """Where ranks of the default process group meet; None where that has none, as MPI's."""
    return torch.distributed.distributed_c10d._get_default_store()


def devices_of(group: Any) -> list[str]:
    """The types of the devices whose tensors a process group carries; none of one written in Python."""
    return [device.type for device in group._device_types]


def timeout_of(group: Any) -> datetime.timedelta | None:
    """As passed to init_process_group() or new_group(); None for a group written in Python."""
    for device in group._device_types:
        # Public from torch 2.14 on.
        backend = getattr(group, "get_backend", group._get_backend)(device)
        backend = getattr(backend, "wrapped_pg", backend)  # with TORCH_DISTRIBUTED_DEBUG=DETAIL
        limit = getattr(getattr(backend, "options", None), "_timeout", None)
        if isinstance(limit, datetime.timedelta):
            return limit
    return None


def queue_callback(call: Callable[[], None]) -> bool:
    """Has the backward pass under way call it at its end; returns whether there is one."""
    try:
        torch.autograd.Variable._execution_engine.queue_callback(call)  # type: ignore[no-untyped-call]
    except RuntimeError:
        return False
    return True


def uses_of(ddp: torch.nn.parallel.DistributedDataParallel) -> list[int]:
    """How many ranks have used each of its parameters since the last exchange."""
    uses: list[int] = ddp.reducer._get_local_used_map().tolist()
    return uses


def has_own_hook(ddp: torch.nn.parallel.DistributedDataParallel) -> str | None:
    """The name of the communication hook that it has, if any: a copy has lost ours."""
    hooks: list[tuple[Callable[..., Any], object]] = ddp._comm_hooks
    return next((getattr(hook, "__name__", repr(hook)) for hook, state in hooks
                 if state is not None or getattr(hook, "__module__", "") != f"{__package__}._hook"), None)


def reduces_in_python(ddp: torch.nn.parallel.DistributedDataParallel) -> bool:
    """Whether compiled autograd exchanges its gradients, which calls no hook for buckets."""
    return bool(ddp._use_python_reducer)


def exchanges_nothing(ddp: torch.nn.parallel.DistributedDataParallel) -> bool:
    """Whether delay_all_reduce_named_params= has all parameters, so that there are no buckets."""
    return bool(ddp._delay_all_reduce_all_params)


def steps_in_backward(parameter: torch.Tensor) -> bool:
    """Whether an optimizer steps it within the backward pass."""
    return hasattr(parameter, "_in_backward_optimizers")


def has_step_hooks(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it is made as torch's are: wrappers may leave out torch.optim.Optimizer.__init__()."""
    return "_optimizer_step_pre_hooks" in vars(optimizer)


def make_innermost(optimizer: torch.optim.Optimizer, before: Any, after: Any) -> None:
    """Has these be the last of the hooks before its step and the first of those after it."""
    optimizer._optimizer_step_pre_hooks.move_to_end(before.id)  # type: ignore[attr-defined]
    optimizer._optimizer_step_post_hooks.move_to_end(after.id, last=False)  # type: ignore[attr-defined]


def steps_under_way(optimizer: torch.optim.Optimizer) -> int:
    """How many of its step()s a hook of them is called in: a class's may call that of its base."""
    file = torch.optim.Optimizer.profile_hook_step.__code__.co_filename
    found, frame = 0, sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "wrapper" and frame.f_code.co_filename == file:
            found += frame.f_locals.get("self") is optimizer
        frame = frame.f_back  # type: ignore[assignment]
    return found
