"""Vectors of the codecs with a fixed number of bits an element: 12, 13, 14, 16, 17 and 18."""

import struct

from reference.bits import fields_as_bytes
from reference.codecs import BF16, FP16, INT8, MQE1BIT, SIGNSGD, TRUNCATE
from reference.floats import LARGEST_F32, LARGEST_SCALE, bits_of, f32
from reference.floats import bytes_of_floats as fp32_payload
from reference_decoder import FILE, TYPE_F64

from .common import (
    BAD_MAGNITUDES,
    INFINITE,
    M_LARGEST_DENORMAL,
    M_SMALLEST,
    MINUS_ZERO,
    NOT_FINITE,
    QUIET_NAN,
    SIGN,
    Part,
    accepted_message,
    accepted_push,
    f32_bytes,
)

SCALES = [0.0, M_SMALLEST, M_LARGEST_DENORMAL, 0.1, 1.0, 127.0, 1e-37]
BIT_LENGTHS = [0, 1, 7, 8, 9, 16, 17, 100]


def accepted():
    return accepted_int8() | accepted_signs() | accepted_truncate() | accepted_halves()


def rejected(out):
    rejected_int8(out)
    rejected_signs(out)
    rejected_truncate(out)
    rejected_halves(out)


# --- int8 ------------------------------------------------------------------


def int8_case(m, numbers):
    """(payload, elements)"""
    m = f32(m)
    step = f32(m / 127)
    payload = struct.pack(f"<f{len(numbers)}b", m, *numbers)
    return payload, [bits_of(f32(q * step)) for q in numbers]


def accepted_int8():
    everything = list(range(-127, 128))
    cases = [int8_case(m, everything) for m in SCALES]
    cases += [int8_case(0.3, [(7 * k) % 255 - 127 for k in range(n)]) for n in BIT_LENGTHS]
    cases.append(int8_case(LARGEST_SCALE, everything))
    # Only a writer keeps to L: 127 times the rounded 127-th part overflows here.
    cases.append(int8_case(LARGEST_F32, everything))
    files = accepted_push("int8", INT8, cases)
    payload, elements = int8_case(0.3, [1, -1, 0, 127, -127, 64])
    part = Part(0, INT8, payload, elements, (TYPE_F64, [2, 3]))
    return files | accepted_message("int8-file-f64", FILE, [part])


def rejected_int8(out):
    one = fp32_payload([1.0])
    for which, bits, what in BAD_MAGNITUDES:
        out.add_payload(f"int8-m-{which}", INT8, f32_bytes(bits) + b"\x01", f"m {what}.", 1)
        if which == "nan":
            reason = "m is NaN, also where there are no elements."
            out.add_payload("int8-m-nan-without-elements", INT8, f32_bytes(bits), reason, 0)
    for where in (0, 5, 99):
        body = bytearray(100)
        body[where] = 0x80
        reason = f"Element {where} is -128."
        out.add_payload(f"int8-minus-128-at-{where}", INT8, one + bytes(body), reason, 100)
    out.add_payload("int8-empty", INT8, b"", "The payload is empty.", 0)
    out.add_payload("int8-m-cut", INT8, one[:3], "m is cut off.", 0)
    out.add_cuts_and_tails("int8", INT8, one + bytes(9), 9)
    reason = "There are no elements, and the body has a byte."
    out.add_payload("int8-without-elements", INT8, one + b"\0", reason, 0)
    out.add_huge("int8-huge", INT8, one + bytes(9), "2^40 elements have 9 bytes.")


# --- signs -----------------------------------------------------------------


def signs_case(codec, n, plus, minus=None):
    """(payload, elements)"""
    negative = [k % 3 == 1 or k % 7 > 4 for k in range(n)]
    plus_bits = bits_of(f32(plus))
    minus_bits = plus_bits | SIGN if minus is None else bits_of(f32(minus))
    head = f32_bytes(plus_bits) + (f32_bytes(minus_bits) if codec == MQE1BIT else b"")
    return head + fields_as_bytes(negative, 1), [minus_bits if b else plus_bits for b in negative]


