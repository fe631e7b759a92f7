"""A site: ranks that train one model in every step, and exchange with other sites as one."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tersewire import Error

from ._groups import HubGroup, ProcessGroup, packed, unpack
from ._tensors import refuse


class Site:
    """The ranks of a DistributedDataParallel, of which the first exchanges for all.

    group  what this rank was passed: that of the sites' first ranks. Every rank makes this at once
    """

    def __init__(self, model: DistributedDataParallel, group: Any) -> None:
        self._group = ProcessGroup(model.process_group, model.parameters())
        self.leads = self._group.rank == 0
        kinds = self._group._gather(_kind(group))
        if kinds[0] == "none":
            refuse("this model is in DistributedDataParallel, which has its ranks meet in every "
                   "step; pass the model within it, or on rank 0 of each site group=, that of the "
                   "sites' first ranks")
        if any(kind != "none" for kind in kinds[1:]):
            refuse("the first rank of a model's DistributedDataParallel exchanges for all of "
                   "them; on its other ranks omit group=")
        if kinds[0] == "elastic":
            refuse("the ranks of DistributedDataParallel's own process group cannot come and go; "
                   "pass the model within it, or a HubGroup without elastic=True")

    def share(self, exchange: Callable[[], Any], values: Sequence[torch.Tensor],
              follow: bool) -> Any:
        """Has the first rank exchange, and gives the others its result and, if it says that they
        `follow`, `values` after it.

        Where exchange() raises an Error, all ranks do.
        """
        told: list[Any] = [None, None, follow]
        failure = None
        if self.leads:
            try:
                told[0] = exchange()
            except Error as raised:
                failure, told[1] = raised, (int(raised.code), str(raised))
        self._group._broadcast_objects(told, 0)
        if failure is not None:
            raise failure
        if told[1] is not None:
            code, sentence = told[1]
            raise Error(code, f"this site's first rank ended with: {sentence}")
        if told[2]:
            data = packed(values).to(values[0].device)
            dist.broadcast(data, self._group._rank_of_all(0), self._group._group)
            if not self.leads:
                unpack(data, values)
        return told[0]


def _kind(group: Any) -> str:
    if isinstance(group, HubGroup):
        return "elastic" if group.elastic else "hub"
    return "none" if group in (None, dist.GroupMember.NON_GROUP_MEMBER) else "ranks"
