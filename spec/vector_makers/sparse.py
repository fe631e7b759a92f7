"""Vectors of codecs 8 (adacomp), 9 (local-selection), 10 (dryden) and 11 (topk)."""

import struct

from reference import topk
from reference.bits import BitWriter
from reference.codecs import ADACOMP, DRYDEN, LOCAL_SELECTION, TOPK
from reference.cursor import varint
from reference.floats import LARGEST_F32, bits_of, f32
from reference.floats import bytes_of_floats as fp32_payload
from reference.positions import gaps_of, write_gap
from reference.topk import BITMAP, GAPS
from reference_decoder import FILE, TYPE_F64

from .common import (
    BAD_MAGNITUDES,
    FEW_BAD_MAGNITUDES,
    INFINITE,
    M_SMALLEST,
    MINUS_ZERO,
    NOT_FINITE,
    QUIET_NAN,
    SIGN,
    SIGNALLING_NAN,
    Part,
    accepted_message,
    accepted_push,
    f32_bytes,
)

SPARSE = {"adacomp": ADACOMP, "local-selection": LOCAL_SELECTION, "dryden": DRYDEN}
# (n, k, positions): nothing, everything, edges, long gaps in all forms, the largest k.
SELECTIONS = [
    (0, 0, []),
    (1, 0, []),
    (1, 0, [0]),
    (2, 0, [1]),
    (7, 39, []),
    (8, 0, [0, 1, 2, 3, 4, 5, 6, 7]),
    (9, 1, [0, 8]),
    (9, 2, [3, 4, 8]),
    (300, 0, [299]),
    (300, 1, [0, 255, 299]),
    (300, 5, [31, 32, 64, 100, 299]),
    (300, 8, [7, 264]),
    (300, 39, [0, 10, 299]),
    (300, 4, [17 * index for index in range(17)]),
]


def named(n, positions, bits):
    elements = [None] * n
    for position, its_bits in zip(positions, bits):
        elements[position] = its_bits
    return elements


def rice_codes(positions, k, negative=None):
    """negative: a bit for each element after its code, or none for topk."""
    writer = BitWriter()
    for index, gap in enumerate(gaps_of(positions)):
        write_gap(writer, gap, k)
        if negative is not None:
            writer.field(negative[index], 1)
    return writer.bytes()


def sparse_body(k, positions, negative):
    return varint(len(positions)) + bytes([k]) + rice_codes(positions, k, negative)


def sparse_case(codec, n, k, positions, plus=0.75, minus=-0.25):
    """(payload, elements); minus is for dryden, the others send plus alone."""
    plus, minus = bits_of(f32(plus)), bits_of(f32(minus))
    if codec != DRYDEN:
        minus = plus | SIGN
    negative = [position % 3 == 1 for position in positions]
    head = f32_bytes(plus) + (f32_bytes(minus) if codec == DRYDEN else b"")
    elements = named(n, positions, [minus if bit else plus for bit in negative])
    return head + sparse_body(k, positions, negative), elements


def topk_case(layout, n, k, positions, bits=None):
    """(payload, elements)"""
    if bits is None:
        bits = [bits_of(f32(0.3 * position - 2)) for position in positions]
    where = topk.bitmap_bytes(positions, n)
    if layout == GAPS:
        where = bytes([k]) + rice_codes(positions, k)
    values = struct.pack(f"<{len(bits)}I", *bits)
    return bytes([layout]) + varint(len(bits)) + values + where, named(n, positions, bits)


# --- Accepted --------------------------------------------------------------


def accepted():
    files = {}
    for name, codec in SPARSE.items():
        cases = [sparse_case(codec, *selection) for selection in SELECTIONS]
        files |= accepted_push(name, codec, cases)
        some = (9, 1, [0, 1, 2, 3, 8])
        scales = [0.0, M_SMALLEST, LARGEST_F32, 0.1]
        cases = [sparse_case(codec, *some, scale) for scale in scales]
        files |= accepted_push(f"{name}-scales", codec, cases)
        payload, elements = sparse_case(codec, 300, 5, [31, 32, 299])
        part = Part(0, codec, payload, elements, (TYPE_F64, [30, 10]))
        files |= accepted_message(f"{name}-file-f64", FILE, [part])
    for name, layout in [("bitmap", BITMAP), ("gaps", GAPS)]:
        cases = [topk_case(layout, *selection) for selection in SELECTIONS]
        files |= accepted_push(f"topk-{name}", TOPK, cases)
    return files | accepted_signs() | accepted_any_bits()


def accepted_signs():
    """dryden's two means may be of any sign."""
    some = (9, 1, [0, 1, 2, 3, 8])
    means = [(-1.5, 2.5), (-0.0, 0.0), (0.0, -0.0), (2.0, 2.0), (-LARGEST_F32, LARGEST_F32)]
    return accepted_push("dryden-signs", DRYDEN, [sparse_case(DRYDEN, *some, *m) for m in means])


