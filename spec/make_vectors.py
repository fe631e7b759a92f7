#!/usr/bin/python3
"""Writes spec/vectors: messages every reader must accept, and must reject.

    make_vectors.py

The output depends on nothing but this file and the reference encoder. What
accepted messages decode to is stated from how they were built, and not
asked of a decoder.
"""

import json
import os
import struct
import sys

from reference_decoder import (
    CONTRIBUTORS,
    DONE,
    FILE,
    FLAG_DESCRIBED,
    FLAG_NOT_FINITE,
    FP32,
    LAYOUT_LONG_RUNS,
    LAYOUT_PARTITIONS,
    LAYOUT_ZERO_RUNS,
    PULL,
    PUSH,
    STATE,
    THREE_LC,
    ZERO_GROUP,
    xxh64,
)
from reference_encoder import (
    LARGEST_F32,
    TYPE_F32,
    TYPE_F64,
    contributors_payload,
    description,
    f32,
    fp32_payload,
    frame,
    groups_of_digits,
    layout_byte,
    message,
    sealed,
    three_lc_payload,
    varint,
)

VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vectors")

LENGTHS = [0, 1, 4, 5, 6, 69, 70, 71, 75, 5 * 14 * 3 + 1, 1000]
RUNS = [1, 2, 13, 14, 15, 16, 28, 29]
LAYOUTS = [("neighbours", False), ("partitions", True)]
CODINGS = [("plain", False, False), ("zre", True, False), ("long", True, True)]

S = 1.75
S_LARGEST = struct.unpack("<f", b"\xff\xff\xff\x3f")[0]
M_SMALLEST = struct.unpack("<f", b"\x01\x00\x00\x00")[0]
M_LARGEST_DENORMAL = struct.unpack("<f", b"\xff\xff\x7f\x00")[0]


# --- Accepted --------------------------------------------------------------


class Part:
    """A frame together with what it must decode to."""

    def __init__(self, tensor, codec, payload, described=None, flags=0, values=None):
        """described is (element type, dims) or None; values are f32 bytes."""
        text = None if described is None else description(*described)
        self.bytes = frame(tensor, codec, payload, text, flags)
        is_bitmap = codec == CONTRIBUTORS
        self.expected = {
            "tensor": tensor,
            "codec": codec,
            "flags": flags | (0 if described is None else FLAG_DESCRIBED),
            "description": description_json(described),
            "elems": None if is_bitmap else len(values) // 4,
            "values": None if is_bitmap else values.hex(),
            "bitmap": payload.hex() if is_bitmap else None,
            "add": None,
        }


def description_json(described):
    if described is None:
        return None
    return {"type": described[0], "dims": described[1]}


def fp32_part(tensor, values, described=None, flags=0):
    """values: floats, or bytes for what a float cannot carry."""
    payload = values if isinstance(values, bytes) else fp32_payload(values)
    return Part(tensor, FP32, payload, described, flags, payload)


def three_lc_part(tensor, digits, layout, m=1.5, s=S, described=None, flags=0, body=None):
    """body replaces what the encoder would write for the same digits."""
    payload = three_lc_payload(m, s, digits, layout)
    if body is not None:
        payload = payload[:9] + body
    return Part(tensor, THREE_LC, payload, described, flags, digit_values(m, digits))


def digit_values(m, digits):
    return b"".join(struct.pack("<f", m * (digit - 1)) for digit in digits)


def contributors_part(tensor, ranks, workers, flags=0):
    return Part(tensor, CONTRIBUTORS, contributors_payload(ranks, workers), flags=flags)


def with_add(part, weight, m, digits, into):
    """Adds to a 3lc part what decode_add must do; into is f32 bytes."""
    weight = f32(weight)
    result = b""
    for index, digit in enumerate(digits):
        old = into[4 * index : 4 * index + 4]
        result += old if digit == 1 else added(old, weight, m, digit)
    part.expected["add"] = {
        "weight": struct.pack("<f", weight).hex(),
        "into": into.hex(),
        "result": result.hex(),
    }
    return part


def added(old, weight, m, digit):
    product = f32(weight * m)
    total = struct.unpack("<f", old)[0] + (product if digit == 2 else -product)
    return struct.pack("<f", f32(total))


