"""Codecs 3 (terngrad) and 4 (stoch3): "ternary payload"."""

import math
import struct

from . import sums
from .bits import fields_as_bytes, read_fields
from .cursor import Rejected
from .floats import SIGN_BIT, bits_of, f32, largest_magnitude, scaling
from .groups import groups_of_digits, read_digits, zero_run_encoded
from .options import error_feedback, one_of, positive, whole
from .scalars import bucket_bytes, in_buckets, read_bucket, read_scalers

TWO_BITS, GROUPS, ZERO_RUNS = 0, 1, 2
PACKING_MASK = 0x03
LAYOUT_BUCKETS = 0x04
LAYOUT_RESERVED = 0xF8
STOCH3_LAYOUT = GROUPS


def read_clip(text):
    return None if text == "off" else positive(1e6)(text)


CLIP = (read_clip, 2.5)
TERNGRAD_PARAMETERS = {
    "clip": CLIP,
    "pack": (one_of({"2bit": TWO_BITS, "base243": GROUPS, "zre": ZERO_RUNS}), ZERO_RUNS),
    "bucket": (whole(0), 0),
} | error_feedback(False)
STOCH3_PARAMETERS = {"clip": CLIP} | error_feedback(False)


def decode_terngrad(cursor, n):
    offset = cursor.offset()
    layout = cursor.byte("layout")
    if layout & LAYOUT_RESERVED or layout & PACKING_MASK > ZERO_RUNS:
        raise Rejected(offset, f"The layout {layout:#04x} is reserved")
    bucket = read_bucket(cursor) if layout & LAYOUT_BUCKETS else 0
    return read_elements(cursor, n, layout & PACKING_MASK, bucket)


def decode_stoch3(cursor, n):
    offset = cursor.offset()
    layout = cursor.byte("layout")
    if layout != STOCH3_LAYOUT:
        raise Rejected(offset, f"The layout {layout:#04x} is not 1")
    return read_elements(cursor, n, GROUPS, 0)


def read_elements(cursor, n, packing, bucket):
    scalers = [bits_of(scaler) for scaler in read_scalers(cursor, n, bucket)]
    signs = read_two_bits(cursor, n) if packing == TWO_BITS else read_groups(cursor, n, packing)
    return [
        element(sign, scalers[index // bucket if bucket else 0]) for index, sign in enumerate(signs)
    ]


def element(sign, scaler_bits):
    if sign == 0:
        return None
    return scaler_bits if sign > 0 else scaler_bits | SIGN_BIT


def read_two_bits(cursor, n):
    """The digits as -1, 0 and 1."""
    start = cursor.offset()
    fields = read_fields(cursor, 2, n, "body")
    if 2 in fields:
        raise Rejected(start + fields.index(2) // 4, "An element has the two bits 2")
    return [(0, 1, 0, -1)[field] for field in fields]


def read_groups(cursor, n, packing):
    return [digit - 1 for digit in read_digits(cursor, n, zero_runs=packing == ZERO_RUNS)]


# --- Writing ---------------------------------------------------------------


def encode_terngrad(task, settings):
    bucket = settings["bucket"]
    scalers, signs = quantized(task, settings["clip"], bucket)
    return payload(settings["pack"], bucket, scalers, signs)


def encode_stoch3(task, settings):
    scalers, signs = quantized(task, settings["clip"], 0)
    return payload(GROUPS, 0, scalers, signs)


def quantized(task, clip, bucket):
    """(scalers, digits as -1, 0 and 1)"""
    scalers, signs = [], []
    for values in in_buckets(task.total, bucket):
        limit = clipping_limit(values, clip)
        scaler = min(largest_magnitude(values), limit)
        if task.agreed is not None:
            scaler = task.agreed[len(scalers)]
        scalers.append(scaler)
        first = len(signs)
        signs += [
            sign_sent(value, scaler, limit, task.draws.uniform(first + index))
            for index, value in enumerate(values)
        ]
    return scalers, signs


def clipping_limit(values, clip):
    """Infinity where nothing is clipped."""
    if clip is None or not values:
        return math.inf
    differences = [value - values[0] for value in values]
    mean = sums.total(differences) / len(values)
    variance = sums.total_of_squares(differences) / len(values) - mean * mean
    return f32(clip * math.sqrt(max(variance, 0.0))) or math.inf


def sign_sent(value, scaler, limit, uniform):
    if scaler == 0:
        return 0
    factor = scaling(scaler)
    clipped = min(abs(value), limit)
    if f32(uniform * f32(scaler * factor)) < f32(clipped * factor):
        return 1 if value > 0 else -1
    return 0


def payload(packing, bucket, scalers, signs):
    layout = packing | (LAYOUT_BUCKETS if bucket else 0)
    head = bytes([layout]) + bucket_bytes(bucket) + struct.pack(f"<{len(scalers)}f", *scalers)
    return head + body(packing, signs)


def body(packing, signs):
    if packing == TWO_BITS:
        return fields_as_bytes([{0: 0, 1: 1, -1: 3}[sign] for sign in signs], 2)
    groups = groups_of_digits([sign + 1 for sign in signs])
    return zero_run_encoded(groups) if packing == ZERO_RUNS else groups
