"""Scales, scalers, means and maxima, and the buckets that scalers belong to."""

import math
import struct

from .cursor import Rejected, varint
from .floats import SIGN_BIT, bits_of

LARGEST_BUCKET = 2**40


def read_finite(cursor, what):
    offset = cursor.offset()
    (value,) = struct.unpack("<f", cursor.take(4, what))
    if not math.isfinite(value):
        raise Rejected(offset, f"The {what} is not finite")
    return value


def read_magnitude(cursor, what):
    offset = cursor.offset()
    value = read_finite(cursor, what)
    if bits_of(value) & SIGN_BIT:  # also for -0
        raise Rejected(offset, f"The {what} has its sign bit set")
    return value


def scaler_count(n, bucket):
    """bucket is its length, or 0 for none."""
    return -(-n // bucket) if bucket else 1


def read_bucket(cursor):
    offset = cursor.offset()
    bucket = cursor.varint(LARGEST_BUCKET, "bucket length")
    if bucket == 0:
        raise Rejected(offset, "The bucket length is 0")
    return bucket


def read_scalers(cursor, n, bucket):
    count = scaler_count(n, bucket)
    if 4 * count > cursor.left():  # before anything is allocated for them
        raise Rejected(cursor.offset(), f"{count} scalers are due and cut off")
    return [read_magnitude(cursor, "scaler") for _ in range(count)]


def in_buckets(values, bucket):
    """The values bucket by bucket; one bucket, which may be empty, where there are none."""
    if not bucket:
        return [values]
    return [values[start : start + bucket] for start in range(0, len(values), bucket)]


def bucket_bytes(bucket):
    return varint(bucket) if bucket else b""
