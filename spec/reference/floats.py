"""Exact f32 and f64 arithmetic.

Python computes in f64. Where both operands are f32, rounding the f64 result
of +, -, *, / or sqrt to f32 gives what the f32 operation gives: products are
exact in f64, and of the others none comes so near to the middle between two
f32 that rounding it twice could matter. So f32(a * b) is an f32 product.
"""

import ctypes
import functools
import math
import operator
import struct

SIGN_BIT = 0x80000000
LARGEST_F32 = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]
# L of "Scaling": what is divided by N and multiplied by up to N again stays finite.
LARGEST_SCALE = struct.unpack("<f", b"\xfe\xff\x7f\x7f")[0]


def f32(value):
    """Rounds to the nearest f32, ties to even, overflow to infinity."""
    return ctypes.c_float(value).value


def f32_to_finite(value):
    """As f32(), but the largest finite one of that sign where it overflows."""
    rounded = f32(value)
    return math.copysign(LARGEST_F32, rounded) if math.isinf(rounded) else rounded


def bits_of(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def float_of(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def all_bits(raw):
    """The elements in little-endian f32 bytes, as 32 bits each."""
    return list(struct.unpack(f"<{len(raw) // 4}I", raw))


def floats_of_bytes(raw):
    return list(struct.unpack(f"<{len(raw) // 4}f", raw))


def bytes_of_floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def bytes_of_elements(elements):
    """What decode gives: elements that are untouched become +0."""
    return struct.pack(f"<{len(elements)}I", *[bits or 0 for bits in elements])


def scaling(m):
    """f(m) of "Scaling", the power of two that brings m > 0 to about 1."""
    floor_of_log2 = math.frexp(m)[1] - 1
    return 2.0 ** max(-126, min(127, -floor_of_log2))


def largest_magnitude(values):
    return max(map(abs, values), default=0.0)


def in_order(values):
    """The values added one after the other; what sum() does depends on Python's version."""
    return functools.reduce(operator.add, values, 0.0)
