"""Collectives over bytes of unequal lengths, made of those that a process group has."""

from typing import List, Sequence

import numpy
import torch
import torch.distributed as dist


class ByteGroup:
    """A process group that carries bytes. One thread at a time, the same calls on every rank."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank = dist.get_rank(group)
        self.ranks = dist.get_world_size(group)
        self.sent_bytes = 0
        self.received_bytes = 0

    def all_gather(self, data: bytes) -> List[torch.Tensor]:
        """What every rank passed, in the order of ranks, as uint8."""
        lengths = self._table([len(data)])[:, 0].tolist()
        padded = _as_tensor([data], max(lengths))
        gathered = [torch.empty_like(padded) for _ in lengths]
        dist.all_gather(gathered, padded, group=self.group)
        self._count((self.ranks - 1) * len(padded))
        return [whole[:length] for whole, length in zip(gathered, lengths)]

    def all_to_all(self, messages: Sequence[bytes]) -> List[torch.Tensor]:
        """Sends message i to rank i; returns what came, in the order of ranks, as uint8."""
        lengths = [len(message) for message in messages]
        incoming = self._table(lengths)[:, self.rank].tolist()
        received = torch.empty(sum(incoming), dtype=torch.uint8)
        dist.all_to_all_single(received, _as_tensor(messages, sum(lengths)), incoming, lengths,
                               group=self.group)
        self.sent_bytes += sum(lengths) - lengths[self.rank]
        self.received_bytes += sum(incoming) - incoming[self.rank]
        return list(received.split(incoming))

    def _count(self, both_ways: int) -> None:
        self.sent_bytes += both_ways
        self.received_bytes += both_ways

    def _table(self, numbers: List[int]) -> torch.Tensor:
        """A row of as many numbers from each rank."""
        row = torch.tensor(numbers, dtype=torch.int64)
        rows = [torch.empty_like(row) for _ in range(self.ranks)]
        dist.all_gather(rows, row, group=self.group)
        self._count((self.ranks - 1) * row.numel() * row.element_size())
        return torch.stack(rows)


def _as_tensor(messages: Sequence[bytes], length: int) -> torch.Tensor:
    """The messages behind each other; what is left of the length may hold anything."""
    joined = numpy.empty(length, numpy.uint8)
    begin = 0
    for message in messages:
        joined[begin:begin + len(message)] = numpy.frombuffer(message, numpy.uint8)
        begin += len(message)
    return torch.from_numpy(joined)
