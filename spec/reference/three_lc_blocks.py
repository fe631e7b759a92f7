"""Codec 2 (3lc) in blocks: a magnitude and a limit for each."""

import math

from . import sums
from .cursor import Rejected, check_expansion, varint
from .floats import SIGN_BIT, bits_of, f32, float_of, largest_magnitude
from .scalars import in_buckets
from .sparse import read_sent, sent_bytes

SMALLEST_BLOCK, LARGEST_BLOCK = 64, 4096
LARGEST_SCALE_BYTE = 255

# The f32s nearest to 2^0, 2^(-1/8), .. 2^(-7/8).
EIGHTHS = [
    float_of(bits)
    for bits in (
        0x3F800000,
        0x3F6AC0C7,
        0x3F5744FD,
        0x3F45672A,
        0x3F3504F3,
        0x3F25FED7,
        0x3F1837F0,
        0x3F0B95C2,
    )
]


def root_of_two(sixteenths):
    """The f64 nearest to 2^(sixteenths / 16)."""
    root = 2 ** (sixteenths + 16 * 100)
    for _ in range(4):
        root = math.isqrt(root)
    return root / 2**100  # Python rounds a quotient of integers once, to nearest


# Halfway, in logarithms, from each eighth to the next.
BETWEEN_EIGHTHS = [root_of_two(2 * i + 1) for i in range(8)]


def read_block(text):
    block = int(text)
    if not (SMALLEST_BLOCK <= block <= LARGEST_BLOCK and block % SMALLEST_BLOCK == 0):
        raise ValueError("out of range")
    return block


def scaled(v, q):
    """f(v, q)"""
    return f32(f32(v * EIGHTHS[q % 8]) * 2.0 ** -(q // 8))


def decode(cursor, n, m):
    offset = cursor.offset()
    block = cursor.varint(LARGEST_BLOCK, "block length")
    if block < SMALLEST_BLOCK or block % SMALLEST_BLOCK:
        raise Rejected(offset, f"The block length {block} is not a multiple of 64 from 64 on")
    scales = cursor.take(-(-n // block), "scales")
    sent = read_sent(cursor, n)
    check_expansion(n)
    elements = [None] * n
    for position, negative in sent:
        magnitude = bits_of(scaled(m, scales[position // block]))
        elements[position] = magnitude | SIGN_BIT if negative else magnitude
    return elements


# --- Writing ---------------------------------------------------------------


def encode(total, s, block):
    """(m, body)"""
    blocks = [[abs(t) for t in values] for values in in_buckets(total, block)] if total else []
    chosen = [chosen_in(values, f32(s * 4 / 3)) for values in blocks]
    means = [mean_of_chosen(*pair) for pair in zip(blocks, chosen)]
    m = max(means, default=0.0)
    scales = [scale_of(mean, m) for mean in means]
    sent = [
        index * block + i
        for index, (q, its_chosen) in enumerate(zip(scales, chosen))
        for i, is_chosen in enumerate(its_chosen)
        if is_chosen and q != LARGEST_SCALE_BYTE
    ]
    return m, body(block, scales, sent_bytes(total, sent))


def chosen_in(values, t):
    """Whether each |T| of a block is chosen."""
    limit = min(f32(t * f32(sums.total(values) / len(values))), largest_magnitude(values))
    return [value != 0 and value >= limit for value in values]


def mean_of_chosen(values, chosen):
    """v"""
    kept = [value if is_chosen else 0.0 for value, is_chosen in zip(values, chosen)]
    return f32(sums.total(kept) / chosen.count(True)) if True in chosen else 0.0


def scale_of(mean, largest):
    """q"""
    if mean == 0:
        return LARGEST_SCALE_BYTE
    half, exponent = math.frexp(largest / mean)
    g, octaves = 2 * half, exponent - 1
    return min(8 * octaves + sum(bound < g for bound in BETWEEN_EIGHTHS), LARGEST_SCALE_BYTE)


def body(block, scales, sent):
    return varint(block) + bytes(scales) + sent

