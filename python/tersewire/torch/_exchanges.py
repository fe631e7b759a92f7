"""Who sends what to whom, for a bucket of gradients."""

import time
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

import numpy
import torch

import tersewire
from tersewire import _core

from ._bytes import Packed, PayloadGroup
from ._parts import BucketLayout, Layout, Part, elems_of, shards, whole_parts


class Direction:
    """Encoders for one direction, one for each part, and what they made."""

    def __init__(self, parts: Iterable[Part], codecs: Sequence[tersewire.Codec], seed: int,
                 sender: int, infos: Sequence[tersewire.TensorInfo],
                 pool: Optional[tersewire.ThreadPool]) -> None:
        self.parts = list(parts)
        self._pool = pool
        self.seconds = 0.0
        self.encoders = {
            part.number: codecs[part.parameter].encoder(
                part.elems, seed=seed, sender=sender, tensor=part.number,
                kind=infos[part.parameter].kind)
            for part in self.parts
        }
        fp32 = tersewire.Codec("fp32")
        self._raw = {part.number: fp32.encoder(part.elems) for part in self.parts}
        self._memory = _core._PayloadMemory()
        # Layouts are few and live as long as this.
        self._prepared: Dict[Tuple[Layout, bool], _core._PartEncoders] = {}

    def encode(self, step: int, values: numpy.ndarray, layout: Layout, raw: bool,
               mean_of: Optional[Sequence[Packed]] = None) -> Packed:
        """raw: the values as they are, residuals left alone.

        mean_of  what ranks sent: its mean takes the values' place before
        """
        begin = time.perf_counter()
        encoders = self._encoders_of(layout, raw)
        if mean_of is None:
            packed = encoders.encode(values, step)
        else:
            packed = encoders.encode_mean(mean_of, values, step)
        self.seconds += time.perf_counter() - begin
        return packed

    @property
    def not_finite(self) -> int:
        """How many encodings were of a NaN or an infinity."""
        return sum(prepared.not_finite for prepared in self._prepared.values())

    @property
    def encoded_bytes(self) -> Dict[int, int]:
        """Of each part, by its number, in all steps."""
        total = {part.number: 0 for part in self.parts}
        for (layout, _), prepared in self._prepared.items():
            for part, encoded in zip(layout.parts, prepared.encoded_bytes):
                total[part.number] += encoded
        return total

    def _encoders_of(self, layout: Layout, raw: bool) -> _core._PartEncoders:
        key = layout, raw
        if key not in self._prepared:
            encoders = self._raw if raw else self.encoders
            self._prepared[key] = _core._PartEncoders(
                [encoders[part.number] for part in layout.parts], layout.begins, self._memory,
                self._pool)
        return self._prepared[key]

    def residual(self, part: Part) -> Optional[torch.Tensor]:
        """Shares memory; None where the part's codec keeps none."""
        residual = self.encoders[part.number].residual
        return None if residual is None else torch.from_numpy(residual)


class Exchange:
    """What exchanges have: encoders by direction, all parts, and the time that decoding took."""

    def __init__(self, group: PayloadGroup, parts: List[Part], push: Direction,
                 pool: Optional[tersewire.ThreadPool]) -> None:
        self.group = group
        self._pool = pool
        self.parts = parts
        self.push = push
        self.directions = {"pushed": push}
        self.decode_seconds = 0.0

    @property
    def not_finite(self) -> int:
        """How many encodings were of a NaN or an infinity."""
        return sum(direction.not_finite for direction in self.directions.values())

    @property
    def pushed_bytes(self) -> Dict[int, int]:
        """Of each part's gradients, by its number, in all steps."""
        return self.push.encoded_bytes

    @staticmethod
    def check_codecs(codecs: Sequence[tersewire.Codec]) -> None:
        """Raises Error (kInvalidArgument) for a codec that the exchange cannot have."""

    def mean(self, step: int, values: numpy.ndarray, layout: BucketLayout, raw: bool) -> None:
        """Replaces a bucket's values by their mean over all ranks, as the exchange has it."""
        raise NotImplementedError

    def _add(self, received: Sequence[Packed], weight: float, values: numpy.ndarray, layout: Layout,
             from_zero: bool = False) -> None:
        """Weight times what came, in the order of ranks; from_zero: in the values' place."""
        begin = time.perf_counter()
        _core._add_parts(received, weight, values, layout.stretches, from_zero, self._pool)
        self.decode_seconds += time.perf_counter() - begin

    def _replace(self, packed: Packed, values: numpy.ndarray, layout: Layout) -> None:
        begin = time.perf_counter()
        _core._decode_parts(packed, values, layout.stretches, self._pool)
        self.decode_seconds += time.perf_counter() - begin


class AllGather(Exchange):
    """Every rank sends its encoded gradients to every other (AdaComp, "Methodology")."""

    def __init__(self, group: PayloadGroup, infos: Sequence[tersewire.TensorInfo],
                 codecs: Sequence[tersewire.Codec], seed: int,
                 pool: Optional[tersewire.ThreadPool]) -> None:
        parts = whole_parts([elems_of(info) for info in infos])
        super().__init__(group, parts, Direction(parts, codecs, seed, group.rank, infos, pool),
                         pool)

    def mean(self, step: int, values: numpy.ndarray, layout: BucketLayout, raw: bool) -> None:
        packed = self.push.encode(step, values, layout, raw)
        received = self.group.all_gather(packed, [len(layout)] * self.group.ranks)
        self._add(received, 1 / len(received), values, layout, from_zero=True)


class ShardedServer(Exchange):
    """Every rank serves one shard: it averages what all push and sends the mean, encoded once.

    3LC's shared compressed pulls without a server machine: what a rank sends does not grow with
    their number.
    """

    def __init__(self, group: PayloadGroup, infos: Sequence[tersewire.TensorInfo],
                 codecs: Sequence[tersewire.Codec], seed: int,
                 pool: Optional[tersewire.ThreadPool]) -> None:
        parts = shards([elems_of(info) for info in infos], group.ranks)
        super().__init__(group, parts, Direction(parts, codecs, seed, group.rank, infos, pool),
                         pool)
        own = [part for part in parts if part.owner == group.rank]
        # Ranks draw other random numbers as servers.
        self.pull = Direction(own, codecs, seed, group.ranks + group.rank, infos, pool)
        self.directions["pulled"] = self.pull

    def mean(self, step: int, values: numpy.ndarray, layout: BucketLayout, raw: bool) -> None:
        pushed = self.group.all_to_all(self.push.encode(step, values, layout, raw), layout.counts)
        # What was pushed is in the payloads: the mean takes the place of this rank's own values.
        own = layout.shards[self.group.rank]
        mean = self.pull.encode(step, values, own, raw, mean_of=pushed)
        pulled = self.group.all_gather(mean, layout.counts)
        for packed, served in zip(pulled, layout.shards):
            self._replace(packed, values, served)
