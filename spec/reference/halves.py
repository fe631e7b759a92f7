"""Codecs 17 (fp16) and 18 (bf16)."""

import math
import struct

from .floats import bits_of
from .options import error_feedback

PARAMETERS = error_feedback(False)

LARGEST_FP16 = 0x7BFF
LARGEST_BF16 = 0x7F7F


def decode_fp16(cursor, n):
    return [widened(half) for half in read_halves(cursor, n)]


def widened(half):
    (value,) = struct.unpack("<e", struct.pack("<H", half))
    if math.isnan(value):  # which NaN is not said
        return 0x7FC00000 | half >> 15 << 31
    return bits_of(value)


def decode_bf16(cursor, n):
    return [half << 16 for half in read_halves(cursor, n)]


def read_halves(cursor, n):
    return struct.unpack(f"<{n}H", cursor.take_last(2 * n, "body"))


def encode_fp16(task, _settings):
    return halves_as_bytes([nearest_fp16(value) for value in task.total])


def nearest_fp16(value):
    try:
        (half,) = struct.unpack("<H", struct.pack("<e", value))  # rounds ties to even
        return half
    except OverflowError:
        return LARGEST_FP16 | (value < 0) << 15


def encode_bf16(task, _settings):
    return halves_as_bytes([nearest_bf16(value) for value in task.total])


def nearest_bf16(value):
    """Rounds the bits: the next half up is the next number up, for either sign."""
    magnitude = bits_of(abs(value))
    even = magnitude >> 16 & 1
    half = magnitude + 0x7FFF + even >> 16
    return min(half, LARGEST_BF16) | bits_of(value) >> 31 << 15


def halves_as_bytes(halves):
    return struct.pack(f"<{len(halves)}H", *halves)
