"""Vectors of codec 2 (3lc)."""

import struct

from reference import three_lc
from reference.codecs import THREE_LC
from reference.floats import LARGEST_F32, all_bits, f32
from reference.floats import bytes_of_floats as fp32_payload
from reference.groups import ZERO_GROUP, groups_of_digits
from reference.three_lc import LAYOUT_PARTITIONS, LAYOUT_ZERO_RUNS
from reference_decoder import FILE, PULL, PUSH, TYPE_F32
from reference_encoder import description, frame

from .common import (
    M_LARGEST_DENORMAL,
    M_SMALLEST,
    Part,
    accepted_message,
    push,
    signed,
)

LENGTHS = [0, 1, 4, 5, 6, 69, 70, 71, 75, 5 * 14 * 3 + 1, 1000]
RUNS = [1, 2, 13, 14, 15, 16, 28, 29]
LAYOUTS = [("neighbours", False), ("partitions", True)]
CODINGS = [("plain", False), ("zre", True)]
S = 1.75
S_LARGEST = 2 - 2.0**-23


def accepted():
    return (
        accepted_lengths()
        | accepted_runs()
        | accepted_other_splits()
        | accepted_groups()
        | accepted_m_and_s()
        | accepted_files()
        | accepted_adds()
    )


def three_lc_part(tensor, digits, layout, m=1.5, s=S, described=None, flags=0, body=None, part=0):
    """body replaces what the encoder would write for the same digits."""
    payload = three_lc.payload(m, s, digits, layout)
    if body is not None:
        payload = payload[:9] + body
    return Part(tensor, THREE_LC, payload, digit_elements(m, digits), described, flags, part)


def digit_elements(m, digits):
    return [signed(m, digit - 1) for digit in digits]


def sparse_digits(count):
    """Mostly stretches of 1 with something else between, always the same."""
    state = count + 1
    digits = []
    while len(digits) < count:
        state = (state * 1103515245 + 12345) % 2**31
        digits += [1] * (state >> 16 & 0x3F)
        digits += [2 * (state >> 22 & 1), (state >> 23) % 3]
    return digits[:count]


def accepted_lengths():
    files = {}
    for (layout_name, partitions), (coding_name, zre) in combinations():
        layout = three_lc.layout_byte(partitions, zre)
        # The 1215 elements of all-groups are the long plain body.
        lengths = LENGTHS if zre else LENGTHS[:-1]
        # One layout with and one without descriptions shows both.
        parts = [
            three_lc_part(
                tensor,
                sparse_digits(length),
                layout,
                described=None if partitions else (TYPE_F32, [length]),
            )
            for tensor, length in enumerate(lengths)
        ]
        files |= accepted_message(f"lengths-{layout_name}-{coding_name}", PUSH, parts, 3, 7)
    return files


def combinations():
    return [(layout, coding) for layout in LAYOUTS for coding in CODINGS]


def accepted_runs():
    files = {}
    for (layout_name, partitions), (coding_name, zre) in combinations():
        if not zre:
            continue  # without runs there is nothing here that lengths do not show
        layout = three_lc.layout_byte(partitions, zre)
        parts = []
        for tensor, run in enumerate(RUNS):
            digits = digits_of([0] + [ZERO_GROUP] * run + [242], partitions)
            parts.append(three_lc_part(tensor, digits, layout))
        files |= accepted_message(f"runs-{layout_name}-{coding_name}", PUSH, parts, 1, 2)
    parts = [
        three_lc_part(0, [1] * 210, LAYOUT_ZERO_RUNS, described=(TYPE_F32, [42, 5])),
        three_lc_part(1, [1] * 68, LAYOUT_ZERO_RUNS, described=(TYPE_F32, [68])),
        three_lc_part(2, [1] * 70 + [0], LAYOUT_ZERO_RUNS, described=(TYPE_F32, [71])),
        three_lc_part(3, [2] * 5 + [1] * 70, LAYOUT_ZERO_RUNS, described=(TYPE_F32, [75])),
    ]
    return files | accepted_message("runs-edges-zre", PUSH, parts)


def accepted_other_splits():
    zre = LAYOUT_ZERO_RUNS
    zeros = [1] * (5 * 30)
    bodies = {
        "split-zre-plain-bytes": bytes([ZERO_GROUP] * 30),
        "split-zre-short-first": bytes([243, 121, 254, 255]),
    }
    # The byte after 255 is a group of its own.
    own_group = [1] * 70 + [0, 0, 0, 0, 1]
    part = three_lc_part(0, own_group, zre, body=b"\xff\x01", described=(TYPE_F32, [75]))
    files = accepted_message("split-zre-group-after-255", FILE, [part])
    for name, body in bodies.items():
        part = three_lc_part(0, zeros, zre, body=body, described=(TYPE_F32, [30, 5]))
        files |= accepted_message(name, FILE, [part])
    return files


