"""Vectors of codecs 3 (terngrad) and 4 (stoch3)."""

import struct

from reference import ternary
from reference.codecs import STOCH3, TERNGRAD
from reference.cursor import varint
from reference.floats import LARGEST_F32, f32
from reference.floats import bytes_of_floats as fp32_payload
from reference.ternary import GROUPS, LAYOUT_BUCKETS, TWO_BITS, ZERO_RUNS
from reference_decoder import FILE, TYPE_F32, TYPE_F64

from .common import (
    BAD_MAGNITUDES,
    FEW_BAD_MAGNITUDES,
    M_LARGEST_DENORMAL,
    M_SMALLEST,
    Part,
    accepted_message,
    accepted_push,
    f32_bytes,
    signed,
)

PACKINGS = {"2bit": TWO_BITS, "base243": GROUPS, "zre": ZERO_RUNS}
LENGTHS = [0, 1, 2, 3, 4, 5, 6, 9, 10, 71, 200]
SCALERS = [0.75, 0.0, 3.0, M_SMALLEST, 0.1, LARGEST_F32, M_LARGEST_DENORMAL, 1.0]


def signs_of(count):
    """Stretches of 0 with + and - between, always the same."""
    signs = []
    while len(signs) < count:
        k = len(signs)
        signs += [1, -1, 0, -1, -1, 0, 1, 1] + [0] * (5 * (k % 4) + k % 3)
    return signs[:count]


