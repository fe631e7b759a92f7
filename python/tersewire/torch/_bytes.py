"""Collectives over payloads, made of those that a process group has."""

import time
from typing import Any, Callable, List, NamedTuple, Sequence, Tuple

import numpy
import torch
import torch.distributed as dist


class Packed(NamedTuple):
    """Payloads of several parts, from this rank or another. Nothing is checked: decoding does."""

    heads: torch.Tensor  # (parts, 2), int64: codec and length of each
    data: torch.Tensor  # uint8, one payload behind the other

    def arrays(self) -> Tuple[numpy.ndarray, numpy.ndarray]:
        """The same memory; numpy's arrays pass into C++ sooner than tensors."""
        return self.heads.numpy(), self.data.numpy()


class PayloadGroup:
    """A process group that carries payloads. One thread at a time, the same calls on every rank.

    Each call is two collectives: the heads, 16 bytes a payload, then the bytes. What a call returns
    stays until the call after the next.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank = dist.get_rank(group)
        self.ranks = dist.get_world_size(group)
        # To and from other ranks, without what the process group adds.
        self.sent_bytes = 0
        self.received_bytes = 0
        self.seconds = 0.0  # on the clock, in the process group
        # Fresh pages for every message would cost as much as decoding it. The second is free while
        # the first is passed on.
        self._memory = [torch.empty(0, dtype=torch.uint8)] * 2

    def close(self) -> None:
        """Ends the group and its threads."""
        if dist.is_initialized():
            dist.destroy_process_group(self.group)
        del self.group

    def all_gather(self, own: Packed, counts: Sequence[int]) -> List[Packed]:
        """What every rank passed, in the order of ranks; counts says how many payloads each has."""
        everyone = Packed(own.heads.repeat(self.ranks, 1), own.data.repeat(self.ranks))
        return self._exchange(everyone, [len(own.heads)] * self.ranks, counts)

    def all_to_all(self, own: Packed, counts: Sequence[int]) -> List[Packed]:
        """Sends rank i its counts[i] payloads of these; returns what each rank sent to this one."""
        return self._exchange(own, counts, [counts[self.rank]] * self.ranks)

    def pass_on(self, own: Packed, count: int) -> Packed:
        """Sends payloads to the next rank; returns what the one before sent, so many."""
        heads = self._neighbours(own.heads, torch.empty(count, 2, dtype=torch.int64))
        data = self._neighbours(own.data, self._take(_length(heads)))
        return Packed(heads, data)

    def all_reduce(self, values: torch.Tensor, operation: dist.ReduceOp) -> None:
        """Replaces values on every rank by their sums or maxima. Counted as in a ring."""
        self._call(dist.all_reduce, values, operation)
        size = 2 * (self.ranks - 1) * values.numel() * values.element_size() // self.ranks
        self._count(size, size)

    def _neighbours(self, outgoing: torch.Tensor, incoming: torch.Tensor) -> torch.Tensor:
        after = dist.get_global_rank(self.group, (self.rank + 1) % self.ranks)
        before = dist.get_global_rank(self.group, (self.rank - 1) % self.ranks)
        # An empty message is not sent: both sides know its length.
        sending = [self._call(dist.isend, outgoing, after)] if len(outgoing) else []
        if len(incoming):
            self._call(dist.recv, incoming, before)
        for sent in sending:
            sent.wait()
        self._count(outgoing.numel() * outgoing.element_size(),
                    incoming.numel() * incoming.element_size())
        return incoming

    # Gathering too is all to all: an all-gather goes around in rings, a hop after the other, and
    # has messages of one length.
    def _exchange(self, own: Packed, sent: Sequence[int], received: Sequence[int]) -> List[Packed]:
        """Sends rank i its sent[i] payloads, in turn; returns the received[i] payloads of each."""
        heads = torch.empty(sum(received), 2, dtype=torch.int64)
        self._all_to_all(heads, own.heads, received, sent)
        from_each = heads.split(list(received))
        incoming = [_length(head) for head in from_each]
        data = self._take(sum(incoming))
        outgoing = [_length(head) for head in own.heads.split(list(sent))]
        self._all_to_all(data, own.data, incoming, outgoing)
        return [Packed(head, part) for head, part in zip(from_each, data.split(incoming))]

    def _all_to_all(self, incoming: torch.Tensor, outgoing: torch.Tensor,
                    received: Sequence[int], sent: Sequence[int]) -> None:
        """Rows of tensors: received[i] from rank i and sent[i] to it."""
        self._call(dist.all_to_all_single, incoming, outgoing, list(received), list(sent))
        row_bytes = outgoing.stride(0) * outgoing.element_size()
        self._count(row_bytes * (sum(sent) - sent[self.rank]),
                    row_bytes * (sum(received) - received[self.rank]))

    def _take(self, length: int) -> torch.Tensor:
        self._memory.reverse()
        if len(self._memory[0]) < length:
            self._memory[0] = torch.empty(length, dtype=torch.uint8)
        return self._memory[0][:length]

    def _call(self, collective: Callable[..., Any], *arguments: Any) -> Any:
        begin = time.perf_counter()
        result = collective(*arguments, group=self.group)
        self.seconds += time.perf_counter() - begin
        return result

    def _count(self, sent: int, received: int) -> None:
        self.sent_bytes += sent
        self.received_bytes += received


def _length(heads: torch.Tensor) -> int:
    return sum(heads[:, 1].tolist())