def accepted_signs():
    means = [(0.7, -0.2), (0.0, 0.0), (-0.0, -0.0), (-1.0, 2.0), (1.0, 1.0), (M_SMALLEST, -1e30)]
    means += [(LARGEST_F32, -LARGEST_F32)]
    lengths = [signs_case(MQE1BIT, n, 0.7, -0.2) for n in BIT_LENGTHS]
    files = accepted_push("mqe1bit-lengths", MQE1BIT, lengths)
    files |= accepted_push("mqe1bit-means", MQE1BIT, [signs_case(MQE1BIT, 9, *m) for m in means])
    lengths = [signs_case(SIGNSGD, n, 0.7) for n in BIT_LENGTHS]
    files |= accepted_push("signsgd-lengths", SIGNSGD, lengths)
    means = [signs_case(SIGNSGD, 9, m) for m in [*SCALES, LARGEST_F32]]
    files |= accepted_push("signsgd-means", SIGNSGD, means)
    for name, codec, case in [
        ("mqe1bit", MQE1BIT, signs_case(MQE1BIT, 12, 0.5, -0.25)),
        ("signsgd", SIGNSGD, signs_case(SIGNSGD, 12, 0.5)),
    ]:
        part = Part(0, codec, *case, (TYPE_F64, [3, 4]))
        files |= accepted_message(f"{name}-file-f64", FILE, [part])
    return files


def rejected_signs(out):
    one = fp32_payload([1.0])
    for which, bits, what in NOT_FINITE:
        bad = f32_bytes(bits)
        out.add_payload(f"mqe1bit-plus-{which}", MQE1BIT, bad + one + b"\0", f"Plus {what}.", 1)
        out.add_payload(f"mqe1bit-minus-{which}", MQE1BIT, one + bad + b"\0", f"Minus {what}.", 1)
    for which, bits, what in BAD_MAGNITUDES:
        payload = f32_bytes(bits) + b"\0"
        out.add_payload(f"signsgd-plus-{which}", SIGNSGD, payload, f"Plus {what}.", 1)
    for name, codec, head in [("mqe1bit", MQE1BIT, one * 2), ("signsgd", SIGNSGD, one)]:
        out.add_payload(f"{name}-empty", codec, b"", "The payload is empty.", 0)
        out.add_payload(f"{name}-head-cut", codec, head[:-1], "The head is cut off.", 0)
        out.add_cuts_and_tails(name, codec, head + bytes(2), 9)
        for elems in (1, 7):
            for bit in sorted({elems, 7}):
                reason = f"Bit {bit} is left over and set."
                payload = head + bytes([1 << bit])
                out.add_payload(f"{name}-left-over-{elems}-{bit}", codec, payload, reason, elems)
        reason = "There are no elements, and the body has a byte."
        out.add_payload(f"{name}-without-elements", codec, head + b"\0", reason, 0)
        out.add_huge(f"{name}-huge", codec, head + bytes(9), "2^40 elements have 9 bytes.")


# --- truncate --------------------------------------------------------------

# Every bit of the upper half in turn, and values of all kinds.
PATTERNS = [1 << bit for bit in range(8, 32)] + [
    0,
    0x3F800000,
    0xC0490FDB,
    0x7F7FFFFF,
    INFINITE,
    SIGN | INFINITE,
    0x7FC00000,
    0xFFE10000,
    0x3EAAAAAB,
]


def truncate_case(dropped, patterns):
    """(payload, elements)"""
    fields = [bits >> dropped for bits in patterns]
    payload = bytes([dropped]) + fields_as_bytes(fields, 32 - dropped)
    return payload, [field << dropped for field in fields]


def accepted_truncate():
    files = {}
    for dropped in (16, 22, 24):
        finite = [p for p in PATTERNS if p & INFINITE != INFINITE]
        cases = [truncate_case(dropped, finite[:n]) for n in range(10)]
        cases.append(truncate_case(dropped, finite))
        files |= accepted_push(f"truncate-{dropped}", TRUNCATE, cases)
        any_bits = [truncate_case(dropped, PATTERNS)]
        files |= accepted_push(f"truncate-{dropped}-any-bits", TRUNCATE, any_bits, with_adds=False)
    part = Part(0, TRUNCATE, *truncate_case(22, [0x3F800000] * 6), (TYPE_F64, [2, 3]))
    return files | accepted_message("truncate-file-f64", FILE, [part])


