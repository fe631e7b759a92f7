"""Codec 15: oland-raj."""

import math
import struct

from . import huffman, sums
from .bits import fields_as_bytes, read_fields
from .cursor import Rejected, check_expansion
from .floats import LARGEST_F32, bits_of, f32, f32_to_finite, in_order
from .options import Refused, error_feedback, one_of, real, whole

CONSTANT, FIXED, HUFFMAN = 0, 1, 2
CODING_MASK = 0x03
LAYOUT_F64 = 0x04
LAYOUT_RESERVED = 0xF8
MOST_BITS = 16
SAMPLE = 4096
# Of f64 alone: from here on 2^N / (max - min) may overflow.
SMALLEST_RANGE = 2.0**-1000
MARGIN = 2.0**-20  # so that the last bit of a logarithm does not decide


def read_number_of_bits(text):
    return None if text == "auto" else whole(1, MOST_BITS)(text)


PARAMETERS = {
    "c": (real(0, 12), 6.0),
    "bits": (read_number_of_bits, None),
    "bits-from": (one_of({"entropy": "entropy", "gradient": "gradient"}), "entropy"),
} | error_feedback(False)


def decode(cursor, n):
    _, values = read_values(cursor, n)
    return [bits_of(f32_to_finite(value)) for value in values]


def decode_f64(cursor, n):
    """The elements as floats: this payload cannot hold a NaN."""
    f64, values = read_values(cursor, n)
    return values if f64 else [f32(value) for value in values]


def read_values(cursor, n):
    """(whether the payload is one of f64, values not yet rounded to f32)"""
    offset = cursor.offset()
    layout = cursor.byte("layout")
    coding = layout & CODING_MASK
    if layout & LAYOUT_RESERVED or coding > HUFFMAN:
        raise Rejected(offset, f"The layout {layout:#04x} is reserved")
    f64 = bool(layout & LAYOUT_F64)
    if n == 0 and coding != CONSTANT:
        raise Rejected(offset, "There are no elements, and the layout is not constant")
    if coding == CONSTANT:
        return f64, read_constant(cursor, n, f64)
    return f64, read_indexed(cursor, n, f64, coding)


def read_bound(cursor, f64, what):
    offset = cursor.offset()
    (value,) = struct.unpack("<d" if f64 else "<f", cursor.take(8 if f64 else 4, what))
    if not math.isfinite(value):
        raise Rejected(offset, f"The {what} is not finite")
    return value


def read_constant(cursor, n, f64):
    offset = cursor.offset()
    value = read_bound(cursor, f64, "minimum")
    if n == 0 and value != 0:
        raise Rejected(offset, "There are no elements, and the minimum is not 0")
    cursor.end()
    check_expansion(n)
    return [value] * n


def read_indexed(cursor, n, f64, coding):
    low = read_bound(cursor, f64, "minimum")
    offset = cursor.offset()
    high = read_bound(cursor, f64, "maximum")
    if not high > low:
        raise Rejected(offset, "The maximum is not greater than the minimum")
    if math.isinf(high - low):
        raise Rejected(offset, "The maximum less the minimum is not finite")
    bits = read_bits(cursor)
    if coding == FIXED:
        indices = read_fields(cursor, bits, n, "body")
    else:
        indices = huffman.read_streams(cursor, n, huffman.read_lengths(cursor, 1 << bits))
    return [value_at(low, high, bits, index) for index in indices]


def read_bits(cursor):
    offset = cursor.offset()
    bits = cursor.byte("number of bits")
    if not 1 <= bits <= MOST_BITS:
        raise Rejected(offset, f"The number of bits {bits} is not in 1..{MOST_BITS}")
    return bits


def value_at(low, high, bits, index):
    return low + (high - low) * ((index + 0.5) / 2**bits)


# --- Writing ---------------------------------------------------------------


def encode(task, settings):
    # A zero is sent as +0: which of the two zeros is the smallest is not a question of order.
    low = min(task.total, default=0.0) + 0.0
    high = max(task.total, default=0.0) + 0.0
    if high - low < SMALLEST_RANGE:
        return head(CONSTANT, task.f64, low)
    if math.isinf(high - low):
        raise Refused("The range of the values is beyond what an f64 holds.")
    bits = number_of_bits(task, settings, low, high)
    if task.f64 and settings["ef"] and (high - low) / 2**bits > LARGEST_F32:
        raise Refused("What is left of the values is beyond what the f32 of a residual holds.")
    indices = [index_of(w, low, high, bits) for w in task.total]
    fixed = fields_as_bytes(indices, bits)
    coded = huffman_body(indices, bits)
    if len(coded) < len(fixed):
        return head(HUFFMAN, task.f64, low, high) + bytes([bits]) + coded
    return head(FIXED, task.f64, low, high) + bytes([bits]) + fixed


def head(coding, f64, *bounds):
    layout = coding | (LAYOUT_F64 if f64 else 0)
    return bytes([layout]) + struct.pack(f"<{len(bounds)}{'d' if f64 else 'f'}", *bounds)


def number_of_bits(task, settings, low, high):
    """N"""
    if settings["bits"] is not None:
        return settings["bits"]
    if settings["bits-from"] == "gradient":
        needed = math.log2(root_mean_square(task.gradient) + 1)
    else:
        needed = entropy([index_of(w, low, high, 4) for w in sampled(task)])
    return max(1, min(MOST_BITS, math.ceil(needed + settings["c"] - MARGIN)))


def root_mean_square(gradient):
    return math.sqrt(sums.total_of_squares(gradient) / len(gradient))


def sampled(task):
    n = len(task.total)
    return task.total if n <= SAMPLE else task.draws.sample(task.total, max(3 * n // 100, SAMPLE))


def entropy(indices):
    frequencies = [indices.count(index) / len(indices) for index in range(16)]
    return -in_order(p * math.log2(p) for p in frequencies if p)


def index_of(w, low, high, bits):
    return min(math.floor((w - low) * (2**bits / (high - low))), 2**bits - 1)


def huffman_body(indices, bits):
    counts = [0] * (1 << bits)
    for index in indices:
        counts[index] += 1
    limit = min(huffman.LONGEST, max(12, bits + 1))
    lengths = huffman.code_lengths(counts, limit)
    return huffman.lengths_bytes(lengths) + huffman.streams_bytes(indices, lengths)
