"""Codec 2: 3lc."""

import math
import struct

from . import three_lc_blocks
from .cursor import Rejected
from .floats import LARGEST_F32, SIGN_BIT, bits_of, f32, largest_magnitude
from .groups import groups_of_digits, read_digits, zero_run_encoded
from .options import ON_OFF, error_feedback, f32_within, one_of

LAYOUT_PARTITIONS = 0x01
LAYOUT_ZERO_RUNS = 0x02
LAYOUT_GROUPS = LAYOUT_PARTITIONS | LAYOUT_ZERO_RUNS
LAYOUT_BLOCKS = 0x08
LAYOUT_RESERVED = 0xF4

# s is below these.
END_OF_S = 2
END_OF_S_IN_BLOCKS = 16

# What is None depends on the mode.
PARAMETERS = error_feedback(True) | {
    "mode": (one_of({"blocks": "blocks", "paper": "paper"}), "blocks"),
    "s": (f32_within(1, END_OF_S_IN_BLOCKS), None),
    "block": (three_lc_blocks.read_block, None),
    "layout": (one_of({"neighbours": False, "partitions": True}), None),
    "zre": (one_of(ON_OFF), None),
    "lead": (error_feedback(True)["lead"][0], None),
}
DEFAULTS = {
    "blocks": {"s": 1.25, "block": 256},
    "paper": {"s": 1.0, "layout": False, "zre": True, "lead": 1.0},
}


def complete(settings):
    """The settings with their mode's defaults; ValueError for what is not the mode's."""
    mode = settings["mode"]
    said = {key: value for key, value in settings.items() if value is not None}
    complete = DEFAULTS[mode] | said
    if not complete["s"] < (END_OF_S if mode == "paper" else END_OF_S_IN_BLOCKS):
        raise ValueError("s is out of range")
    if "lead" not in complete:
        complete["lead"] = f32(2 * complete["s"] - 0.5) if complete["ef"] else 1.0
    extra = complete.keys() - DEFAULTS[mode].keys() - {"mode", "lead", "ef", "non-finite"}
    if extra:
        raise ValueError(f"mode={mode} has no {', '.join(sorted(extra))}")
    return complete


def decode(cursor, n):
    m, layout = read_header(cursor)
    if layout & LAYOUT_BLOCKS:
        return three_lc_blocks.decode(cursor, n, m)
    digits = read_digits(
        cursor,
        n,
        partitions=bool(layout & LAYOUT_PARTITIONS),
        zero_runs=bool(layout & LAYOUT_ZERO_RUNS),
    )
    elements = (bits_of(m) | SIGN_BIT, None, bits_of(m))
    return [elements[digit] for digit in digits]


def read_header(cursor):
    start = cursor.offset()
    m, s, layout = struct.unpack("<ffB", cursor.take(9, "3lc header"))
    # The sign is compared as a sign, because -0 < 0 is false.
    if not math.isfinite(m) or math.copysign(1, m) < 0:
        raise Rejected(start, "m is not finite or has its sign bit set")
    end = END_OF_S_IN_BLOCKS if layout & LAYOUT_BLOCKS else END_OF_S
    if not 1 <= s < end:  # also false for NaN
        raise Rejected(start + 4, f"s is not in 1 <= s < {end}")
    if layout & LAYOUT_RESERVED:
        raise Rejected(start + 8, f"The layout {layout:#04x} sets a reserved bit")
    if layout & LAYOUT_BLOCKS and layout & LAYOUT_GROUPS:
        raise Rejected(start + 8, f"The layout {layout:#04x} is one of groups and of blocks")
    return m, layout


def encode(task, settings):
    if settings["mode"] == "blocks":
        m, body = three_lc_blocks.encode(task.total, settings["s"], settings["block"])
        return header(m, settings["s"], LAYOUT_BLOCKS) + body
    m = min(f32(largest_magnitude(task.total) * settings["s"]), LARGEST_F32)
    layout = layout_byte(settings["layout"], settings["zre"])
    return payload(m, settings["s"], [digit_of(t, m) for t in task.total], layout)


def digit_of(t, m):
    # For m = 0 every t is 0 and nothing is below m, so it needs its own test.
    if m == 0 or 2 * abs(t) < m:
        return 1
    return 2 if t > 0 else 0


def layout_byte(partitions, zero_runs):
    return LAYOUT_PARTITIONS * partitions | LAYOUT_ZERO_RUNS * zero_runs


def payload(m, s, digits, layout):
    groups = groups_of_digits(digits, layout & LAYOUT_PARTITIONS)
    if layout & LAYOUT_ZERO_RUNS:
        groups = zero_run_encoded(groups)
    return header(m, s, layout) + groups


def header(m, s, layout):
    return struct.pack("<ffB", m, s, layout)
