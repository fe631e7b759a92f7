"""Exchange all-reduce: scalers that all ranks share, and sums of whole numbers (TernGrad)."""

import time
from typing import Dict, List, Optional, Sequence, Tuple

import numpy
import torch
import torch.distributed as dist

import tersewire

from ._bytes import PayloadGroup
from ._exchanges import Direction, Exchange
from ._parts import BucketLayout, Part, elems_of, refuse, whole_parts

_FLOAT_BYTES = 4

# A part of a bucket, and its values, which lie in the bucket.
_Stretch = Tuple[Part, torch.Tensor]


class AllReduce(Exchange):
    """Scaler sharing (TernGrad, section 3.1) by all-reduces of the process group.

    The first finds the largest of all ranks' scalers, the second adds up the digits -1, 0 and 1
    under them: in fields of 4 bits up to 7 ranks, of 8 up to 127, of 32 beyond, so that no sum
    overflows. Parameters in fp32, and those that are not finite on some rank, are added up as they
    are, in a third.
    """

    @staticmethod
    def check_codecs(codecs: Sequence[tersewire.Codec]) -> None:
        for codec in codecs:
            if codec.name not in ("terngrad", "fp32"):
                refuse(f"codec {codec.name} does not fit exchange all-reduce, which adds up whole "
                       "numbers; take terngrad or another exchange")

    def __init__(self, group: PayloadGroup, infos: Sequence[tersewire.TensorInfo],
                 codecs: Sequence[tersewire.Codec], seed: int,
                 pool: Optional[tersewire.ThreadPool]) -> None:
        parts = whole_parts([elems_of(info) for info in infos])
        super().__init__(group, parts, Direction(parts, codecs, seed, group.rank, infos, pool),
                         pool)
        self._ternary = [codec.name == "terngrad" for codec in codecs]
        self._not_finite = 0
        self._pushed_bytes = {part.number: 0 for part in parts}

    @property
    def not_finite(self) -> int:
        return self._not_finite

    @property
    def pushed_bytes(self) -> Dict[int, int]:
        return self._pushed_bytes

    def mean(self, step: int, values: numpy.ndarray, layout: BucketLayout, raw: bool) -> None:
        bucket = torch.from_numpy(values)
        stretches = [(part, bucket[begin:begin + part.elems])
                     for part, begin in zip(layout.parts, layout.begins)]
        digits, exact = [], []
        for stretch, scalers in self._agreed(stretches, raw):
            if scalers.isfinite().all() and len(scalers) > 0:
                digits.append((stretch, scalers))
            else:
                exact.append(stretch)
        if digits:
            self._add_digits(step, digits)
        if exact:
            self._add_values(exact)

    def _agreed(self, stretches: Sequence[_Stretch],
                raw: bool) -> List[Tuple[_Stretch, torch.Tensor]]:
        """Each stretch with the scalers of all ranks: none for fp32, infinite where a rank's is."""
        begin = time.perf_counter()
        own = [torch.from_numpy(self.push.encoders[part.number].local_scalers(
                   values, pool=self._pool))
               if self._ternary[part.parameter] and not raw else torch.empty(0)
               for part, values in stretches]
        self.push.seconds += time.perf_counter() - begin
        offers = torch.cat(own)
        if len(offers) > 0:
            self.group.all_reduce(offers, dist.ReduceOp.MAX)
        return list(zip(stretches, offers.split([len(scalers) for scalers in own])))

    def _add_digits(self, step: int, digits: Sequence[Tuple[_Stretch, torch.Tensor]]) -> None:
        begin = time.perf_counter()
        sums = torch.zeros(sum(part.elems for (part, _), _ in digits), dtype=torch.int32)
        each = sums.split([part.elems for (part, _), _ in digits])
        bucket_elems = []
        for ((part, values), scalers), levels in zip(digits, each):
            payload = self.push.encoders[part.number].encode_under(
                scalers, values, step, pool=self._pool)
            tersewire.decode_levels_add(payload, levels)
            bucket_elems.append(tersewire.payload_scalers(payload, part.elems)[0])
        fields, bits = _fields(sums, self.group.ranks)
        self.push.seconds += time.perf_counter() - begin
        self.group.all_reduce(fields, dist.ReduceOp.SUM)
        begin = time.perf_counter()
        sums.copy_(_sums(fields, len(sums), self.group.ranks))
        for ((part, values), scalers), levels, elems in zip(digits, each, bucket_elems):
            mean = tersewire.encode_levels(levels, self.group.ranks, scalers, bucket_elems=elems)
            tersewire.decode(mean, values, pool=self._pool)
            self._pushed_bytes[part.number] += -(-bits * part.elems // 8)
        self.decode_seconds += time.perf_counter() - begin

    def _add_values(self, exact: Sequence[_Stretch]) -> None:
        values = torch.cat([values for _, values in exact]) / self.group.ranks
        self.group.all_reduce(values, dist.ReduceOp.SUM)
        for (part, own), mean in zip(exact, values.split([part.elems for part, _ in exact])):
            # Of a tensor that is finite nowhere else, this rank's may be.
            self._not_finite += int(not own.isfinite().all())
            own.copy_(mean)
            self._pushed_bytes[part.number] += _FLOAT_BYTES * part.elems


def _fields(digits: torch.Tensor, ranks: int) -> Tuple[torch.Tensor, int]:
    """The digits in the narrowest fields that hold the sum over so many ranks, and their bits."""
    if ranks > 127:
        return digits.clone(), 32
    if ranks > 7:
        return digits.to(torch.int8), 8
    # From 0 to 2 each: at most 14 in all, so that nothing is carried into the next field.
    pairs = torch.ones(-(-len(digits) // 2), 2, dtype=torch.uint8)
    pairs.view(-1)[:len(digits)] += digits.to(torch.uint8)
    return pairs[:, 0] | (pairs[:, 1] << 4), 4


def _sums(fields: torch.Tensor, elems: int, ranks: int) -> torch.Tensor:
    """The inverse of _fields(), of the fields' sum."""
    if ranks > 7:
        return fields
    pairs = torch.stack((fields & 15, fields >> 4), 1)
    return pairs.view(-1)[:elems].to(torch.int32) - ranks
