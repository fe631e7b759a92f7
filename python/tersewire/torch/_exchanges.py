"""Who sends what to whom, for a bucket of gradients."""

import time
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

import torch

import tersewire

from ._bytes import PayloadGroup
from ._parts import Part, elems_of, shards, whole_parts

# A part of a bucket, and its values, which lie in the bucket.
Stretch = Tuple[Part, torch.Tensor]


class Direction:
    """Encoders for one direction, one for each part, and what they made."""

    def __init__(self, parts: Iterable[Part], codecs: Sequence[tersewire.Codec], seed: int,
                 sender: int, infos: Sequence[tersewire.TensorInfo]) -> None:
        self.parts = list(parts)
        self.encoded_bytes: Dict[int, int] = {part.number: 0 for part in self.parts}
        self.not_finite = 0
        self.seconds = 0.0
        self.encoders = {
            part.number: codecs[part.parameter].encoder(
                part.elems, seed=seed, sender=sender, tensor=part.number,
                kind=infos[part.parameter].kind)
            for part in self.parts
        }
        fp32 = tersewire.Codec("fp32")
        self._raw = {part.number: fp32.encoder(part.elems) for part in self.parts}

    def encode(self, step: int, stretches: Sequence[Stretch],
               raw: bool) -> List[tersewire.Payload]:
        """raw: the values as they are, residuals left alone."""
        begin = time.perf_counter()
        encoders = self._raw if raw else self.encoders
        payloads = [encoders[part.number].encode(values, step) for part, values in stretches]
        self.seconds += time.perf_counter() - begin
        for (part, _), payload in zip(stretches, payloads):
            self.encoded_bytes[part.number] += len(payload)
            self.not_finite += payload.not_finite
        return payloads

    def residual(self, part: Part) -> Optional[torch.Tensor]:
        """Shares memory; None where the part's codec keeps none."""
        residual = self.encoders[part.number].residual
        return None if residual is None else torch.from_numpy(residual)


class Exchange:
    """What exchanges have: encoders by direction, all parts, and the time that decoding took."""

    def __init__(self, group: PayloadGroup, parts: List[Part], push: Direction) -> None:
        self.group = group
        self.parts = parts
        self.push = push
        self.directions = {"pushed": push}
        self.decode_seconds = 0.0

    @staticmethod
    def check_codecs(codecs: Sequence[tersewire.Codec]) -> None:
        """Raises Error (kInvalidArgument) for a codec that the exchange cannot have."""

    def mean(self, step: int, stretches: Sequence[Stretch], raw: bool) -> None:
        """Replaces a bucket's values by their mean over all ranks, as the exchange has it."""
        raise NotImplementedError

    def _add_up(self, received: Sequence[Sequence[tersewire.Payload]],
                stretches: Sequence[Stretch]) -> None:
        """The mean of what came, added up in the order of ranks."""
        begin = time.perf_counter()
        for index, (_, values) in enumerate(stretches):
            values.zero_()
            for payloads in received:
                tersewire.decode_add(payloads[index], 1 / len(received), values)
        self.decode_seconds += time.perf_counter() - begin

    def _add(self, payloads: Sequence[tersewire.Payload], stretches: Sequence[Stretch]) -> None:
        begin = time.perf_counter()
        for payload, (_, values) in zip(payloads, stretches):
            tersewire.decode_add(payload, 1.0, values)
        self.decode_seconds += time.perf_counter() - begin

    def _replace(self, payloads: Sequence[tersewire.Payload], stretches: Sequence[Stretch]) -> None:
        begin = time.perf_counter()
        for payload, (_, values) in zip(payloads, stretches):
            tersewire.decode(payload, values)
        self.decode_seconds += time.perf_counter() - begin


class AllGather(Exchange):
    """Every rank sends its encoded gradients to every other (AdaComp, "Methodology")."""

    def __init__(self, group: PayloadGroup, infos: Sequence[tersewire.TensorInfo],
                 codecs: Sequence[tersewire.Codec], seed: int) -> None:
        parts = whole_parts([elems_of(info) for info in infos])
        super().__init__(group, parts, Direction(parts, codecs, seed, group.rank, infos))

    def mean(self, step: int, stretches: Sequence[Stretch], raw: bool) -> None:
        payloads = self.push.encode(step, stretches, raw)
        self._add_up(self.group.all_gather(payloads, [len(payloads)] * self.group.ranks), stretches)


class ShardedServer(Exchange):
    """Every rank serves one shard: it averages what all push and sends the mean, encoded once.

    3LC's shared compressed pulls without a server machine: what a rank sends does not grow with
    their number.
    """

    def __init__(self, group: PayloadGroup, infos: Sequence[tersewire.TensorInfo],
                 codecs: Sequence[tersewire.Codec], seed: int) -> None:
        parts = shards([elems_of(info) for info in infos], group.ranks)
        super().__init__(group, parts, Direction(parts, codecs, seed, group.rank, infos))
        own = [part for part in parts if part.owner == group.rank]
        # Ranks draw other random numbers as servers.
        self.pull = Direction(own, codecs, seed, group.ranks + group.rank, infos)
        self.directions["pulled"] = self.pull

    def mean(self, step: int, stretches: Sequence[Stretch], raw: bool) -> None:
        shard = [[stretch for stretch in stretches if stretch[0].owner == rank]
                 for rank in range(self.group.ranks)]
        pushed = self.group.all_to_all(
            [self.push.encode(step, served, raw) for served in shard])
        # What was pushed is in the payloads: the mean takes the place of this rank's own values.
        own = shard[self.group.rank]
        self._add_up(pushed, own)
        pulled = self.group.all_gather(self.pull.encode(step, own, raw), list(map(len, shard)))
        for payloads, served in zip(pulled, shard):
            self._replace(payloads, served)
