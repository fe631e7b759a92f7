"""Collectives over payloads, made of those that a process group has."""

from typing import List, Sequence

import numpy
import torch
import torch.distributed as dist

import tersewire

_NAMES = {codec.id: codec.name for codec in tersewire.codecs()}
_NUMBERS = {name: number for number, name in _NAMES.items()}


class PayloadGroup:
    """A process group that carries payloads. One thread at a time, the same calls on every rank.

    Each call is two collectives: a head of 16 bytes a payload (codec and length), then the bytes.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank = dist.get_rank(group)
        self.ranks = dist.get_world_size(group)
        # To and from other ranks, without what the process group adds.
        self.sent_bytes = 0
        self.received_bytes = 0

    def close(self) -> None:
        """Ends the group and its threads."""
        if dist.is_initialized():
            dist.destroy_process_group(self.group)
        del self.group

    def all_gather(self, payloads: Sequence[tersewire.Payload],
                   counts: Sequence[int]) -> List[List[tersewire.Payload]]:
        """What every rank passed, in the order of ranks; counts says how many payloads each has."""
        heads = [head[:count] for head, count in zip(self._heads(payloads, max(counts)), counts)]
        lengths = [int(head[:, 1].sum()) for head in heads]
        padded = _joined(payloads, max(lengths))
        gathered = [torch.empty_like(padded) for _ in heads]
        dist.all_gather(gathered, padded, group=self.group)
        self._count((self.ranks - 1) * len(padded), (self.ranks - 1) * len(padded))
        return [_payloads(data, head) for data, head in zip(gathered, heads)]

    def all_to_all(
            self,
            payloads: Sequence[Sequence[tersewire.Payload]]) -> List[List[tersewire.Payload]]:
        """Sends payloads[i] to rank i, as many as the others send it; returns what each sent."""
        all_payloads = [payload for to_one in payloads for payload in to_one]
        begin = sum(len(to_one) for to_one in payloads[:self.rank])
        end = begin + len(payloads[self.rank])
        heads = self._heads(all_payloads, len(all_payloads))[:, begin:end]
        incoming = heads[:, :, 1].sum(1).tolist()
        outgoing = [sum(map(len, to_one)) for to_one in payloads]
        received = torch.empty(sum(incoming), dtype=torch.uint8)
        dist.all_to_all_single(received, _joined(all_payloads, sum(outgoing)), incoming, outgoing,
                               group=self.group)
        self._count(sum(outgoing) - outgoing[self.rank], sum(incoming) - incoming[self.rank])
        return [_payloads(data, head) for data, head in zip(received.split(incoming), heads)]

    def pass_on(self, payloads: Sequence[tersewire.Payload],
                count: int) -> List[tersewire.Payload]:
        """Sends payloads to the next rank; returns what the one before sent, so many."""
        joined = _joined(payloads, sum(map(len, payloads)))
        head = self._neighbours(_head(payloads, len(payloads)), torch.empty(
            count, 2, dtype=torch.int64))
        length = int(head[:, 1].sum())
        received = self._neighbours(joined, torch.empty(length, dtype=torch.uint8))
        return _payloads(received, head)

    def all_reduce(self, values: torch.Tensor, operation: dist.ReduceOp) -> None:
        """Replaces values on every rank by their sums or maxima. Counted as in a ring."""
        dist.all_reduce(values, operation, group=self.group)
        size = 2 * (self.ranks - 1) * values.numel() * values.element_size() // self.ranks
        self._count(size, size)

    def _neighbours(self, outgoing: torch.Tensor, incoming: torch.Tensor) -> torch.Tensor:
        # An empty message is not sent: both sides know its length.
        after = dist.get_global_rank(self.group, (self.rank + 1) % self.ranks)
        before = dist.get_global_rank(self.group, (self.rank - 1) % self.ranks)
        sending = [dist.isend(outgoing, after, group=self.group)] if len(outgoing) else []
        if len(incoming):
            dist.recv(incoming, before, group=self.group)
        for sent in sending:
            sent.wait()
        self._count(outgoing.numel() * outgoing.element_size(),
                    incoming.numel() * incoming.element_size())
        return incoming

    def _heads(self, payloads: Sequence[tersewire.Payload], count: int) -> torch.Tensor:
        """(ranks, count, 2): codec and length of every rank's payloads, zeros after the last."""
        own = _head(payloads, count)
        heads = [torch.empty_like(own) for _ in range(self.ranks)]
        dist.all_gather(heads, own, group=self.group)
        head_bytes = (self.ranks - 1) * own.numel() * own.element_size()
        self._count(head_bytes, head_bytes)
        return torch.stack(heads)

    def _count(self, sent: int, received: int) -> None:
        self.sent_bytes += sent
        self.received_bytes += received


def _head(payloads: Sequence[tersewire.Payload], count: int) -> torch.Tensor:
    """(count, 2): codec and length of each payload, zeros after the last."""
    head = torch.zeros(count, 2, dtype=torch.int64)
    for row, payload in zip(head.numpy(), payloads):
        row[:] = _NUMBERS[payload.codec], len(payload)
    return head


def _joined(payloads: Sequence[tersewire.Payload], length: int) -> torch.Tensor:
    """The payloads behind each other; what is left of the length may hold anything."""
    joined = numpy.empty(length, numpy.uint8)
    begin = 0
    for payload in payloads:
        joined[begin:begin + len(payload)] = numpy.asarray(payload)
        begin += len(payload)
    return torch.from_numpy(joined)


def _payloads(joined: torch.Tensor, head: torch.Tensor) -> List[tersewire.Payload]:
    """The inverse; they share the memory."""
    begin = 0
    found = []
    for codec, length in head.tolist():
        found.append(tersewire.Payload(_NAMES.get(codec, str(codec)), joined[begin:begin + length]))
        begin += length
    return found