def accepted(name, kind, parts, sender=0, step=0, workers=None):
    expected = {
        "kind": kind,
        "sender": sender,
        "step": step,
        "workers": workers,
        "frames": [part.expected for part in parts],
    }
    text = json.dumps(expected, indent=1) + "\n"
    return {
        f"accepted/{name}.tw": message(kind, sender, step, [part.bytes for part in parts]),
        f"accepted/{name}.json": text.encode(),
    }


def sparse_digits(count):
    """Mostly stretches of 1 with something else between, always the same."""
    state = count + 1
    digits = []
    while len(digits) < count:
        state = (state * 1103515245 + 12345) % 2**31
        digits += [1] * (state >> 16 & 0x3F)
        digits += [2 * (state >> 22 & 1), (state >> 23) % 3]
    return digits[:count]


def digits_of(groups, partitions):
    """The digits that make these groups, without padding."""
    by_group = [[group // 3 ** (4 - k) % 3 for k in range(5)] for group in groups]
    if partitions:
        return [digits[k] for k in range(5) for digits in by_group]
    return [digit for digits in by_group for digit in digits]


def accepted_lengths():
    files = {}
    for (layout_name, partitions), (coding_name, zre, long_runs) in combinations():
        layout = layout_byte(partitions, zre, long_runs)
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
        files |= accepted(f"lengths-{layout_name}-{coding_name}", PUSH, parts, 3, 7)
    return files


def combinations():
    return [(layout, coding) for layout in LAYOUTS for coding in CODINGS]


def accepted_runs():
    files = {}
    for (layout_name, partitions), (coding_name, zre, long_runs) in combinations():
        if not zre:
            continue  # without runs there is nothing here that lengths do not show
        layout = layout_byte(partitions, zre, long_runs)
        parts = []
        for tensor, run in enumerate(RUNS):
            digits = digits_of([0] + [ZERO_GROUP] * run + [242], partitions)
            parts.append(three_lc_part(tensor, digits, layout))
        files |= accepted(f"runs-{layout_name}-{coding_name}", PUSH, parts, 1, 2)
    for coding_name, zre, long_runs in CODINGS[1:]:
        layout = layout_byte(False, zre, long_runs)
        # 142 groups make the varint after 255 two bytes long.
        run = 142 if long_runs else 42
        parts = [
            three_lc_part(0, [1] * (5 * run), layout, described=(TYPE_F32, [run, 5])),
            three_lc_part(1, [1] * 68, layout, described=(TYPE_F32, [68])),
            three_lc_part(2, [1] * 70 + [0], layout, described=(TYPE_F32, [71])),
            three_lc_part(3, [2] * 5 + [1] * 70, layout, described=(TYPE_F32, [75])),
        ]
        files |= accepted(f"runs-edges-{coding_name}", PUSH, parts)
    return files


def accepted_other_splits():
    zre = LAYOUT_ZERO_RUNS
    long_runs = zre | LAYOUT_LONG_RUNS
    zeros = [1] * (5 * 30)
    bodies = {
        "split-zre-plain-bytes": (zre, bytes([ZERO_GROUP] * 30)),
        "split-zre-short-first": (zre, bytes([243, 121, 254, 255])),
        "split-long-as-two": (long_runs, b"\xff\x01\xff\x01"),
        "split-long-without-255": (long_runs, bytes([254, 254, 121, 121, 243])),
    }
    # Without the bit for long runs the byte after 255 is a group of its own.
    own_group = [1] * 70 + [0, 0, 0, 0, 1]
    part = three_lc_part(0, own_group, zre, body=b"\xff\x01", described=(TYPE_F32, [75]))
    files = accepted("split-zre-group-after-255", FILE, [part])
    for name, (layout, body) in bodies.items():
        part = three_lc_part(0, zeros, layout, body=body, described=(TYPE_F32, [30, 5]))
        files |= accepted(name, FILE, [part])
    return files


def accepted_groups():
    files = {}
    for layout_name, partitions in LAYOUTS:
        layout = layout_byte(partitions, False, False)
        part = three_lc_part(9, digits_of(range(243), partitions), layout, m=0.1)
        files |= accepted(f"all-groups-{layout_name}", PUSH, [part])
    return files


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
        files |= accepted(name, FILE, [part])
    return files


def accepted_descriptions():
    huge = 2**40
    shapes = {
        "rank-0": (TYPE_F32, []),
        "rank-32": (TYPE_F32, [1] * 31 + [2]),
        "dims-with-zero": (TYPE_F32, [3, 0, 5]),
        "dims-largest-with-zero": (TYPE_F32, [0, huge]),
        "dims-product-at-limit-with-zero": (TYPE_F64, [2**20, 0, 2**20]),
        "type-f64": (TYPE_F64, [2, 3]),
        "dims-two-byte-varint": (TYPE_F32, [1, 130]),
    }
    files = {}
    for name, described in shapes.items():
        count = 1
        for dim in described[1]:
            count *= dim
        values = [f32(0.1 * index - 0.2) for index in range(count)]
        digits = [(index + 2) % 3 for index in range(count)]
        files |= accepted(f"{name}-fp32", FILE, [fp32_part(0, values, described)])
        part = three_lc_part(0, digits, LAYOUT_ZERO_RUNS, described=described)
        files |= accepted(f"{name}-3lc", FILE, [part])
    return files


# A quiet and a signalling NaN with payloads, both infinities, both zeros,
# a denormal, the largest and an ordinary value.
ANY_BITS = struct.pack(
    "<9I",
    0x7FC12345,
    0xFFA00001,
    0x7F800000,
    0xFF800000,
    0,
    0x80000000,
    0x80000001,
    0x7F7FFFFF,
    0x3F800000,
)


def accepted_not_finite():
    finite = [LARGEST_F32, -1.0]
    return (
        accepted("fp32-any-bits", FILE, [fp32_part(0, ANY_BITS, (TYPE_F32, [9]))])
        | accepted(
            "not-finite-described",
            FILE,
            [fp32_part(0, ANY_BITS, (TYPE_F32, [3, 3]), FLAG_NOT_FINITE)],
        )
        | accepted(
            "not-finite-undescribed",
            PUSH,
            [fp32_part(0, ANY_BITS, None, FLAG_NOT_FINITE), fp32_part(1, [0.5])],
        )
        # Only the sum with the residual overflowed, so every value is finite.
        | accepted("not-finite-sum", PUSH, [fp32_part(0, finite, None, FLAG_NOT_FINITE)])
    )


def accepted_flags():
    return accepted(
        "flags-unused",
        PULL,
        [
            fp32_part(0, [1.0], (TYPE_F32, []), 0x40),
            fp32_part(1, [2.0], None, 0x80),
            three_lc_part(2, [0, 1, 2], 0, flags=0xC0),
            fp32_part(3, [3.0], (TYPE_F32, [1]), 0xC0 | FLAG_NOT_FINITE),
            contributors_part(4, [0], 2, 0xC0),
            fp32_part(4, [4.0]),
        ],
        workers=2,
    )


def accepted_contributors():
    delta = [0.25, -0.25]
    return (
        accepted(
            "contributors-3-workers",
            PULL,
            [
                fp32_part(0, delta),
                contributors_part(1, [0, 2], 3),
                fp32_part(1, delta),
                contributors_part(300, [1], 3),
                three_lc_part(300, [2, 1, 0, 0, 2, 1], LAYOUT_ZERO_RUNS),
            ],
            step=12,
            workers=3,
        )
        | accepted(
            "contributors-8-workers",
            PULL,
            [contributors_part(0, range(7), 8), fp32_part(0, delta)],
            workers=8,
        )
        | accepted(
            "contributors-9-workers",
            PULL,
            [contributors_part(0, range(1, 9), 9), fp32_part(0, delta, (TYPE_F32, [2]))],
            workers=9,
        )
    )


def accepted_messages():
    largest = 2**32 - 1
    numbers = [0, 127, 128, 16383, 16384, 2**21, 2**28, largest]
    return (
        accepted("done", DONE, [], 5, 1000)
        | accepted("push-empty", PUSH, [])
        | accepted("pull-empty", PULL, [])
        | accepted("sender-step-largest", PUSH, [fp32_part(0, [1.0])], largest, 2**64 - 1)
        | accepted("tensor-numbers", PUSH, [fp32_part(n, [1.0, 2.0]) for n in numbers])
        | accepted("fp32-200-byte-payload", FILE, [fp32_part(0, [0.5] * 50, (TYPE_F32, [50]))])
        | accepted("fp32-empty", PUSH, [fp32_part(0, [])])
        | accepted("state", STATE, [fp32_part(0, [0.5, -0.25, 0.0], (TYPE_F32, [3]))])
        | accepted("state-empty", STATE, [fp32_part(0, [], (TYPE_F32, [0]))])
        | accepted_files()
    )


def accepted_files():
    """One small file of every combination."""
    files = {}
    digits = [2, 0] + [1] * 80 + [0]
    for (layout_name, partitions), (coding_name, zre, long_runs) in combinations():
        layout = layout_byte(partitions, zre, long_runs)
        part = three_lc_part(0, digits, layout, m=0.75, described=(TYPE_F32, [83]))
        files |= accepted(f"file-{layout_name}-{coding_name}", FILE, [part])
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
        parts.append(with_add(part, weight, f32(m), digits, into))
    return accepted("decode-add", PULL, parts)


def all_accepted():
    return (
        accepted_lengths()
        | accepted_runs()
        | accepted_other_splits()
        | accepted_groups()
        | accepted_m_and_s()
        | accepted_descriptions()
        | accepted_not_finite()
        | accepted_flags()
        | accepted_contributors()
        | accepted_messages()
        | accepted_adds()
    )


# --- Rejected --------------------------------------------------------------


class Rejections:
    """Collects messages with the one reason why each must be rejected."""

    def __init__(self):
        self.files = {}
        self.reasons = {}

    def add(self, name, data, reason, elems=None, workers=None):
        assert name not in self.reasons, name
        self.files[f"rejected/{name}.tw"] = data
        self.reasons[name] = {"reason": reason, "elems": elems, "workers": workers}

    def all_files(self):
        text = json.dumps(self.reasons, indent=1) + "\n"
        return self.files | {"rejected/reasons.json": text.encode()}


def header(magic=b"TW", version=1, kind=PUSH, sender=0, step=0, count=0):
    return struct.pack("<2sBBIQI", magic, version, kind, sender, step, count)


def push(*frames):
    return message(PUSH, 1, 2, frames)


ONE = fp32_payload([1.0])
FRAME = frame(0, FP32, ONE)
DESCRIBED_FRAME = frame(0, FP32, ONE, description(TYPE_F32, [1]))


def rejected_headers(out):
    good = push(FRAME)
    for length in (0, 1, 2, 3, 4, 7, 8, 12, 16, 20, 27):
        out.add(
            f"header-{length}-bytes",
            good[:length],
            f"The header is cut off after {length} bytes.",
            1,
        )
    for name, magic in [("first", b"XW"), ("second", b"TX"), ("swapped", b"WT")]:
        out.add(f"magic-{name}", sealed(header(magic), []), "The magic is wrong.")
    for version in (0, 2, 255):
        out.add(f"version-{version}", sealed(header(version=version), []), "The version is not 1.")
    for kind in (0, 6, 255):
        out.add(f"kind-{kind}", sealed(header(kind=kind), []), "The kind is reserved.")


def rejected_checksums(out):
    good = push(FRAME)
    for name, offset in [("sender", 4), ("step", 15), ("checksum", 20), ("payload", 35)]:
        bad = bytearray(good)
        bad[offset] ^= 1
        out.add(
            f"checksum-{name}",
            bytes(bad),
            f"A bit of the {name} is flipped, so the checksum is wrong.",
            1,
        )
    out.add("checksum-zero", good[:20] + bytes(8) + good[28:], "The checksum is 0.", 1)
    seeded = struct.pack("<Q", xxh64(good[:20] + good[28:], 1))
    out.add("checksum-seed-1", good[:20] + seeded + good[28:], "The checksum has seed 1.", 1)
    frames_only = struct.pack("<Q", xxh64(good[28:]))
    out.add(
        "checksum-frames-only",
        good[:20] + frames_only + good[28:],
        "The checksum leaves out the header.",
        1,
    )


def rejected_counts(out):
    def counted(count, *frames):
        return sealed(header(count=count), frames)

    empty = frame(0, FP32, b"")
    out.add("count-too-large", counted(3, FRAME), "The count is above what 8 bytes can hold.", 1)
    out.add(
        "count-largest", counted(2**32 - 1, FRAME), "The count is above what 8 bytes can hold.", 1
    )
    out.add("count-one-more", counted(2, empty), "The count is above what 4 bytes can hold.", 0)
    out.add("count-without-frames", counted(1), "The count is 1, and the message ends.", 1)
    out.add("count-frame-missing", counted(2, FRAME), "The second frame is missing.", 1)
    out.add("trailing-byte", counted(1, FRAME, b"\0"), "There is a byte after the last frame.", 1)
    out.add("trailing-frame", counted(1, FRAME, FRAME), "There is a frame more than the count.", 1)
    out.add(
        "trailing-message",
        counted(1, FRAME, push(FRAME)),
        "There is a second message after the first.",
        1,
    )
    out.add(
        "trailing-after-nothing",
        counted(0, b"\0"),
        "There is a byte after the header, and the count is 0.",
    )


def rejected_truncations(out):
    """The frame before makes the count plausible, so only the cut counts."""
    # The tensor number, the second dimension and the payload length take two bytes.
    whole = frame(200, FP32, bytes(512), description(TYPE_F32, [1, 128]))
    cuts = [
        (1, "in its tensor number"),
        (2, "before its codec"),
        (3, "before its flags"),
        (4, "before its element type"),
        (5, "before its rank"),
        (6, "before its dimensions"),
        (7, "before its second dimension"),
        (8, "in its second dimension"),
        (9, "before its payload length"),
        (10, "in its payload length"),
        (11, "before its payload"),
        (12, "in its payload"),
        (len(whole) - 1, "in its payload"),
    ]
    for length, where in cuts:
        reason = f"The message ends in the second frame, {where}."
        out.add(f"cut-frame-{length:03}", push(FRAME, whole[:length]), reason, 1)
    too_long = frame(0, FP32, b"")[:-1] + varint(5) + ONE
    out.add(
        "payload-past-end",
        push(too_long),
        "The payload length is one more than the message holds.",
        1,
    )
    largest = frame(0, FP32, b"")[:-1] + varint(2**35 - 1) + ONE
    out.add(
        "payload-largest-past-end",
        push(largest),
        "The payload length is 2^35 - 1, and 4 bytes follow.",
        1,
    )


def rejected_varints(out):
    after_tensor = FRAME[1:]
    for name, encoded in [
        ("tensor-overlong", b"\x80\x00"),
        ("tensor-overlong-3", b"\x81\x80\x00"),
        ("tensor-overlong-5", b"\xff\xff\xff\xff\x00"),
        ("tensor-overlong-12", b"\x80" * 11 + b"\x00"),
    ]:
        out.add(
            f"varint-{name}",
            push(encoded + after_tensor),
            "The tensor number is not in its shortest form.",
            1,
        )
    for name, value in [
        ("above", 2**32),
        ("35-bits", 2**35 - 1),
        ("36-bits", 2**35),
        ("65-bits", 2**64),
    ]:
        out.add(
            f"varint-tensor-{name}",
            push(varint(value) + after_tensor),
            "The tensor number is above 2^32 - 1.",
            1,
        )
    head = bytes([0, FP32, 0])
    out.add(
        "varint-payload-overlong",
        push(head + b"\x84\x00" + ONE),
        "The payload length is not in its shortest form.",
        1,
    )
    out.add(
        "varint-payload-above",
        push(head + varint(2**35) + ONE),
        "The payload length is above 2^35 - 1.",
        1,
    )
    out.add(
        "varint-payload-wraps",
        push(head + varint(2**64 + 4) + ONE),
        "The payload length is above 2^35 - 1; cut to 64 bits it would be 4.",
        1,
    )
    head = bytes([0, FP32, FLAG_DESCRIBED, TYPE_F32, 1])
    tail = varint(4) + ONE
    out.add(
        "varint-dimension-overlong",
        push(head + b"\x81\x00" + tail),
        "The dimension is not in its shortest form.",
    )
    out.add(
        "varint-dimension-wraps",
        push(head + varint(2**64 + 1) + tail),
        "The dimension is above 2^40; cut to 64 bits it would be 1.",
    )


def rejected_frames(out):
    for codec in (3, 4, 127, 255):
        out.add(f"codec-{codec}", push(frame(0, codec, ONE)), "The codec is reserved.", 1)
    for bit in range(2, 6):
        out.add(
            f"flags-bit-{bit}",
            push(frame(0, FP32, ONE, None, 1 << bit)),
            f"Bit {bit} of the flags is reserved.",
            1,
        )
    out.add(
        "not-finite-3lc",
        push(three_lc_frame(payload_3lc([2]), FLAG_NOT_FINITE)),
        "A frame with the not-finite flag has codec 2.",
        1,
    )
    described = [(kind, description(kind, [1])) for kind in (0, 3, 255)]
    for kind, text in described:
        out.add(
            f"element-type-{kind}", push(frame(0, FP32, ONE, text)), "The element type is reserved."
        )
    for rank in (33, 255):
        text = description(TYPE_F32, [1] * rank)
        out.add(f"rank-{rank}", push(frame(0, FP32, ONE, text)), "The rank is reserved.")


def rejected_dimensions(out):
    for name, dims in [
        ("dimension-above", [2**40 + 1]),
        ("dimension-above-with-zero", [0, 2**40 + 1]),
    ]:
        data = push(frame(0, FP32, b"", description(TYPE_F32, dims)))
        out.add(name, data, "A dimension is above 2^40.")
    for name, dims in [
        ("product-above", [2**40, 2]),
        ("product-above-with-zero-first", [0, 2**40, 2]),
        ("product-above-with-zero-between", [2**40, 0, 2]),
        ("product-above-with-zero-last", [2**21, 2**21, 0]),
        ("product-above-64-bits", [2**40, 2**40, 0]),
        ("product-wraps-to-0", [2**32, 2**32]),
        ("product-rank-32", [2**40] * 32),
    ]:
        data = push(frame(0, FP32, b"", description(TYPE_F32, dims)))
        out.add(name, data, "The product of the dimensions is above 2^40.")
    # (2^32 + 1) (2^32 - 1) is -1 in 64 bits, and its square is 1.
    text = description(TYPE_F32, [2**32 + 1, 2**32 - 1] * 2)
    reason = "The product of the dimensions is above 2^40; cut to 64 bits it would be 1."
    out.add("product-wraps-to-1", push(frame(0, FP32, ONE, text)), reason)


def rejected_fp32(out):
    for length in (0, 3, 5, 7, 8, 12, 16):
        data = push(frame(0, FP32, bytes(length)))
        out.add(
            f"fp32-{length}-bytes", data, f"A tensor of 1 element has {length} bytes of fp32.", 1
        )
    text = description(TYPE_F64, [1])
    out.add(
        "fp32-f64-8-bytes",
        push(frame(0, FP32, bytes(8), text)),
        "Values are f32 in a frame of element type f64 too.",
    )
    text = description(TYPE_F32, [0, 3])
    out.add(
        "fp32-empty-with-payload",
        push(frame(0, FP32, ONE, text)),
        "A tensor without elements has a payload.",
    )
    text = description(TYPE_F32, [])
    out.add(
        "fp32-rank-0-without-payload", push(frame(0, FP32, b"", text)), "Rank 0 is one element."
    )
    text = description(TYPE_F32, [2**40])
    out.add(
        "fp32-huge-without-payload",
        push(frame(0, FP32, b"", text)),
        "2^40 elements have no payload.",
    )


def payload_3lc(digits, layout=0, m=1.5, s=S):
    return three_lc_payload(m, s, digits, layout)


def raw_3lc(body, layout=0, m=b"\0\0\xc0\x3f", s=b"\0\0\xe0\x3f"):
    return m + s + bytes([layout]) + body


def three_lc_frame(payload, flags=0):
    return frame(0, THREE_LC, payload, None, flags)


def rejected_3lc_headers(out):
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
    for bit in range(3, 8):
        add(f"layout-bit-{bit}", raw_3lc(one, 1 << bit), f"Bit {bit} of the layout is reserved.")
    add(
        "long-runs-without-zre", raw_3lc(one, LAYOUT_LONG_RUNS), "Long runs need zero-run encoding."
    )
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
                layout = layout_byte(partitions, False, False)
                out.add(
                    f"padding-{name}-{position}-{wrong}",
                    push(three_lc_frame(raw_3lc(body, layout))),
                    f"The padding digit at position {position} is {wrong}.",
                    6,
                )
        # In both layouts the last digit of the last group is position 14.
        layout = layout_byte(partitions, True, False)
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
    # With the bit these two bytes would be 15 groups of zeros.
    payload = raw_3lc(b"\xff\x01", LAYOUT_ZERO_RUNS)
    reason = "Without long runs 1 after 255 is a group, and its padding digit d3 is 0."
    out.add("zre-long-run-without-bit", push(three_lc_frame(payload)), reason, 73)
    text = description(TYPE_F32, [2**40])
    payload = raw_3lc(bytes([255] * 8), LAYOUT_ZERO_RUNS)
    out.add(
        "zre-huge",
        push(frame(0, THREE_LC, payload, text)),
        "The body stands for 112 groups, and 2^40 elements are due.",
    )


def rejected_long_runs(out):
    layout = LAYOUT_ZERO_RUNS | LAYOUT_LONG_RUNS

    def add(name, body, groups, reason, *more_frames):
        payload = raw_3lc(body, layout)
        out.add(name, push(three_lc_frame(payload), *more_frames), reason, 5 * groups)

    add("long-overlong", b"\xff\x81\x00", 15, "The long run is not in its shortest form.")
    add("long-overlong-zero", b"\xff\x80\x00", 14, "The long run is not in its shortest form.")
    add("long-too-long", b"\xff\x01", 14, "The long run stands for 15 groups and 14 are due.")
    add("long-too-short", b"\xff\x01", 16, "The long run stands for 15 groups and 16 are due.")
    add("long-largest", b"\xff" + varint(2**40), 15, "The long run stands for 2^40 + 14 groups.")
    add("long-above", b"\xff" + varint(2**40 + 1), 15, "The long run is above 2^40.")
    add(
        "long-wraps",
        b"\xff" + varint(2**64 + 1),
        15,
        "The long run is above 2^40; cut to 64 bits it would be 1.",
    )
    add(
        "long-wraps-sum",
        b"\xff" + varint(2**64 - 13),
        1,
        "The long run is above 2^40; with 14 and cut to 64 bits it would be 1.",
    )
    add("long-cut", b"\xff", 14, "The body ends after 255.")
    add("long-cut-in-varint", b"\xff\x81", 15, "The body ends in the long run.")
    # Number 0 of the next frame would be the missing byte.
    add(
        "long-cut-before-frame",
        b"\xff",
        14,
        "The body ends after 255; the next frame is not part of it.",
        frame(0, FP32, bytes(280)),
    )
    add("long-run-after", b"\x00\xff\x00", 1, "There is a run after the last group.")
    add("long-byte-after", b"\xff\x00\x00", 14, "There is a byte after the last group.")
    text = description(TYPE_F32, [2**40])
    payload = raw_3lc(b"\xff" + varint(2**37), layout)
    out.add(
        "long-huge-too-short",
        push(frame(0, THREE_LC, payload, text)),
        "The body stands for 2^37 + 14 groups, and 2^40 elements are due.",
    )


def rejected_contributors(out):
    def add(name, frames, reason, kind=PULL, workers=3):
        out.add(name, message(kind, 0, 5, frames), reason, 1, workers)

    bitmap = frame(0, CONTRIBUTORS, b"\x05")
    other = frame(1, FP32, ONE)
    described = frame(0, CONTRIBUTORS, b"\x05", description(TYPE_F32, [1]))
    add("contributors-described", [described, FRAME], "A contributors frame is described.")
    add(
        "contributors-not-finite",
        [frame(0, CONTRIBUTORS, b"\x05", None, FLAG_NOT_FINITE), FRAME],
        "A contributors frame has the not-finite flag.",
    )
    add("contributors-in-push", [bitmap, FRAME], "A contributors frame is in a push.", PUSH)
    add("contributors-last", [FRAME, bitmap], "No frame follows the contributors frame.")
    add("contributors-alone", [bitmap], "No frame follows the contributors frame.")
    add(
        "contributors-other-tensor", [bitmap, other, FRAME], "The next frame is for another tensor."
    )
    add("contributors-twice", [bitmap, bitmap, FRAME], "The next frame is not a delta.")
    add(
        "contributors-reserved-bit",
        [frame(0, CONTRIBUTORS, b"\x0d"), FRAME],
        "The bit of worker 3 is set, of workers 0 to 2.",
    )
    add(
        "contributors-top-bit",
        [frame(0, CONTRIBUTORS, b"\x85"), FRAME],
        "Bit 7 is set, and there are 3 workers.",
    )
    add(
        "contributors-reserved-bit-9",
        [frame(0, CONTRIBUTORS, b"\xfe\x02"), FRAME],
        "The bit of worker 9 is set, of workers 0 to 8.",
        workers=9,
    )
    add(
        "contributors-all",
        [frame(0, CONTRIBUTORS, b"\x07"), FRAME],
        "Every worker's push was used, so there must be no such frame.",
    )
    add(
        "contributors-empty",
        [frame(0, CONTRIBUTORS, b""), FRAME],
        "The bitmap is empty and 1 byte is due.",
    )
    add(
        "contributors-short",
        [frame(0, CONTRIBUTORS, b"\x05"), FRAME],
        "The bitmap has 1 byte for 9 workers.",
        workers=9,
    )
    add(
        "contributors-long",
        [frame(0, CONTRIBUTORS, b"\x05\x00"), FRAME],
        "The bitmap has 2 bytes for 8 workers.",
        workers=8,
    )


def rejected_kinds(out):
    bitmap = frame(0, CONTRIBUTORS, b"\x05")
    three_lc = frame(0, THREE_LC, payload_3lc([2]), description(TYPE_F32, [1]))
    out.add(
        "done-with-frame", message(DONE, 0, 0, [DESCRIBED_FRAME]), "A done message has a frame."
    )
    for name, kind in [("file", FILE), ("state", STATE)]:
        out.add(f"{name}-without-frame", message(kind, 0, 0, []), f"A {name} has no frame.")
        out.add(
            f"{name}-two-frames",
            message(kind, 0, 0, [DESCRIBED_FRAME] * 2),
            f"A {name} has two frames.",
        )
        out.add(
            f"{name}-not-described",
            message(kind, 0, 0, [FRAME]),
            f"The frame of a {name} is not described.",
            1,
        )
        out.add(
            f"{name}-contributors",
            message(kind, 0, 0, [bitmap]),
            f"The frame of a {name} is a contributors frame.",
            1,
            3,
        )
    out.add(
        "file-contributors-and-frame",
        message(FILE, 0, 0, [bitmap, DESCRIBED_FRAME]),
        "A file has two frames.",
        1,
        3,
    )
    out.add("state-3lc", message(STATE, 0, 0, [three_lc]), "The frame of a state has codec 2.")
    f64 = frame(0, FP32, ONE, description(TYPE_F64, [1]))
    out.add("state-f64", message(STATE, 0, 0, [f64]), "The element type of a state is f64.")
    out.add("file-sender", message(FILE, 1, 0, [DESCRIBED_FRAME]), "The sender of a file is not 0.")
    out.add("file-step", message(FILE, 0, 1, [DESCRIBED_FRAME]), "The step of a file is not 0.")
    numbered = frame(1, FP32, ONE, description(TYPE_F32, [1]))
    out.add("file-tensor", message(FILE, 0, 0, [numbered]), "The tensor number in a file is not 0.")


def rejected_late(out):
    """What is wrong comes last: nothing before it may be believed."""
    bad = three_lc_frame(raw_3lc(bytes([243])))
    out.add(
        "second-frame-bad",
        push(three_lc_frame(payload_3lc([2, 0])), bad),
        "243 in the second frame is not a group.",
        2,
    )


def all_rejected():
    out = Rejections()
    rejected_headers(out)
    rejected_checksums(out)
    rejected_counts(out)
    rejected_truncations(out)
    rejected_varints(out)
    rejected_frames(out)
    rejected_dimensions(out)
    rejected_fp32(out)
    rejected_3lc_headers(out)
    rejected_plain_bodies(out)
    rejected_paddings(out)
    rejected_zero_runs(out)
    rejected_long_runs(out)
    rejected_contributors(out)
    rejected_kinds(out)
    rejected_late(out)
    return out.all_files()


def all_vectors():
    """Every file below vectors/, as {path: bytes}."""
    return all_accepted() | all_rejected()


def main(argv):
    if argv:
        print("make_vectors.py takes no arguments.", file=sys.stderr)
        return 2
    for path, data in all_vectors().items():
        target = os.path.join(VECTORS, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(data)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
