"""Codecs 13 (mqe1bit) and 14 (signsgd): "signs payload"."""

import struct

from . import sums
from .bits import fields_as_bytes, read_fields
from .floats import SIGN_BIT, bits_of
from .options import error_feedback
from .scalars import read_finite, read_magnitude

PARAMETERS = error_feedback(True, lead=2.0)


def decode_two_means(cursor, n):
    plus = bits_of(read_finite(cursor, "mean of what is not negative"))
    minus = bits_of(read_finite(cursor, "mean of what is negative"))
    return read_elements(cursor, n, plus, minus)


def decode_one_mean(cursor, n):
    plus = bits_of(read_magnitude(cursor, "mean"))
    return read_elements(cursor, n, plus, plus | SIGN_BIT)


def read_elements(cursor, n, plus, minus):
    return [minus if bit else plus for bit in read_fields(cursor, 1, n, "body")]


def encode_mqe1bit(task, _settings):
    plus = sums.mean_where(task.total, lambda t: t >= 0)
    minus = sums.mean_where(task.total, lambda t: t < 0)
    return struct.pack("<ff", plus, minus) + sign_bits(task.total)


def encode_signsgd(task, _settings):
    mean = sums.mean_where([abs(t) for t in task.total], lambda t: True)
    return struct.pack("<f", mean) + sign_bits(task.total)


def sign_bits(values):
    return fields_as_bytes([value < 0 for value in values], 1)
