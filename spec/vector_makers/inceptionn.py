"""Vectors of codec 7 (inceptionn)."""

import struct

from reference import inceptionn
from reference.codecs import INCEPTIONN
from reference.inceptionn import LAYOUT_BOUNDED
from reference_decoder import FILE, TYPE_F64

from .common import (
    INFINITE,
    MINUS_ZERO,
    QUIET_NAN,
    SIGN,
    SIGNALLING_NAN,
    Part,
    accepted_message,
    accepted_push,
)

# (tag, data): all tags, largest and smallest v, either sign, v = 0 with either sign.
CLASSES = [
    (1, 0x01),
    (0, 0),
    (2, 0x0001),
    (3, 0x3F800000),
    (1, 0x81),
    (2, 0x8001),
    (1, 0x7F),
    (1, 0xFF),
    (2, 0x7FFF),
    (2, 0xFFFF),
    (1, 0x00),
    (1, 0x80),
    (2, 0x0000),
    (2, 0x8000),
    (0, 0),
    (3, 0xC2280001),
    (1, 0x55),
    (2, 0xAAAA),
    (3, 0x00000001),
    (0, 0),
    (3, MINUS_ZERO),
]
LENGTHS = [0, 1, 7, 8, 9, 15, 16, 17, 21]


def case(layout, classes):
    """(payload, elements)"""
    b = layout & 0x0F
    byte_unit = 2.0 ** -(b - 1) if layout & LAYOUT_BOUNDED else 2.0**-7
    elements = [element(tag, data, byte_unit) for tag, data in classes]
    return inceptionn.payload(layout, classes), elements


def element(tag, data, byte_unit):
    if tag == 0:
        return None
    if tag == 3:
        return data
    if tag == 1:
        return minifloat(data & 0x7F, data >> 7, byte_unit)
    return minifloat(data & 0x7FFF, data >> 15, 2.0**-15)


def minifloat(v, sign, unit):
    (bits,) = struct.unpack("<I", struct.pack("<f", v * unit))
    return bits | SIGN if sign and v else bits


def accepted():
    files = {}
    for mode, name in [(0, "paper"), (LAYOUT_BOUNDED, "bounded")]:
        bounds = [case(mode | b, CLASSES) for b in range(1, 16)]
        lengths = [case(mode | 10, CLASSES[:n]) for n in LENGTHS]
        files |= accepted_push(f"inceptionn-{name}-bounds", INCEPTIONN, bounds)
        files |= accepted_push(f"inceptionn-{name}-lengths", INCEPTIONN, lengths)
    any_bits = [(3, QUIET_NAN), (3, SIGNALLING_NAN), (3, INFINITE), (3, SIGN | INFINITE), (0, 0)]
    cases = [case(10, any_bits), case(10, [(tag, 0) for tag in (0, 1, 2, 3) * 8])]
    files |= accepted_push("inceptionn-any-bits", INCEPTIONN, cases, with_adds=False)
    payload, elements = case(LAYOUT_BOUNDED | 10, CLASSES[:12])
    part = Part(0, INCEPTIONN, payload, elements, (TYPE_F64, [2, 6]))
    return files | accepted_message("inceptionn-file-f64", FILE, [part])


def rejected(out):
    def add(name, payload, reason, elems):
        out.add_payload(f"inceptionn-{name}", INCEPTIONN, payload, reason, elems)

    add("empty", b"", "The payload is empty.", 0)
    for layout in (0x00, 0x10):
        add(f"bound-0-{layout}", bytes([layout]), "b is 0.", 0)
        add(f"bound-0-{layout}-with-burst", bytes([layout, 0, 0]), "b is 0.", 8)
    for bit in (5, 6, 7):
        reason = f"Bit {bit} of the layout is reserved."
        add(f"layout-bit-{bit}", bytes([10 | 1 << bit]), reason, 0)
    for elems in range(1, 8):
        for tag in (1, 2, 3) if elems == 3 else (1,):
            payload = struct.pack("<BH", 10, tag << 2 * elems) + bytes((0, 1, 2, 4)[tag])
            reason = f"Element {elems} of {elems} has tag {tag}."
            add(f"tag-past-{elems}-{tag}", payload, reason, elems)
    payload = struct.pack("<BHH", 10, 0, 1 << 14) + bytes(1)
    add("tag-past-second-burst", payload, "The second burst's last tag is past n.", 15)
    add("tags-missing", bytes([10, 0, 0]), "The second burst is missing.", 9)
    add("tags-cut", bytes([10, 0]), "The tag vector is cut off.", 1)
    for tag, size in [(1, 1), (2, 2), (3, 4)]:
        for length in range(size):
            payload = struct.pack("<BH", 10, tag) + bytes(length)
            add(f"data-cut-{tag}-{length}", payload, f"{length} bytes follow tag {tag}.", 8)
    # The second burst's tags would have to be the first one's data.
    payload = struct.pack("<BHH", 10, 2, 0)
    add("data-then-no-tags", payload, "The second burst is missing.", 9)
    add("long", bytes([10, 0, 0, 0]), "A byte is left over.", 8)
    add("burst-left-over", bytes([10, 0, 0, 0, 0]), "There are two bursts for 8 elements.", 8)
    add("burst-without-elements", bytes([10, 0, 0]), "There are no elements, and a burst.", 0)
    out.add_huge("inceptionn-huge", INCEPTIONN, bytes([10, 0, 0]), "2^40 elements have a burst.")