def case(packing, signs, scalers, bucket=0):
    """(payload, elements)"""
    scalers = [f32(scaler) for scaler in scalers]
    payload = ternary.payload(packing, bucket, scalers, signs)
    elements = [
        signed(scalers[index // bucket if bucket else 0], sign) for index, sign in enumerate(signs)
    ]
    return payload, elements


# --- Accepted --------------------------------------------------------------


def accepted():
    files = {}
    for name, packing in PACKINGS.items():
        lengths = [case(packing, signs_of(n), [0.3]) for n in LENGTHS]
        files |= accepted_push(f"terngrad-{name}", TERNGRAD, lengths)
        files |= accepted_push(f"terngrad-{name}-buckets", TERNGRAD, bucket_cases(packing))
    return (
        files
        | accepted_push("terngrad-scalers", TERNGRAD, scaler_cases(ZERO_RUNS))
        | accepted_push("terngrad-other-splits", TERNGRAD, other_splits())
        | accepted_push("stoch3", STOCH3, [case(GROUPS, signs_of(n), [0.3]) for n in LENGTHS])
        | accepted_push("stoch3-scalers", STOCH3, scaler_cases(GROUPS))
        | accepted_files()
    )


def bucket_cases(packing):
    cases = [case(packing, [], [], bucket) for bucket in (1, 5)]
    for n, bucket in [(8, 1), (7, 2), (8, 2), (9, 4), (13, 13), (13, 14), (13, 2**40), (300, 128)]:
        count = -(-n // bucket)
        cases.append(case(packing, signs_of(n), SCALERS[:count], bucket))
    return cases


def scaler_cases(packing):
    return [case(packing, signs_of(9), [scaler]) for scaler in SCALERS]


def other_splits():
    """What a writer does not write and a reader does not mind."""
    zeros = [None] * 75
    head = bytes([ZERO_RUNS]) + fp32_payload([1.0])
    bodies = [bytes([121] * 15), bytes([243, 121, 253]), bytes([254, 243]), bytes([121, 255])]
    return [(head + body, zeros) for body in bodies]


def accepted_files():
    files = {}
    for name, element_type in [("f32", TYPE_F32), ("f64", TYPE_F64)]:
        payload, elements = case(ZERO_RUNS, signs_of(60), [0.25, 4.0], 32)
        part = Part(0, TERNGRAD, payload, elements, (element_type, [3, 4, 5]))
        files |= accepted_message(f"terngrad-file-{name}", FILE, [part])
    return files


# --- Rejected --------------------------------------------------------------


def rejected(out):
    rejected_layouts(out)
    rejected_scalers(out)
    rejected_buckets(out)
    rejected_two_bits(out)
    rejected_groups(out)


def rejected_layouts(out):
    one = fp32_payload([1.0])
    out.add_payload("terngrad-empty", TERNGRAD, b"", "The payload is empty.", 0)
    reason = "The packing 3 is reserved."
    out.add_payload("terngrad-packing-3", TERNGRAD, bytes([3]) + one, reason, 0)
    for bit in range(3, 8):
        payload = bytes([1 << bit]) + one + b"\x01"
        reason = f"Bit {bit} of the layout is reserved."
        out.add_payload(f"terngrad-layout-bit-{bit}", TERNGRAD, payload, reason, 1)
    for layout in (TWO_BITS, ZERO_RUNS, 3, GROUPS | 8, GROUPS | 0x80):
        payload = bytes([layout]) + one
        reason = f"The layout of codec 4 is {layout} and not 1."
        out.add_payload(f"stoch3-layout-{layout}", STOCH3, payload, reason, 0)
    payload = bytes([GROUPS | LAYOUT_BUCKETS]) + varint(5) + one + bytes([121])
    out.add_payload("stoch3-buckets", STOCH3, payload, "Codec 4 has no buckets.", 5)


def rejected_scalers(out):
    for codec, name, bad_ones in [
        (TERNGRAD, "terngrad", BAD_MAGNITUDES),
        (STOCH3, "stoch3", FEW_BAD_MAGNITUDES),
    ]:
        for which, bits, what in bad_ones:
            payload = bytes([GROUPS]) + f32_bytes(bits) + bytes([121])
            out.add_payload(f"{name}-scaler-{which}", codec, payload, f"A scaler {what}.", 5)
        payload = bytes([GROUPS, 0, 0, 0x80])
        out.add_payload(f"{name}-scaler-cut", codec, payload, "The scaler is cut off.", 0)
        payload = bytes([GROUPS]) + f32_bytes(0x7FC00000)
        reason = "The scaler is NaN, also where there are no elements."
        out.add_payload(f"{name}-scaler-nan-without-elements", codec, payload, reason, 0)
        payload = bytes([GROUPS])
        reason = "One scaler is due where there are no elements."
        out.add_payload(f"{name}-without-scaler", codec, payload, reason, 0)
    head = bytes([TWO_BITS | LAYOUT_BUCKETS]) + varint(1)
    payload = head + fp32_payload([1.0, -1.0]) + b"\x05"
    out.add_payload("terngrad-second-scaler", TERNGRAD, payload, "A scaler is negative.", 2)


def rejected_buckets(out):
    def add(name, bucket, scalers, reason, elems=3):
        head = bytes([TWO_BITS | LAYOUT_BUCKETS]) + bucket + fp32_payload([1.0] * scalers)
        out.add_payload(f"terngrad-{name}", TERNGRAD, head + bytes((elems + 3) // 4), reason, elems)

    add("bucket-zero", b"\0", 1, "The bucket length is 0.")
    add("bucket-zero-without-elements", b"\0", 0, "The bucket length is 0.", 0)
    add("bucket-above", varint(2**40 + 1), 1, "The bucket length is above 2^40.")
    add("bucket-wraps", varint(2**64 + 3), 1, "Cut to 64 bits the bucket length would be 3.")
    add("bucket-overlong", b"\x83\x00", 1, "The bucket length is not in its shortest form.")
    add("bucket-cut", b"\x83", 0, "The bucket length is cut off.", 0)
    add("scaler-missing", varint(2), 1, "Two buckets have one scaler.")
    add("scaler-left-over", varint(3), 2, "One bucket has two scalers.")
    add("scaler-without-bucket", varint(1), 1, "No bucket has a scaler.", 0)
    payload = bytes([TWO_BITS | LAYOUT_BUCKETS]) + varint(1) + fp32_payload([1.0] * 2)
    out.add_huge("terngrad-huge-buckets", TERNGRAD, payload, "2^40 buckets have 2 scalers.")


def rejected_two_bits(out):
    head = bytes([TWO_BITS]) + fp32_payload([1.0])

    def add(name, body, elems, reason):
        out.add_payload(f"terngrad-2bit-{name}", TERNGRAD, head + body, reason, elems)

    for index in range(4):
        add(f"two-{index}", bytes([2 << 2 * index]), 4, f"Element {index} has the two bits 2.")
    add("two-late", bytes([0, 2]), 5, "Element 4 has the two bits 2.")
    for elems in (1, 2, 3):
        for bit in (2 * elems, 7):
            name = f"left-over-{elems}-{bit}"
            add(name, bytes([1 << bit]), elems, f"Bit {bit} is left over and set.")
    add("short", bytes(1), 5, "The body has 1 byte for 5 elements.")
    add("long", bytes(2), 4, "The body has 2 bytes for 4 elements.")
    add("body-without-elements", bytes(1), 0, "There are no elements, and the body has a byte.")
    out.add_huge("terngrad-2bit-huge", TERNGRAD, head + bytes(9), "2^40 elements have 9 bytes.")


def rejected_groups(out):
    def add(name, packing, body, elems, reason, codec=TERNGRAD):
        payload = struct.pack("<Bf", packing, 1.0) + body
        out.add_payload(name, codec, payload, reason, elems)

    for codec, name in [(TERNGRAD, "terngrad-base243"), (STOCH3, "stoch3")]:
        for value in (243, 255):
            body = bytes([0, value])
            add(f"{name}-byte-{value}", GROUPS, body, 10, f"{value} is not a group.", codec)
        add(f"{name}-short", GROUPS, bytes(1), 6, "There is 1 byte for 2 groups.", codec)
        add(f"{name}-long", GROUPS, bytes(2), 5, "There are 2 bytes for 1 group.", codec)
        reason = "The padding digit at position 6 is not 1."
        add(f"{name}-padding", GROUPS, bytes([121, 121 - 27]), 6, reason, codec)
        reason = "The padding digit at position 9 is not 1."
        add(f"{name}-padding-last", GROUPS, bytes([121, 122]), 9, reason, codec)
    add("terngrad-zre-too-long", ZERO_RUNS, b"\xff", 65, "The run is longer than the body.")
    add("terngrad-zre-too-short", ZERO_RUNS, b"\xff", 75, "14 groups of 15 are there.")
    add("terngrad-zre-after", ZERO_RUNS, b"\xff\x79", 70, "A byte follows the last group.")
    add("terngrad-zre-empty", ZERO_RUNS, b"", 1, "The body is empty and 1 group is due.")
    add("terngrad-zre-padding", ZERO_RUNS, b"\xf3\x7a", 14, "The padding after a run is not 1.")
    reason = "The last of 15 groups is of value 0, and so its padding digit is 0."
    add("terngrad-zre-padding-after-255", ZERO_RUNS, b"\xff\x00", 74, reason)
    payload = struct.pack("<Bf", ZERO_RUNS, 1.0) + b"\xff" * 9
    out.add_huge("terngrad-zre-huge", TERNGRAD, payload, "2^40 elements have 126 groups.")
