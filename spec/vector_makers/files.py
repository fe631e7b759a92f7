"""Files and states of arrays that are cut into parts."""

from reference.codecs import FP32
from reference.cursor import varint
from reference.three_lc import LAYOUT_ZERO_RUNS
from reference_decoder import (
    FILE,
    FLAG_CUT,
    FLAG_NOT_FINITE,
    PUSH,
    STATE,
    TYPE_F32,
    TYPE_F64,
    parse_file,
)
from reference_encoder import description, frame, message, sealed

from .common import ONE, accepted_file, fp32_part
from .messages import ANY_BITS
from .three_lc import payload_3lc, three_lc_part

VALUES = [0.5 * place - 2 for place in range(10)]


def accepted():
    described = (TYPE_F32, [2, 5], 4)
    fp32 = [
        fp32_part(0, VALUES[first : first + 4], described, part=part)
        for part, first in enumerate(range(0, 10, 4))
    ]
    # The values in the middle are not finite, and the last part is as long as the others.
    mixed = (TYPE_F64, [12], 4)
    three_lc = [
        three_lc_part(0, [0, 1, 2, 1], LAYOUT_ZERO_RUNS, described=mixed),
        fp32_part(0, ANY_BITS[:16], mixed, FLAG_NOT_FINITE, part=1),
        three_lc_part(0, [2, 2, 1, 0], LAYOUT_ZERO_RUNS, described=mixed, part=2),
    ]
    many = (TYPE_F32, [1, 518], 4)
    digits = [(5 * place) % 3 for place in range(518)]
    long = [
        three_lc_part(0, digits[first : first + 4], 0, described=many, part=part)
        for part, first in enumerate(range(0, 518, 4))
    ]
    return (
        accepted_file("parts-fp32", FILE, fp32)
        | accepted_file("parts-state", STATE, fp32)
        | accepted_file("parts-3lc", FILE, three_lc)
        | accepted_file("parts-130", FILE, long)
    )


def part_frame(part, elems, dims=(10,), part_values=4, codec=FP32, payload=None):
    text = description(TYPE_F32, list(dims), part_values)
    return frame(0, codec, ONE * elems if payload is None else payload, text, FLAG_CUT, part)


def file_of(*frames, kind=FILE):
    return b"".join(message(kind, 0, 0, [part]) for part in frames)


def rejected(out):
    parts = [part_frame(0, 4), part_frame(1, 4), part_frame(2, 2)]
    good = file_of(*parts)
    parse_file(good)
    rejected_orders(out, parts, good)
    rejected_differences(out, parts)
    rejected_cuts(out)
    for length in (1, 27, 28, 30, len(good) // 3 - 1):
        data = good[: len(good) // 3 + length]
        out.add(f"parts-cut-{length:02}", data, f"The second part ends after {length} bytes.")
    flipped = bytearray(good)
    flipped[-1] ^= 1
    out.add("checksum-parts", bytes(flipped), "A bit of the last part is flipped.")


def rejected_orders(out, parts, good):
    first, second, third = parts
    cases = {
        "missing-last": (file_of(first, second), "The last part is missing."),
        "missing-first": (file_of(second, third), "The first part is missing."),
        "missing-second": (file_of(first, third), "The second part is missing."),
        "only-first": (file_of(first), "Two of three parts are missing."),
        "twice": (file_of(first, first, second, third), "The first part comes twice."),
        "swapped": (file_of(first, third, second), "The parts are not in their order."),
        "and-more": (good + file_of(third), "The last part comes twice."),
        "and-a-byte": (good + b"\0", "A byte follows the last part."),
        "and-again": (good + good, "A second file follows."),
        "in-one-message": (message(FILE, 0, 0, parts), "The parts are frames of one message."),
        "past-the-last": (
            file_of(first, second, part_frame(3, 2)),
            "Part 3 of three comes, counted from 0.",
        ),
    }
    for name, (data, reason) in cases.items():
        out.add(f"parts-{name}", data, reason)
    whole = frame(0, FP32, ONE, description(TYPE_F32, [1]))
    out.add("file-twice", file_of(whole, whole), "Two whole arrays are in one file.")


def rejected_differences(out, parts):
    first, second, third = parts
    three_lc = payload_3lc([2, 1])
    changed = {
        "shape": (part_frame(2, 2, (5, 2)), "The last part is of another shape."),
        "elements": (part_frame(2, 3, (11,)), "The last part is of a longer array."),
        "length": (part_frame(2, 2, (10,), 8), "The last part says another length of parts."),
        "codec": (
            part_frame(2, 2, codec=2, payload=three_lc),
            "The last part is of another codec.",
        ),
        "whole": (frame(0, FP32, ONE * 10, description(TYPE_F32, [10])), "The last is no part."),
    }
    for name, (last, reason) in changed.items():
        out.add(f"parts-other-{name}", file_of(first, second, last), reason)
    other_type = frame(0, FP32, ONE * 2, description(TYPE_F64, [10], 4), FLAG_CUT, 2)
    out.add(
        "parts-other-type", file_of(first, second, other_type), "The last part is of another type."
    )
    out.add(
        "parts-other-kind",
        file_of(first, second) + file_of(third, kind=STATE),
        "The last part is a state's.",
    )
    old = file_of(third)
    old = sealed(old[:2] + b"\x01" + old[3:20], [old[28:]])
    out.add("parts-other-version", file_of(first, second) + old, "The last part is of version 1.")


def rejected_cuts(out):
    def add(name, data, reason):
        out.add(f"parts-{name}", data, reason)

    for part_values, reason in [
        (0, "A part has no values."),
        (2, "A part's length is no multiple of 4."),
        (6, "A part's length is no multiple of 4."),
        (8, "The only part is as long as the array."),
        (12, "A part is longer than the array."),
        (2**40, "A part is longer than the array."),
    ]:
        text = description(TYPE_F32, [8]) + varint(part_values)
        data = file_of(frame(0, FP32, ONE * min(8, part_values), text, FLAG_CUT))
        add(f"of-{part_values}", data, reason)
    text = description(TYPE_F32, [0]) + varint(4)
    add("of-nothing", file_of(frame(0, FP32, b"", text, FLAG_CUT)), "The array has no values.")
    text = description(TYPE_F32, [8]) + b"\x84\x00"
    overlong = file_of(frame(0, FP32, ONE * 4, text, FLAG_CUT), part_frame(1, 4, (8,)))
    add("overlong", overlong, "The length of parts is not in its shortest form.")
    text = description(TYPE_F32, [2**40]) + varint(252)
    many = file_of(frame(0, FP32, ONE * 252, text, FLAG_CUT))
    add("too-many", many, "There would be more than 2^32 parts.")
    text = description(TYPE_F32, [8]) + varint(4)
    described = frame(0, FP32, ONE * 4, text, FLAG_CUT)
    add("in-push", message(PUSH, 1, 2, [described]), "A push's tensor is said to be cut.")
    undescribed = frame(0, FP32, ONE * 4, None, FLAG_CUT)
    add("undescribed", file_of(undescribed), "The frame is not described.")
    for elems in (2, 6):
        last = file_of(part_frame(0, 4, (8,)), part_frame(1, elems, (8,)))
        add(f"payload-of-{elems}", last, f"The last part has {elems} values where 4 are due.")
    huge = [part_frame(part, 0, (2**40,), 2**39, payload=b"") for part in (0, 1)]
    add("huge", file_of(*huge), "Two parts of 2^39 values have no payload.")
