"""Codec 2: 3lc."""

import math
import struct

from .cursor import Rejected
from .floats import LARGEST_F32, SIGN_BIT, bits_of, f32, largest_magnitude
from .groups import groups_of_digits, read_digits, zero_run_encoded
from .options import ON_OFF, error_feedback, one_of

LAYOUT_PARTITIONS = 0x01
LAYOUT_ZERO_RUNS = 0x02
LAYOUT_LONG_RUNS = 0x04
LAYOUT_RESERVED = 0xF8


def read_s(text):
    s = f32(float(text))
    if not 1 <= s < 2:
        raise ValueError("out of range")
    return s


PARAMETERS = {
    "s": (read_s, 1.0),
    "layout": (one_of({"neighbours": False, "partitions": True}), False),
    "zre": (one_of(ON_OFF), True),
    "long-runs": (one_of(ON_OFF), False),
} | error_feedback(True)


def decode(cursor, n):
    m, layout = read_header(cursor)
    digits = read_digits(
        cursor,
        n,
        partitions=bool(layout & LAYOUT_PARTITIONS),
        zero_runs=bool(layout & LAYOUT_ZERO_RUNS),
        long_runs=bool(layout & LAYOUT_LONG_RUNS),
    )
    elements = (bits_of(m) | SIGN_BIT, None, bits_of(m))
    return [elements[digit] for digit in digits]


def read_header(cursor):
    start = cursor.offset()
    m, s, layout = struct.unpack("<ffB", cursor.take(9, "3lc header"))
    # The sign is compared as a sign, because -0 < 0 is false.
    if not math.isfinite(m) or math.copysign(1, m) < 0:
        raise Rejected(start, "m is not finite or has its sign bit set")
    if not 1 <= s < 2:  # also false for NaN
        raise Rejected(start + 4, "s is not in 1 <= s < 2")
    if layout & LAYOUT_RESERVED:
        raise Rejected(start + 8, f"The layout {layout:#04x} sets a reserved bit")
    if layout & LAYOUT_LONG_RUNS and not layout & LAYOUT_ZERO_RUNS:
        raise Rejected(start + 8, "The layout has long runs without zero-run encoding")
    return m, layout


def encode(task, settings):
    m = min(f32(largest_magnitude(task.total) * settings["s"]), LARGEST_F32)
    layout = layout_byte(settings["layout"], settings["zre"], settings["long-runs"])
    return payload(m, settings["s"], [digit_of(t, m) for t in task.total], layout)


def digit_of(t, m):
    # For m = 0 every t is 0 and nothing is below m, so it needs its own test.
    if m == 0 or 2 * abs(t) < m:
        return 1
    return 2 if t > 0 else 0


def layout_byte(partitions, zero_runs, long_runs):
    return (
        LAYOUT_PARTITIONS * partitions
        | LAYOUT_ZERO_RUNS * zero_runs
        | LAYOUT_LONG_RUNS * long_runs
    )


def payload(m, s, digits, layout):
    groups = groups_of_digits(digits, layout & LAYOUT_PARTITIONS)
    if layout & LAYOUT_ZERO_RUNS:
        groups = zero_run_encoded(groups, layout & LAYOUT_LONG_RUNS)
    return struct.pack("<ffB", m, s, layout) + groups
