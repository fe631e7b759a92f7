"""Codec 12: int8."""

import struct

from .cursor import Rejected
from .floats import LARGEST_SCALE, bits_of, f32, largest_magnitude, scaling
from .options import error_feedback
from .scalars import read_magnitude

MOST = 127

PARAMETERS = error_feedback(False)


def decode(cursor, n):
    step = f32(read_magnitude(cursor, "maximum") / MOST)
    start = cursor.offset()
    body = cursor.take_last(n, "body")
    if 0x80 in body:
        raise Rejected(start + body.index(0x80), "An element is -128")
    by_byte = [q if q < 128 else q - 256 for q in range(256)]
    table = [bits_of(f32(q * step)) for q in by_byte]
    return [table[byte] for byte in body]


def encode(task, _settings):
    m = min(largest_magnitude(task.total), LARGEST_SCALE)
    return struct.pack("<f", m) + bytes(quantized(value, m) & 0xFF for value in task.total)


def quantized(value, m):
    if m == 0:
        return 0
    factor = scaling(m)
    quotient = f32(MOST / f32(m * factor))
    return max(-MOST, min(MOST, round(f32(f32(value * factor) * quotient))))