def accepted_groups():
    files = {}
    for layout_name, partitions in LAYOUTS:
        layout = three_lc.layout_byte(partitions, False)
        part = three_lc_part(9, digits_of(range(243), partitions), layout, m=0.1)
        files |= accepted_message(f"all-groups-{layout_name}", PUSH, [part])
    return files


def digits_of(groups, partitions):
    """The digits that make these groups, without padding."""
    by_group = [[group // 3 ** (4 - k) % 3 for k in range(5)] for group in groups]
    if partitions:
        return [digits[k] for k in range(5) for digits in by_group]
    return [digit for digits in by_group for digit in digits]


def accepted_m_and_s():
    digits = [0, 1, 2, 2, 1, 0, 1]
    described = (TYPE_F32, [7])
    cases = {
        "m-zero": (0.0, S, [1] * 7),
        "m-zero-other-digits": (0.0, S, digits),
        "m-smallest-denormal": (M_SMALLEST, S, digits),
        "m-largest-denormal": (M_LARGEST_DENORMAL, S, digits),
        "m-largest": (LARGEST_F32, S, digits),
        "s-one": (1.5, 1.0, digits),
        "s-largest": (1.5, S_LARGEST, digits),
    }
    files = {}
    for name, (m, s, its_digits) in cases.items():
        part = three_lc_part(0, its_digits, 0, f32(m), s, described)
        files |= accepted_message(name, FILE, [part])
    return files


def accepted_files():
    """One small file of every combination."""
    files = {}
    digits = [2, 0] + [1] * 80 + [0]
    for (layout_name, partitions), (coding_name, zre) in combinations():
        layout = three_lc.layout_byte(partitions, zre)
        part = three_lc_part(0, digits, layout, m=0.75, described=(TYPE_F32, [83]))
        files |= accepted_message(f"file-{layout_name}-{coding_name}", FILE, [part])
    return files


def accepted_adds():
    minus_zero = b"\0\0\0\x80"
    quiet_nan = b"\x01\0\xe0\x7f"
    ordinary = fp32_payload([0.1, 0.7, -3.0, 1e-3, 1e20])
    # (weight, m, digits, into)
    cases = [
        # One rounding of the product and one of the sum, not a fused one.
        (0.1, 0.3, [2, 0, 2, 0, 2], ordinary),
        (-0.3, 0.7, [0, 2, 0, 2, 0], ordinary),
        # Digit 1 touches nothing: adding 0 would change both of these bytes.
        (0.5, 1.5, [1, 1, 2, 1], minus_zero + quiet_nan + minus_zero * 2),
        # The product overflows, and the sum does.
        (2.0, LARGEST_F32, [0, 1, 2], fp32_payload([1.0, 1.0, -1.0])),
        (1.0, LARGEST_F32, [2, 0], fp32_payload([LARGEST_F32, LARGEST_F32])),
        # The product is denormal, and rounds to 0.
        (0.375, M_LARGEST_DENORMAL, [0, 2], fp32_payload([0.0, M_SMALLEST])),
        (0.25, M_SMALLEST, [0, 2], minus_zero * 2),
        # A weight of 0 still adds.
        (0.0, 1.5, [0, 1, 2], minus_zero * 3),
    ]
    parts = []
    for tensor, (weight, m, digits, into) in enumerate(cases):
        part = three_lc_part(tensor, digits, 0, f32(m))
        parts.append(part.with_add(weight, all_bits(into)))
    return accepted_message("decode-add", PULL, parts)


# --- Rejected --------------------------------------------------------------


def rejected(out):
    rejected_headers(out)
    rejected_plain_bodies(out)
    rejected_paddings(out)
    rejected_zero_runs(out)


def payload_3lc(digits, layout=0, m=1.5, s=S):
    return three_lc.payload(m, s, digits, layout)


def raw_3lc(body, layout=0, m=b"\0\0\xc0\x3f", s=b"\0\0\xe0\x3f"):
    return m + s + bytes([layout]) + body


def three_lc_frame(payload, flags=0):
    return frame(0, THREE_LC, payload, None, flags)


def rejected_headers(out):
    def add(name, payload, reason, elems=1):
        out.add(name, push(three_lc_frame(payload)), reason, elems)

    for length in (0, 3, 4, 8):
        add(
            f"3lc-{length}-bytes",
            payload_3lc([])[:length],
            "The 3lc payload ends before its body.",
            0,
        )
    one = groups_of_digits([2], False)
    for name, bits, what in [
        ("minus-zero", 0x80000000, "m is -0"),
        ("negative", 0xBF800000, "m is negative"),
        ("infinite", 0x7F800000, "m is infinite"),
        ("minus-infinite", 0xFF800000, "m is minus infinity"),
        ("nan", 0x7FC00000, "m is NaN"),
        ("minus-nan", 0xFFC00000, "m is NaN"),
        ("signalling-nan", 0x7F800001, "m is NaN"),
    ]:
        add(f"m-{name}", raw_3lc(one, m=struct.pack("<I", bits)), f"{what}.")
    for name, bits, what in [
        ("zero", 0, "s is 0"),
        ("below", 0x3F7FFFFF, "s is the f32 below 1"),
        ("two", 0x40000000, "s is 2"),
        ("infinite", 0x7F800000, "s is infinite"),
        ("negative", 0xBFC00000, "s is negative"),
        ("nan", 0x7FC00000, "s is NaN"),
        ("signalling-nan", 0x7F800001, "s is NaN"),
    ]:
        add(f"s-{name}", raw_3lc(one, s=struct.pack("<I", bits)), f"{what}.")
    for bit in (2, 4, 5, 6, 7):
        add(f"layout-bit-{bit}", raw_3lc(one, 1 << bit), f"Bit {bit} of the layout is reserved.")
    for layout_name, partitions in LAYOUTS:
        layout = three_lc.layout_byte(partitions, True) | 1 << 2
        reason = "Bit 2 of the layout is reserved."
        add(f"layout-bit-2-{layout_name}-zre", raw_3lc(one, layout), reason)
    add(
        "m-nan-without-elements",
        raw_3lc(b"", m=b"\0\0\xc0\x7f"),
        "m is NaN, also where there are no elements.",
        0,
    )


def rejected_plain_bodies(out):
    def add(name, body, elems, reason, layout=0):
        out.add(name, push(three_lc_frame(raw_3lc(body, layout))), reason, elems)

    for value in (243, 254, 255):
        add(f"plain-byte-{value}", bytes([0, value, 0]), 15, f"{value} is not a group.")
    add(
        "plain-run-for-two-groups",
        bytes([243]),
        10,
        "243 is not a group without zero-run encoding.",
    )
    add("plain-short", bytes(2), 11, "The body has 2 bytes for 3 groups.")
    add("plain-long", bytes(3), 10, "The body has 3 bytes for 2 groups.")
    add("plain-empty", b"", 1, "The body is empty and 1 group is due.")
    add(
        "plain-body-without-elements",
        bytes([121]),
        0,
        "There are no elements, and the body has a byte.",
    )
    add(
        "plain-partitions-short",
        bytes([121]),
        6,
        "The body has 1 byte for 2 groups.",
        LAYOUT_PARTITIONS,
    )


def rejected_paddings(out):
    """Six elements leave four digits of padding: all of them wrong once."""
    for name, partitions in LAYOUTS:
        # Six elements are positions 0 to 5; in two groups 6 to 9 are padding.
        for position in range(6, 10):
            for wrong in (0, 2):
                digits = [1] * 10
                digits[position] = wrong
                body = groups_of_digits(digits, partitions)
                layout = three_lc.layout_byte(partitions, False)
                out.add(
                    f"padding-{name}-{position}-{wrong}",
                    push(three_lc_frame(raw_3lc(body, layout))),
                    f"The padding digit at position {position} is {wrong}.",
                    6,
                )
        # In both layouts the last digit of the last group is position 14.
        layout = three_lc.layout_byte(partitions, True)
        data = push(three_lc_frame(raw_3lc(bytes([243, 242]), layout)))
        out.add(f"padding-{name}-after-run", data, "The padding digit after a run is 2.", 14)


def rejected_zero_runs(out):
    def add(name, body, groups, reason):
        out.add(name, push(three_lc_frame(raw_3lc(body, LAYOUT_ZERO_RUNS))), reason, 5 * groups)

    add("zre-run-too-long", bytes([255]), 13, "The run stands for 14 groups and 13 are due.")
    add("zre-run-too-short", bytes([255]), 15, "The run stands for 14 groups and 15 are due.")
    add("zre-run-past-end", bytes([0, 0, 243]), 3, "The run passes the last group.")
    add("zre-byte-after", bytes([255, 121]), 14, "There is a byte after the last group.")
    add("zre-run-after", bytes([0, 255]), 1, "There is a run after the last group.")
    add("zre-empty", b"", 1, "The body is empty and 1 group is due.")
    add(
        "zre-body-without-elements",
        bytes([121]),
        0,
        "There are no elements, and the body has a byte.",
    )
    payload = raw_3lc(b"\xff\x01", LAYOUT_ZERO_RUNS)
    reason = "1 after 255 is a group, and its padding digit d3 is 0."
    out.add("zre-padding-after-255", push(three_lc_frame(payload)), reason, 73)
    text = description(TYPE_F32, [2**40])
    payload = raw_3lc(bytes([255] * 8), LAYOUT_ZERO_RUNS)
    out.add(
        "zre-huge",
        push(frame(0, THREE_LC, payload, text)),
        "The body stands for 112 groups, and 2^40 elements are due.",
    )
