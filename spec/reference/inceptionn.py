"""Codec 7: inceptionn."""

import math

from .cursor import Rejected, check_expansion
from .floats import SIGN_BIT, bits_of
from .options import error_feedback, one_of

BOUND_MASK = 0x0F
LAYOUT_BOUNDED = 0x10
LAYOUT_RESERVED = 0xE0
DATA_BYTES = (0, 1, 2, 4)  # by tag

PARAMETERS = {
    "mode": (one_of({"bounded": True, "paper": False}), True),
    "bound": (one_of({f"2^-{b}": b for b in range(1, 16)}), 10),
} | error_feedback(False)


def decode(cursor, n):
    offset = cursor.offset()
    layout = cursor.byte("layout")
    if layout & LAYOUT_RESERVED:
        raise Rejected(offset, f"The layout {layout:#04x} sets a reserved bit")
    b = layout & BOUND_MASK
    if b == 0:
        raise Rejected(offset, "The bound is 2^0")
    if 2 * -(-n // 8) > cursor.left():
        raise Rejected(cursor.offset(), "The bursts are cut off")
    check_expansion(n)
    units = (None, byte_unit(b, layout & LAYOUT_BOUNDED), 2.0**-15)
    elements = []
    for first in range(0, n, 8):
        elements += read_burst(cursor, min(8, n - first), units)
    cursor.end()
    return elements


def byte_unit(b, bounded):
    return 2.0 ** -(b - 1) if bounded else 2.0**-7


def read_burst(cursor, count, units):
    offset = cursor.offset()
    tags = int.from_bytes(cursor.take(2, "tag vector"), "little")
    if tags >> 2 * count:
        raise Rejected(offset, "A tag past the last element is not 0")
    return [read_element(cursor, tags >> 2 * i & 3, units) for i in range(count)]


def read_element(cursor, tag, units):
    if tag == 0:
        return None
    data = int.from_bytes(cursor.take(DATA_BYTES[tag], "burst"), "little")
    if tag == 3:
        return data
    sign_bit = 8 * DATA_BYTES[tag] - 1
    v = data & (1 << sign_bit) - 1
    if v == 0:
        return 0
    return bits_of(v * units[tag]) | (SIGN_BIT if data >> sign_bit else 0)


# --- Writing ---------------------------------------------------------------


def encode(task, settings):
    b, bounded = settings["bound"], settings["mode"]
    classify = bounded_class if bounded else paper_class
    layout = b | (LAYOUT_BOUNDED if bounded else 0)
    classes = [classify(value, b) for value in task.total]
    return payload(layout, classes)


def paper_class(value, b):
    """(tag, data)"""
    if abs(value) >= 1:
        return 3, bits_of(value)
    exponent = bits_of(value) >> 23 & 0xFF
    if exponent < 127 - b:
        return 0, 0
    if exponent >= 127 - b + (b + 1) // 2:
        return 2, with_sign(math.floor(abs(value) * 2**15), value, 2)
    return 1, with_sign(math.floor(abs(value) * 2**7), value, 1)


def bounded_class(value, b):
    """(tag, data)"""
    if abs(value) >= 1:
        return 3, bits_of(value)
    q = round(abs(value) * 2 ** (b - 1))
    if q == 0:
        return 0, 0
    if q <= 127:
        return 1, with_sign(q, value, 1)
    return 2, with_sign(min(round(abs(value) * 2**15), 32767), value, 2)


def with_sign(v, value, tag):
    return v | (value < 0) << 8 * DATA_BYTES[tag] - 1


def payload(layout, classes):
    body = bytearray([layout])
    for first in range(0, len(classes), 8):
        burst = classes[first : first + 8]
        body += sum(tag << 2 * i for i, (tag, _) in enumerate(burst)).to_bytes(2, "little")
        for tag, data in burst:
            body += data.to_bytes(DATA_BYTES[tag], "little")
    return bytes(body)