def rejected_truncate(out):
    out.add_payload("truncate-empty", TRUNCATE, b"", "The payload is empty.", 0)
    for dropped in (0, 8, 15, 17, 21, 23, 25, 32, 48, 255):
        payload = bytes([dropped])
        reason = f"The number of bits {dropped} is reserved."
        out.add_payload(f"truncate-bits-{dropped}", TRUNCATE, payload, reason, 0)
    for dropped, elems in [(16, 3), (22, 3), (24, 3), (22, 4)]:
        body = bytes((elems * (32 - dropped) + 7) // 8)
        payload = bytes([dropped]) + body
        out.add_cuts_and_tails(f"truncate-{dropped}-{elems}", TRUNCATE, payload, elems)
    for elems, bit in [(1, 10), (1, 15), (2, 20), (2, 23), (3, 30), (3, 31)]:
        payload = b"\x16" + (1 << bit).to_bytes((10 * elems + 7) // 8, "little")
        reason = f"Bit {bit} is left over and set."
        out.add_payload(f"truncate-left-over-{elems}-{bit}", TRUNCATE, payload, reason, elems)
    reason = "There are no elements, and the body has a byte."
    out.add_payload("truncate-without-elements", TRUNCATE, b"\x10\0", reason, 0)
    out.add_huge("truncate-huge", TRUNCATE, b"\x16" + bytes(9), "2^40 elements have 9 bytes.")


# --- fp16 and bf16 ---------------------------------------------------------

# (half, f32 bits): zeros, denormals' ends, normals' ends, 1 and its neighbours, infinities, NaNs.
FP16_VALUES = [
    (0x0000, 0),
    (0x8000, MINUS_ZERO),
    (0x0001, 0x33800000),
    (0x8001, 0xB3800000),
    (0x0002, 0x34000000),
    (0x0003, 0x34400000),
    (0x0200, 0x38000000),
    (0x03FF, 0x387FC000),
    (0x0400, 0x38800000),
    (0x3BFF, 0x3F7FE000),
    (0x3C00, 0x3F800000),
    (0x3C01, 0x3F802000),
    (0xC000, 0xC0000000),
    (0x5555, 0x42AAA000),
    (0x7BFF, 0x477FE000),
    (0xFBFF, 0xC77FE000),
]
FP16_SPECIALS = [(0x7C00, INFINITE), (0xFC00, SIGN | INFINITE)]
FP16_NANS = [(half, QUIET_NAN) for half in (0x7C01, 0x7DFF, 0x7E00, 0x7FFF, 0xFC01, 0xFFFF)]

BF16_VALUES = [0, 1, 0x007F, 0x0080, 0x3F7F, 0x3F80, 0x3F81, 0x4049, 0x7F7F]
BF16_NANS = [(half, QUIET_NAN) for half in (0x7F81, 0x7FC0, 0x7FFF, 0xFF81, 0xFFFF)]


def halves_case(pairs):
    """(payload, elements)"""
    return struct.pack(f"<{len(pairs)}H", *[half for half, _ in pairs]), [bits for _, bits in pairs]


def accepted_halves():
    signed_halves = [half | sign for half in BF16_VALUES for sign in (0, 0x8000)]
    bf16_values = [(half, half << 16) for half in signed_halves]
    bf16_specials = [(0x7F80, INFINITE), (0xFF80, SIGN | INFINITE)]
    files = {}
    for name, codec, values, specials in [
        ("fp16", FP16, FP16_VALUES, FP16_SPECIALS + FP16_NANS),
        ("bf16", BF16, bf16_values, bf16_specials + BF16_NANS),
    ]:
        cases = [halves_case(values[:n]) for n in (0, 1, 2, 7, 8, 9, len(values))]
        files |= accepted_push(name, codec, cases)
        cases = [halves_case(specials), halves_case(values + specials)]
        files |= accepted_push(f"{name}-specials", codec, cases, with_adds=False)
        part = Part(0, codec, *halves_case(values[:6]), (TYPE_F64, [2, 3]))
        files |= accepted_message(f"{name}-file-f64", FILE, [part])
    return files


def rejected_halves(out):
    for name, codec in [("fp16", FP16), ("bf16", BF16)]:
        out.add_cuts_and_tails(name, codec, bytes(6), 3)
        out.add_payload(f"{name}-missing", codec, b"", "The payload is empty.", 1)
        out.add_payload(f"{name}-element-missing", codec, bytes(4), "One of 3 is missing.", 3)
        out.add_payload(f"{name}-element-left-over", codec, bytes(8), "There are 4 of 3.", 3)
        reason = "There are no elements, and the payload has two bytes."
        out.add_payload(f"{name}-without-elements", codec, bytes(2), reason, 0)
        out.add_huge(f"{name}-huge", codec, bytes(10), "2^40 elements have 10 bytes.")
