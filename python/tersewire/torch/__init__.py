"""Compressed gradients for DistributedDataParallel:

    model = torch.nn.parallel.DistributedDataParallel(model)
    hook = tersewire.torch.register(model, "3lc:s=1.75")

docs/python.md has more.
"""

from ._hook import Counters, Hook, register

__all__ = ["Counters", "Hook", "register"]
