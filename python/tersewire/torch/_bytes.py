"""Collectives over payloads, made of the messages from rank to rank that a process group has."""

import time
from typing import Dict, List, Sequence

import numpy
import torch
import torch.distributed as dist

from tersewire import Error, ErrorCode
from tersewire._core import _PackedParts as Packed

# No bucket's payloads are longer; what says so is damaged.
_MAX_BYTES = 1 << 40


class PayloadGroup:
    """A process group that carries payloads. One thread at a time, the same calls on every rank.

    Two messages go to each rank that gets payloads: their heads, 16 bytes each, then the bytes. A
    rank's own payloads stay where they are. What came stays until the call after the next.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank = dist.get_rank(group)
        self.ranks = dist.get_world_size(group)
        self._global_ranks = [dist.get_global_rank(group, rank) for rank in range(self.ranks)]
        # In the order in which they are served: not all ranks begin with the same one.
        self._others = [(self.rank + hop) % self.ranks for hop in range(1, self.ranks)]
        # To and from other ranks, without what the process group adds.
        self.sent_bytes = 0
        self.received_bytes = 0
        self.seconds = 0.0  # on the clock, in the process group
        # Fresh pages for every message would cost as much as decoding it. The second is free while
        # the first is passed on.
        self._memory = [numpy.empty(0, numpy.uint8)] * 2

    def close(self) -> None:
        """Ends the group and its threads."""
        if dist.is_initialized():
            dist.destroy_process_group(self.group)
        del self.group

    def all_gather(self, own: Packed, counts: Sequence[int]) -> List[Packed]:
        """What every rank passed, in the order of ranks; counts says how many payloads each has."""
        if self.ranks == 1:
            return [own]
        return self._exchange([own] * self.ranks, counts)

    def all_to_all(self, own: Packed, counts: Sequence[int]) -> List[Packed]:
        """Sends rank i its counts[i] payloads of these; returns what each rank sent to this one."""
        if self.ranks == 1:
            return [own]
        return self._exchange(own.split(counts), [counts[self.rank]] * self.ranks)

    def pass_on(self, own: Packed, count: int) -> Packed:
        """Sends payloads to the next rank; returns what the one before sent, so many."""
        after, before = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
        return self._swap({after: own}, {before: count})[before]

    def all_reduce(self, values: torch.Tensor, operation: dist.ReduceOp) -> None:
        """Replaces values on every rank by their sums or maxima. Counted as in a ring."""
        begin = time.perf_counter()
        dist.all_reduce(values, operation, group=self.group)
        self.seconds += time.perf_counter() - begin
        size = 2 * (self.ranks - 1) * values.numel() * values.element_size() // self.ranks
        self.sent_bytes += size
        self.received_bytes += size

    def _exchange(self, outgoing: Sequence[Packed], counts: Sequence[int]) -> List[Packed]:
        """Sends rank i outgoing[i]; returns the counts[i] payloads that it sent."""
        arrived = self._swap({rank: outgoing[rank] for rank in self._others},
                             {rank: counts[rank] for rank in self._others})
        arrived[self.rank] = outgoing[self.rank]
        return [arrived[rank] for rank in range(self.ranks)]

    def _swap(self, outgoing: Dict[int, Packed], counts: Dict[int, int]) -> Dict[int, Packed]:
        """Sends payloads and receives so many, by rank."""
        # Not by collectives: an all-to-all takes a copy for each of what is for everyone, and an
        # all-gather goes around in rings, a hop after the other.
        heads = {rank: numpy.empty((count, 2), numpy.int64) for rank, count in counts.items()}
        self._send_and_receive(
            {rank: numpy.frombuffer(packed.heads, numpy.int64)
             for rank, packed in outgoing.items()}, heads)
        lengths = {rank: _length_from(rank, numbers) for rank, numbers in heads.items()}
        memory, data = self._take(sum(lengths.values())), {}
        for rank, length in lengths.items():
            data[rank], memory = memory[:length], memory[length:]
        self._send_and_receive(
            {rank: numpy.frombuffer(packed, numpy.uint8) for rank, packed in outgoing.items()},
            data)
        return {rank: Packed(heads[rank], data[rank]) for rank in counts}

    def _send_and_receive(self, outgoing: Dict[int, numpy.ndarray],
                          incoming: Dict[int, numpy.ndarray]) -> None:
        """An empty message is not sent: both sides know its length."""
        begin = time.perf_counter()
        works = []
        for rank, array in incoming.items():
            if array.size:
                works.append(dist.irecv(torch.from_numpy(array), self._global_ranks[rank],
                                        group=self.group))
            self.received_bytes += array.nbytes
        for rank, array in outgoing.items():
            if array.size:
                works.append(dist.isend(torch.from_numpy(array), self._global_ranks[rank],
                                        group=self.group))
            self.sent_bytes += array.nbytes
        for work in works:
            work.wait()
        self.seconds += time.perf_counter() - begin

    def _take(self, length: int) -> numpy.ndarray:
        self._memory.reverse()
        if len(self._memory[0]) < length:
            self._memory[0] = numpy.empty(length, numpy.uint8)
        return self._memory[0][:length]


def _length_from(rank: int, heads: numpy.ndarray) -> int:
    """Bytes of the payloads that another rank says that it sends, which may be anything."""
    lengths = heads[:, 1].tolist()
    if min(lengths, default=0) < 0 or sum(lengths) > _MAX_BYTES:
        raise Error(ErrorCode.kDataLoss,
                    f"rank {rank} sent lengths that no payloads have; give every rank the same "
                    "model, settings and version of tersewire")
    return sum(lengths)
