"""Who sends what to whom, for a bucket of gradients."""

import time
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

import torch

import tersewire
from tersewire import Error, ErrorCode

from ._bytes import ByteGroup
from ._parts import Part, shards, whole_parts

# A part of a bucket: where its values lie.
Stretch = Tuple[Part, torch.Tensor]


class Direction:
    """Encoders for one direction, one for each part, and what they made."""

    def __init__(self, parts: Iterable[Part], codecs: Sequence[tersewire.Codec], seed: int,
                 sender: int, infos: Sequence[tersewire.TensorInfo]) -> None:
        self.parts = list(parts)
        self.encoded_bytes: Dict[int, int] = {part.number: 0 for part in self.parts}
        self.not_finite = 0
        self.seconds = 0.0
        self._encoders = {
            part.number: codecs[part.parameter].encoder(
                part.elems, seed=seed, sender=sender, tensor=part.number,
                kind=infos[part.parameter].kind)
            for part in self.parts
        }
        fp32 = tersewire.Codec("fp32")
        self._raw = {part.number: fp32.encoder(part.elems) for part in self.parts}

    def message(self, kind: str, sender: int, step: int, stretches: Sequence[Stretch],
                raw: bool) -> bytes:
        """Encodes the values and packs them; raw: as they are, residuals left alone."""
        begin = time.perf_counter()
        frames = []
        for part, values in stretches:
            encoder = (self._raw if raw else self._encoders)[part.number]
            payload = encoder.encode(values, step)
            self.encoded_bytes[part.number] += len(payload)
            self.not_finite += payload.not_finite
            frames.append(tersewire.Frame(part.number, payload))
        packed = tersewire.pack(kind, frames, sender=sender, step=step)
        self.seconds += time.perf_counter() - begin
        return packed

    def residual(self, part: Part) -> Optional[torch.Tensor]:
        """Shares memory; None where the part's codec keeps none."""
        residual = self._encoders[part.number].residual
        return None if residual is None else torch.from_numpy(residual)


def _frames(data: torch.Tensor, sender: int, step: int,
            parts: Sequence[Part]) -> List[tersewire.Frame]:
    """The frames of a message, which must be of this step and about these parts."""
    message = tersewire.parse(data)
    if message.step != step or message.sender != sender or [
            frame.tensor for frame in message.frames] != [part.number for part in parts]:
        raise Error(ErrorCode.kDataLoss, f"what came from rank {sender} in step {step} is not about "
                    "the bucket that is due; give every rank the same model and settings")
    return message.frames


class AllGather:
    """Every rank sends its encoded gradients to every other (AdaComp, "Methodology")."""

    def __init__(self, group: ByteGroup, infos: Sequence[tersewire.TensorInfo],
                 codecs: Sequence[tersewire.Codec], seed: int) -> None:
        self.group = group
        self.parts = whole_parts([_elems(info) for info in infos])
        self.push = Direction(self.parts, codecs, seed, group.rank, infos)
        self.directions = {"pushed": self.push}
        self.decode_seconds = 0.0

    def mean(self, step: int, stretches: Sequence[Stretch], raw: bool) -> None:
        """Replaces the values by their mean over all ranks, added up in the order of ranks."""
        sent = self.push.message("push", self.group.rank, step, stretches, raw)
        received = self.group.all_gather(sent)
        begin = time.perf_counter()
        for _, values in stretches:
            values.zero_()
        add_up(received, step, stretches)
        self.decode_seconds += time.perf_counter() - begin


class ShardedServer:
    """Every rank serves one shard: it averages what all push and sends the mean, encoded once.

    3LC's shared compressed pulls without a server machine: what a rank sends does not grow with
    their number.
    """

    def __init__(self, group: ByteGroup, infos: Sequence[tersewire.TensorInfo],
                 codecs: Sequence[tersewire.Codec], seed: int) -> None:
        self.group = group
        self.parts = shards([_elems(info) for info in infos], group.ranks)
        own = [part for part in self.parts if part.owner == group.rank]
        self.push = Direction(self.parts, codecs, seed, group.rank, infos)
        # Ranks draw other random numbers as servers.
        self.pull = Direction(own, codecs, seed, group.ranks + group.rank, infos)
        self.directions = {"pushed": self.push, "pulled": self.pull}
        self.decode_seconds = 0.0

    def mean(self, step: int, stretches: Sequence[Stretch], raw: bool) -> None:
        """Replaces the values by what the servers send: their mean, encoded once more."""
        group = self.group
        shard = [[stretch for stretch in stretches if stretch[0].owner == rank]
                 for rank in range(group.ranks)]
        received = group.all_to_all([
            self.push.message("push", group.rank, step, part, raw) for part in shard])
        begin = time.perf_counter()
        means = [(part, torch.zeros_like(values)) for part, values in shard[group.rank]]
        add_up(received, step, means)
        self.decode_seconds += time.perf_counter() - begin
        pulled = group.all_gather(self.pull.message("pull", group.rank, step, means, raw))
        begin = time.perf_counter()
        for rank, data in enumerate(pulled):
            frames = _frames(data, rank, step, [part for part, _ in shard[rank]])
            for (_, values), frame in zip(shard[rank], frames):
                tersewire.decode(frame.payload, values)
        self.decode_seconds += time.perf_counter() - begin


def add_up(received: Sequence[torch.Tensor], step: int, stretches: Sequence[Stretch]) -> None:
    """Adds the mean of what came from all ranks."""
    for rank, data in enumerate(received):
        frames = _frames(data, rank, step, [part for part, _ in stretches])
        for (_, values), frame in zip(stretches, frames):
            tersewire.decode_add(frame.payload, 1 / len(received), values)


def _elems(info: tersewire.TensorInfo) -> int:
    elems = 1
    for side in info.shape:
        elems *= side
    return elems


EXCHANGES = {"all-gather": AllGather, "sharded-server": ShardedServer}
