"""Exchange ring: partial sums go around, and then the sums (INCEPTIONN, section IV)."""

from typing import Optional, Sequence

import numpy

import tersewire

from ._bytes import PayloadGroup
from ._exchanges import Direction, Exchange
from ._parts import BucketLayout, elems_of, refuse, shards

# Their error is bounded for each value, or unbiased. What goes by the largest value, or sends few,
# would lose more at each hop.
_CODECS = ("fp32", "fp16", "bf16", "int8", "inceptionn", "qsgd")


class Ring(Exchange):
    """Each rank completes the sum of one shard.

    First each shard goes around once: a rank decodes what came, adds its own part and encodes the
    sum, beginning with the rank behind the one that completes it. That one encodes the mean once;
    the others forward these bytes, and everyone takes what they decode to, their maker too.
    """

    @staticmethod
    def check_codecs(codecs: Sequence[tersewire.Codec]) -> None:
        for codec in codecs:
            if codec.name not in _CODECS:
                refuse(f"codec {codec.name} does not fit exchange ring, where its error would grow "
                       f"with every hop; take one of {', '.join(_CODECS)}, or another exchange")

    def __init__(self, group: PayloadGroup, infos: Sequence[tersewire.TensorInfo],
                 codecs: Sequence[tersewire.Codec], seed: int,
                 pool: Optional[tersewire.ThreadPool]) -> None:
        parts = shards([elems_of(info) for info in infos], group.ranks)
        # A rank encodes each part once in a step: a partial sum, or the mean of its own shard.
        super().__init__(group, parts, Direction(parts, codecs, seed, group.rank, infos, pool),
                         pool)

    def mean(self, step: int, values: numpy.ndarray, layout: BucketLayout, raw: bool) -> None:
        rank, ranks = self.group.rank, self.group.ranks
        for hop in range(1, ranks):
            going = layout.shards[(rank - hop) % ranks]
            coming = layout.shards[(rank - hop - 1) % ranks]
            packed = self.push.encode(step, values, going, raw)
            self._add([self.group.pass_on(packed, len(coming))], 1.0, values, coming)
        own = layout.shards[rank]
        for begin, elems in own.stretches:
            values[begin:begin + elems] /= ranks
        packed = self.push.encode(step, values, own, raw)
        self._replace(packed, values, own)
        for hop in range(1, ranks):
            coming = layout.shards[(rank - hop) % ranks]
            packed = self.group.pass_on(packed, len(coming))
            self._replace(packed, values, coming)
