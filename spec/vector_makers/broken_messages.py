"""Rejected messages: everything before a payload, contributors and fp32."""

import math
import struct

from reference.codecs import FP32, THREE_LC
from reference.cursor import varint
from reference.xxh64 import xxh64
from reference_decoder import (
    AGREEMENT,
    CHECKSUM,
    CONTRIBUTORS,
    DONE,
    FILE,
    FINITENESS,
    FLAG_DESCRIBED,
    FLAG_NOT_FINITE,
    FLAG_PART,
    KIND_NAMES,
    OFFER,
    PULL,
    PUSH,
    STATE,
    TYPE_F32,
    TYPE_F64,
    VERSION,
)
from reference_encoder import description, frame, message, sealed

from .common import DESCRIBED_FRAME, FRAME, ONE, as_version_1, push
from .three_lc import payload_3lc, raw_3lc, three_lc_frame


def rejected(out):
    rejected_headers(out)
    rejected_checksums(out)
    rejected_counts(out)
    rejected_truncations(out)
    rejected_varints(out)
    rejected_frames(out)
    rejected_dimensions(out)
    rejected_fp32(out)
    rejected_contributors(out)
    rejected_kinds(out)
    rejected_scalers(out)
    rejected_sums(out)
    rejected_finiteness(out)
    rejected_late(out)


def header(magic=b"TW", version=VERSION, kind=PUSH, sender=0, step=0, count=0):
    return struct.pack("<2sBBIQI", magic, version, kind, sender, step, count)


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
    for version in (0, 1, 3, 255):
        out.add(f"version-{version}", sealed(header(version=version), []), "The version is not 2.")
    for kind in KIND_NAMES:
        if kind not in (FILE, STATE):
            name = f"version-1-{KIND_NAMES[kind]}"
            reason = "The version is 1, in no file and no state."
            out.add(name, sealed(header(version=1, kind=kind), []), reason)
    numbered = frame(0, FP32, ONE, description(TYPE_F32, [1]), part=1)
    for kind in (FILE, STATE):
        name = f"version-1-{KIND_NAMES[kind]}-part"
        out.add(name, as_version_1(message(kind, 0, 0, [numbered])), "The frame names a part.")
    for kind in (0, 10, 255):
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
    for codec in (19, 20, 127, 255):
        out.add(f"codec-{codec}", push(frame(0, codec, ONE)), "The codec is reserved.", 1)
    for bit in range(3, 6):
        reason = f"Bit {bit} of the flags is reserved" + (" but in files and states." if bit == 3 else ".")
        out.add(f"flags-bit-{bit}", push(frame(0, FP32, ONE, None, 1 << bit)), reason, 1)
    out.add(
        "not-finite-3lc",
        push(three_lc_frame(payload_3lc([2]), FLAG_NOT_FINITE)),
        "A frame with the not-finite flag has codec 2.",
        1,
    )
    for name, part, reason in [
        ("0", b"\x00", "The part number is 0, which the flag alone says."),
        ("overlong", b"\x81\x00", "The part number is not in its shortest form."),
        ("above", varint(2**32), "The part number is above 2^32 - 1."),
    ]:
        data = push(bytes([0, FP32, FLAG_PART]) + part + varint(len(ONE)) + ONE)
        out.add(f"part-{name}", data, reason, 1)
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
    add(
        "contributors-other-part",
        [bitmap, frame(0, FP32, ONE, part=1), FRAME],
        "The next frame is for another part.",
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


def scalers(*values):
    return struct.pack(f"<{len(values)}f", *values)


def rejected_scalers(out):
    good = frame(1, FP32, scalers(1.0))
    cases = {
        "none": ([], "There are no scalers."),
        "empty": ([frame(1, FP32, b"")], "A tensor has a frame and no scaler."),
        "cut": ([frame(1, FP32, scalers(1.0)[:3])], "Three bytes are no scaler."),
        "negative": ([frame(1, FP32, scalers(1.0, -1.0))], "A scaler is negative."),
        "minus-zero": ([frame(1, FP32, scalers(-0.0))], "A scaler is -0."),
        "nan": ([frame(1, FP32, scalers(math.nan))], "A scaler is a NaN."),
        "twice": ([good, good], "A tensor has two frames."),
        "part-twice": (
            [frame(1, FP32, scalers(1.0), part=2)] * 2,
            "A part has two frames.",
        ),
        "described": ([DESCRIBED_FRAME], "The frame is described."),
        "not-finite": (
            [frame(1, FP32, scalers(math.inf), flags=FLAG_NOT_FINITE)],
            "The frame is marked as not finite.",
        ),
        "3lc": ([frame(1, THREE_LC, payload_3lc([2]))], "The frame is not fp32."),
    }
    for name, (frames, reason) in cases.items():
        for kind in (OFFER, AGREEMENT):
            kind_name = KIND_NAMES[kind]
            out.add(f"{kind_name}-{name}", message(kind, 1, 5, frames), reason)


def rejected_sums(out):
    good = frame(0, FP32, bytes(8))
    cases = {
        "none": ([], "There is no frame."),
        "two": ([good, good], "There are two frames."),
        "short": ([frame(0, FP32, bytes(4))], "The checksum has 4 bytes."),
        "long": ([frame(0, FP32, bytes(12))], "The checksum has 12 bytes."),
        "tensor": ([frame(1, FP32, bytes(8))], "The tensor's number is not 0."),
        "part": ([frame(0, FP32, bytes(8), part=1)], "The frame names a part."),
        "not-finite": ([frame(0, FP32, bytes(8), flags=FLAG_NOT_FINITE)], "The frame is marked."),
    }
    for name, (frames, reason) in cases.items():
        out.add(f"parameters-checksum-{name}", message(CHECKSUM, 1, 5, frames), reason)


def rejected_finiteness(out):
    word = frame(2, FP32, bytes(4))
    cases = {
        "none": ([], "There is no frame."),
        "two": ([word, word], "There are two frames."),
        "empty": ([frame(2, FP32, b"")], "There is no word."),
        "cut": ([frame(2, FP32, bytes(7))], "The second word is cut off."),
        "part": ([frame(2, FP32, bytes(4), part=1)], "The frame names a part."),
        "described": ([DESCRIBED_FRAME], "The frame is described."),
        "not-finite": ([frame(2, FP32, bytes(4), flags=FLAG_NOT_FINITE)], "The frame is marked."),
        "3lc": ([frame(2, THREE_LC, payload_3lc([2]))], "The frame is not fp32."),
        "contributors": ([frame(2, CONTRIBUTORS, b"\x05")], "The frame is a contributors frame."),
    }
    for name, (frames, reason) in cases.items():
        out.add(f"finiteness-{name}", message(FINITENESS, 1, 5, frames), reason)


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
    of_part = frame(0, FP32, ONE, description(TYPE_F32, [1]), part=1)
    out.add("file-part", message(FILE, 0, 0, [of_part]), "The frame of a file names a part.")
    out.add("state-part", message(STATE, 0, 0, [of_part]), "The frame of a state names a part.")
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