def accepted_any_bits():
    bits = [0, MINUS_ZERO, 1, INFINITE, SIGN | INFINITE, QUIET_NAN, SIGNALLING_NAN, 0x7F7FFFFF]
    positions = [0, 2, 3, 4, 6, 7, 11, 12]
    cases = [topk_case(layout, 13, 0, positions, bits) for layout in (BITMAP, GAPS)]
    return accepted_push("topk-any-bits", TOPK, cases, with_adds=False)


# --- Rejected --------------------------------------------------------------


def rejected(out):
    rejected_scales(out)
    for name, codec, head in [
        ("adacomp", ADACOMP, fp32_payload([1.0])),
        ("dryden", DRYDEN, fp32_payload([1.0, -1.0])),
    ]:
        out.add_payload(f"{name}-empty", codec, b"", "The payload is empty.", 0)
        out.add_payload(f"{name}-scale-cut", codec, head[:-1], "The scale is cut off.", 0)
        rejected_sparse(out, name, codec, lambda _, head=head: head)
        tail = varint(2**40) + b"\0" + bytes(9)
        out.add_huge(f"{name}-huge", codec, head + tail, "No bit is one.")
    reason = "The element 4 is named, of 4."
    payload = fp32_payload([1.0]) + sparse_body(0, [4], [0])
    out.add_payload("local-selection-position-at-n", LOCAL_SELECTION, payload, reason, 4)
    rejected_topk_heads(out)
    rejected_bitmaps(out)
    rejected_gaps(out)


def rejected_scales(out):
    body = sparse_body(0, [0], [0])
    for name, codec, bad_ones in [
        ("adacomp", ADACOMP, BAD_MAGNITUDES),
        ("local-selection", LOCAL_SELECTION, FEW_BAD_MAGNITUDES),
    ]:
        for which, bits, what in bad_ones:
            payload = f32_bytes(bits) + body
            out.add_payload(f"{name}-scale-{which}", codec, payload, f"The scale {what}.", 1)
    for which, bits, what in NOT_FINITE:
        bad, one = f32_bytes(bits), fp32_payload([1.0])
        out.add_payload(f"dryden-plus-{which}", DRYDEN, bad + one + body, f"Plus {what}.", 1)
        out.add_payload(f"dryden-minus-{which}", DRYDEN, one + bad + body, f"Minus {what}.", 1)
    reason = "The scale is NaN, also where nothing is sent."
    payload = f32_bytes(QUIET_NAN) + sparse_body(0, [], [])
    out.add_payload("adacomp-scale-nan-alone", ADACOMP, payload, reason, 0)
    out.add_payload("dryden-one-mean", DRYDEN, fp32_payload([1.0]) + body, "Minus is missing.", 1)


def rejected_sparse(out, name, codec, head):
    """What may be wrong from the count on; head(elems) is what goes before it."""

    def add(what, tail, elems, reason):
        out.add_payload(f"{name}-{what}", codec, head(elems) + tail, reason, elems)

    add("count-missing", b"", 0, "The count is missing.")
    add("k-missing", varint(0), 0, "k is missing.")
    everything = sparse_body(0, [0, 1, 2], [0, 0, 0])
    add("count-above", everything, 2, "The count is 3 of 2 elements.")
    add("count-above-without-elements", sparse_body(0, [0], [0]), 0, "The count is 1 of none.")
    add("count-overlong", b"\x80\x00\x00", 4, "The count is not in its shortest form.")
    add("count-wraps", varint(2**64) + b"\0", 4, "The count is above n; cut to 64 bits it is 0.")
    for k in (40, 64, 255):
        add(f"k-{k}", sparse_body(0, [], [])[:1] + bytes([k]), 4, f"k is {k}.")
    add("position-at-n", sparse_body(0, [4], [0]), 4, "The element 4 is named, of 4.")
    add("position-past-n", sparse_body(1, [1, 9], [0, 1]), 8, "The element 9 is named, of 8.")
    add("position-far", sparse_body(39, [2**39 - 1], [0]), 8, "The gap is 2^39 - 1.")
    reason = "The gap is 2^39; cut to 32 bits it would be 0."
    add("position-wraps", sparse_body(39, [2**39], [0]), 8, reason)
    add("no-one-bit", varint(1) + b"\0" + bytes(9), 8, "No bit is one.")
    add("code-missing", varint(2) + bytes([0]) + b"\x01", 9, "The second code is missing.")
    add("code-cut", varint(1) + bytes([9]) + b"\x01", 400, "The gap's field is cut off.")
    add("sign-missing", varint(1) + bytes([7]) + b"\x01", 200, "The sign is missing.")
    add("body-missing", varint(1) + bytes([0]), 9, "The body is missing.")
    add("bit-left-over", varint(1) + bytes([0]) + b"\x05", 9, "Bit 2 is left over and set.")
    add("bit-left-over-last", varint(1) + bytes([0]) + b"\x81", 9, "Bit 7 is left over and set.")
    add("byte-left-over", varint(1) + bytes([0]) + b"\x01\x00", 9, "A byte is left over.")
    add("byte-where-nothing-is-sent", sparse_body(0, [], []) + b"\0", 9, "A byte is left over.")


