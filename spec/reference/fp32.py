"""Codec 1: the values as they are."""

from .cursor import Rejected
from .floats import all_bits, bytes_of_floats

PARAMETERS = {}


def decode(cursor, n):
    if cursor.left() != 4 * n:
        raise Rejected(
            cursor.offset(),
            f"The fp32 payload has {cursor.left()} bytes and not 4 for each of {n} elements",
        )
    return all_bits(cursor.take(4 * n, "fp32 payload"))


def encode(task, _settings):
    return bytes_of_floats(task.total)
