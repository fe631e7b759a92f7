"""Compressed gradients for torch. For a model in DistributedDataParallel:

    model = torch.nn.parallel.DistributedDataParallel(model)
    hook = tersewire.torch.register(model, "3lc")

For a script of such a model that must not change:

    torchrun --nproc_per_node 4 -m tersewire.torch --codec 3lc train.py

For a model without it:

    optimizer = tersewire.torch.DistributedOptimizer(optimizer, model.named_parameters())

For sites that cannot reach each other, over a hub (docs/deploying.md):

    group = tersewire.torch.HubGroup("hub.example:7100", ranks=4, certs="node3")
    optimizer = tersewire.torch.DistributedOptimizer(optimizer, group=group)

For ranks that train independently and exchange once in a hundred steps:

    local = tersewire.torch.LocalUpdates(model, optimizer, every=100)

or for sites, each a DistributedDataParallel, whose first ranks exchange:

    local = tersewire.torch.LocalUpdates(ddp, optimizer, every=10, delay=2, group=group)

To choose the codec during training:

    hook = tersewire.torch.register(model, "auto")

To know what codecs would do, without changing the training:

    found = tersewire.torch.dry_run(model, ["3lc", "int8"])

docs/python.md has more.
"""

from . import _floor  # noqa: F401 (first: it refuses a torch that the rest does not fit)
from ._averager import Counters, GradientAverager, summary
from ._dry_run import DryRun, dry_run
from ._groups import HubGroup
from ._hook import Hook, HookState, hook, register
from ._local_updates import LocalUpdates
from ._optimizer import (DistributedOptimizer, ElasticAverager, broadcast_optimizer_state,
                         broadcast_parameters)
from ._probe import probe

__all__ = [
    "Counters",
    "DistributedOptimizer",
    "DryRun",
    "ElasticAverager",
    "GradientAverager",
    "Hook",
    "HookState",
    "HubGroup",
    "LocalUpdates",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "dry_run",
    "hook",
    "probe",
    "register",
    "summary",
]