def rejected_topk_heads(out):
    def add(name, payload, reason, elems=1):
        out.add_payload(f"topk-{name}", TOPK, payload, reason, elems)

    add("empty", b"", "The payload is empty.", 0)
    value = fp32_payload([1.0])
    for layout in (2, 3, 4, 128, 255):
        add(f"layout-{layout}", bytes([layout, 1]) + value + b"\x01", "The layout is reserved.")
    add("count-missing", b"\0", "The count is missing.", 0)
    for name, layout in [("bitmap", BITMAP), ("gaps", GAPS)]:
        where = b"\x07" if layout == BITMAP else b"\x00\x07"
        payload = bytes([layout, 3]) + value * 3 + where
        add(f"{name}-count-above", payload, "The count is 3 of 2 elements.", 2)
        payload = bytes([layout]) + b"\x81\x00" + value + where[:-1] + b"\x01"
        add(f"{name}-count-overlong", payload, "The count is not in its shortest form.", 4)
        payload = bytes([layout, 2]) + value + value[:3]
        add(f"{name}-values-cut", payload, "The second value is cut off.", 4)
        payload = bytes([layout]) + varint(2**40) + value
        out.add_huge(f"topk-{name}-huge-count", TOPK, payload, "2^40 values have 4 bytes.")


def rejected_bitmaps(out):
    def add(name, count, bitmap, elems, reason):
        payload = bytes([BITMAP, count]) + fp32_payload([1.0] * count) + bitmap
        out.add_payload(f"topk-bitmap-{name}", TOPK, payload, reason, elems)

    add("more-bits", 1, b"\x03", 4, "Two bits are set for one value.")
    add("fewer-bits", 2, b"\x04", 4, "One bit is set for two values.")
    add("no-bits", 1, b"\x00", 8, "No bit is set for one value.")
    add("bits-without-values", 0, b"\x80", 8, "A bit is set, and there are no values.")
    add("bit-past-end", 1, b"\x10", 4, "The bit of element 4 is set, of 4.")
    add("bit-past-end-as-well", 1, b"\x81", 7, "Bit 7 is left over and set.")
    add("bit-past-end-second-byte", 1, b"\x00\x02", 9, "The bit of element 9 is set, of 9.")
    add("short", 1, b"\x01", 9, "The bitmap has 1 byte for 9 elements.")
    add("long", 1, b"\x01\x00", 8, "The bitmap has 2 bytes for 8 elements.")
    add("missing", 1, b"", 8, "The bitmap is missing.")
    add("without-elements", 0, b"\0", 0, "There are no elements, and the bitmap has a byte.")
    payload = bytes([BITMAP, 0]) + bytes(9)
    out.add_huge("topk-bitmap-huge", TOPK, payload, "The bitmap has 9 bytes for 2^40 elements.")


def rejected_gaps(out):
    def add(name, count, where, elems, reason):
        payload = bytes([GAPS, count]) + fp32_payload([1.0] * count) + where
        out.add_payload(f"topk-gaps-{name}", TOPK, payload, reason, elems)

    add("k-missing", 0, b"", 4, "k is missing.")
    for k in (40, 255):
        add(f"k-{k}", 0, bytes([k]), 4, f"k is {k}.")
        add(f"k-{k}-with-code", 1, bytes([k]) + b"\x01" + bytes(40), 4, f"k is {k}.")
    add("position-at-n", 1, b"\0" + rice_codes([4], 0), 4, "The element 4 is named, of 4.")
    add("position-past-n", 2, b"\1" + rice_codes([0, 9], 1), 8, "The element 9 is named, of 8.")
    add("position-far", 1, b"\x27" + rice_codes([2**39 - 1], 39), 8, "The gap is 2^39 - 1.")
    reason = "The gap is 2^39; cut to 32 bits it would be 0."
    add("position-wraps", 1, b"\x27" + rice_codes([2**39], 39), 8, reason)
    add("code-missing", 9, b"\0\xff", 9, "The ninth code is missing.")
    add("code-cut", 1, b"\x09\x01", 400, "The gap's field is cut off.")
    add("no-one-bit", 1, b"\0\0\0", 400, "No bit is one.")
    add("bit-left-over", 1, b"\0\x03", 4, "Bit 1 is left over and set.")
    add("byte-left-over", 1, b"\0\x01\x00", 4, "A byte is left over.")
    add("byte-without-values", 0, b"\0\0", 4, "A byte is left over.")
