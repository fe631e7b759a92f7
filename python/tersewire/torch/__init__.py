"""Compressed gradients for torch. For a model in DistributedDataParallel:

    model = torch.nn.parallel.DistributedDataParallel(model)
    hook = tersewire.torch.register(model, "3lc")

For one without:

    optimizer = tersewire.torch.DistributedOptimizer(optimizer, model.named_parameters())

For ranks that train by themselves and meet once in a hundred steps:

    local = tersewire.torch.LocalUpdates(model, optimizer, every=100)

docs/python.md has more.
"""

from ._averager import Counters, GradientAverager, summary
from ._hook import Hook, HookState, hook, register
from ._local_updates import LocalUpdates
from ._optimizer import DistributedOptimizer, broadcast_optimizer_state, broadcast_parameters

__all__ = [
    "Counters",
    "DistributedOptimizer",
    "GradientAverager",
    "Hook",
    "HookState",
    "LocalUpdates",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "hook",
    "register",
    "summary",
]
