"""Codecs 5 (levels) and 6 (qsgd): "levels payload"."""

import math
import struct

from . import sums
from .bits import fields_as_bytes, read_fields
from .cursor import Rejected, check_expansion, varint
from .floats import LARGEST_SCALE, bits_of, f32, largest_magnitude, scaling
from .options import error_feedback, whole
from .scalars import bucket_bytes, in_buckets, read_bucket, read_scalers

LAYOUT_DENSE = 0x01
LAYOUT_BUCKETS = 0x02
LAYOUT_RESERVED = 0xFC
LARGEST_N = 65535

QSGD_PARAMETERS = {
    "levels": (whole(1, LARGEST_N), 7),
    "bucket": (whole(0), 512),
} | error_feedback(False)


def decode(cursor, n):
    offset = cursor.offset()
    layout = cursor.byte("layout")
    if layout & LAYOUT_RESERVED:
        raise Rejected(offset, f"The layout {layout:#04x} sets a reserved bit")
    most = read_most(cursor)
    bucket = read_bucket(cursor) if layout & LAYOUT_BUCKETS else 0
    steps = [f32(scaler / most) for scaler in read_scalers(cursor, n, bucket)]
    read = read_dense if layout & LAYOUT_DENSE else read_plain
    levels = [number - most for number in read(cursor, n, most)]
    return [
        bits_of(f32(level * steps[index // bucket if bucket else 0])) if level else None
        for index, level in enumerate(levels)
    ]


def read_most(cursor):
    """N, the largest level"""
    offset = cursor.offset()
    most = cursor.varint(LARGEST_N, "number of levels")
    if most == 0:
        raise Rejected(offset, "The number of levels is 0")
    return most


def field_width(most):
    """ceil(log2(2 N + 1))"""
    return (2 * most).bit_length()


def digits_in_word(base):
    """D, the largest number for which base^D <= 2^64"""
    count = 1
    while base ** (count + 1) <= 2**64:
        count += 1
    return count


def read_plain(cursor, n, most):
    start = cursor.offset()
    width = field_width(most)
    fields = read_fields(cursor, width, n, "body")
    for index, field in enumerate(fields):
        if field > 2 * most:
            raise Rejected(start + index * width // 8, f"The level {field - most} is above N")
    return fields


def read_dense(cursor, n, most):
    base = 2 * most + 1
    per_word = digits_in_word(base)
    start = cursor.offset()
    data = cursor.take_last(8 * -(-n // per_word), "body")
    check_expansion(n)
    digits = []
    for index, (word,) in enumerate(struct.iter_unpack("<Q", data)):
        if word >= base**per_word:
            raise Rejected(start + 8 * index, f"The word {word} stands for more than its digits")
        for _ in range(per_word):
            word, digit = divmod(word, base)
            digits.append(digit)
    if any(digit != most for digit in digits[n:]):
        raise Rejected(start + len(data) - 8, "The padding is not level 0")
    return digits[:n]


# --- Writing ---------------------------------------------------------------


def encode_qsgd(task, settings):
    most, bucket = settings["levels"], settings["bucket"]
    scalers, levels = [], []
    for values in in_buckets(task.total, bucket):
        norm = norm_of(values)
        scalers.append(norm)
        first = len(levels)
        levels += [
            level_of(value, norm, most, task.draws.uniform(first + index))
            for index, value in enumerate(values)
        ]
    return payload(most, bucket, scalers, levels, dense=dense_is_shorter(len(levels), most))


def dense_is_shorter(n, most):
    return 8 * -(-n // digits_in_word(2 * most + 1)) < (n * field_width(most) + 7) // 8


def norm_of(values):
    """r"""
    norm = f32(math.sqrt(sums.total_of_squares(values)))
    return min(max(norm, largest_magnitude(values)), LARGEST_SCALE)


def level_of(value, norm, most, uniform):
    if norm == 0:
        return 0
    factor = scaling(norm)
    quotient = f32(most / f32(norm * factor))
    y = f32(f32(abs(value) * factor) * quotient)
    magnitude = math.floor(y) + (uniform < y - math.floor(y))
    return int(math.copysign(min(magnitude, most), value))


def payload(most, bucket, scalers, levels, dense):
    layout = (LAYOUT_DENSE if dense else 0) | (LAYOUT_BUCKETS if bucket else 0)
    head = bytes([layout]) + varint(most) + bucket_bytes(bucket)
    numbers = [level + most for level in levels]
    body = dense_body(numbers, most) if dense else fields_as_bytes(numbers, field_width(most))
    return head + struct.pack(f"<{len(scalers)}f", *scalers) + body


def dense_body(numbers, most):
    base = 2 * most + 1
    per_word = digits_in_word(base)
    padded = numbers + [most] * (-len(numbers) % per_word)
    words = [
        sum(number * base**k for k, number in enumerate(padded[start : start + per_word]))
        for start in range(0, len(padded), per_word)
    ]
    return struct.pack(f"<{len(words)}Q", *words)
