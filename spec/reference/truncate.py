"""Codec 16: truncate."""

from .bits import fields_as_bytes, read_fields
from .cursor import Rejected
from .floats import bits_of
from .options import error_feedback, one_of

DROPPED = (16, 22, 24)

PARAMETERS = {"bits": (one_of({str(d): d for d in DROPPED}), 16)} | error_feedback(False)


def decode(cursor, n):
    offset = cursor.offset()
    dropped = cursor.byte("number of bits")
    if dropped not in DROPPED:
        raise Rejected(offset, f"The number of bits {dropped} is reserved")
    return [field << dropped for field in read_fields(cursor, 32 - dropped, n, "body")]


def encode(task, settings):
    dropped = settings["bits"]
    fields = [bits_of(value) >> dropped for value in task.total]
    return bytes([dropped]) + fields_as_bytes(fields, 32 - dropped)
