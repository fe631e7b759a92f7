"""Compressed gradients for torch. For a model in DistributedDataParallel:

    model = torch.nn.parallel.DistributedDataParallel(model)
    hook = tersewire.torch.register(model, "3lc")

For one without:

    optimizer = tersewire.torch.DistributedOptimizer(optimizer, model.named_parameters())

docs/python.md has more.
"""

from ._averager import Counters, GradientAverager, summary
from ._hook import Hook, HookState, hook, register
from ._optimizer import DistributedOptimizer, broadcast_optimizer_state, broadcast_parameters

__all__ = [
    "Counters",
    "DistributedOptimizer",
    "GradientAverager",
    "Hook",
    "HookState",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "hook",
    "register",
    "summary",
]
