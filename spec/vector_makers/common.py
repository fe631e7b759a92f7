"""What all makers of vectors use."""

import struct

from reference.codecs import FP32
from reference.floats import bits_of, f32
from reference.floats import bytes_of_elements as elements_bytes
from reference.floats import bytes_of_floats as fp32_payload
from reference_decoder import (
    CONTRIBUTORS,
    FLAG_CUT,
    FLAG_DESCRIBED,
    FLAG_PART,
    PUSH,
    TYPE_F32,
    VERSION,
)
from reference_encoder import contributors_payload, description, frame, message, sealed

M_SMALLEST = 2.0**-149
M_LARGEST_DENORMAL = 2.0**-126 - 2.0**-149

SIGN = 0x80000000
MINUS_ZERO = 0x80000000
QUIET_NAN = 0x7FE00001
SIGNALLING_NAN = 0xFFA00001
INFINITE = 0x7F800000

# What a magnitude must not be: (name, bits, what it is).
BAD_MAGNITUDES = [
    ("minus-zero", 0x80000000, "is -0"),
    ("negative", 0xBF800000, "is negative"),
    ("infinite", 0x7F800000, "is infinite"),
    ("minus-infinite", 0xFF800000, "is minus infinity"),
    ("nan", 0x7FC00000, "is NaN"),
    ("minus-nan", 0xFFC00000, "is NaN"),
    ("signalling-nan", 0x7F800001, "is NaN"),
]
# Enough for a codec that shares its payload with another.
FEW_BAD_MAGNITUDES = [BAD_MAGNITUDES[0], BAD_MAGNITUDES[4]]
# What must be finite, and may have any sign, must not be these.
NOT_FINITE = [entry for entry in BAD_MAGNITUDES if entry[1] & 0x7F800000 == 0x7F800000]


def f32_bytes(bits):
    return struct.pack("<I", bits)


def signed(value, sign):
    """The bits of value for a sign of 1, of -value for -1, and untouched for 0."""
    if sign == 0:
        return None
    return bits_of(value) | (SIGN if sign < 0 else 0)


# --- Accepted --------------------------------------------------------------


class Part:
    """A frame together with what it must decode to."""

    def __init__(self, tensor, codec, payload, elements, described=None, flags=0, part=0):
        """described is (element type, dims), (element type, dims, part values) or None.

        elements are 32 bits each, or None where the element is untouched;
        they are None themselves where the payload is a bitmap.
        """
        text = None if described is None else description(*described)
        flags |= FLAG_CUT if described is not None and len(described) == 3 else 0
        self.bytes = frame(tensor, codec, payload, text, flags, part)
        self.elements = elements
        is_bitmap = elements is None
        self.expected = {
            "tensor": tensor,
            "part": part,
            "codec": codec,
            "flags": flags
            | (0 if described is None else FLAG_DESCRIBED)
            | (FLAG_PART if part else 0),
            "description": description_json(described),
            "elems": None if is_bitmap else len(elements),
            "values": None if is_bitmap else elements_bytes(elements).hex(),
            "bitmap": payload.hex() if is_bitmap else None,
            "add": None,
        }

    def with_add(self, weight, into):
        """Says as well what decode_add must do; into is the bits of its elements."""
        result = [
            old if bits is None else added(old, f32(weight), bits)
            for old, bits in zip(into, self.elements, strict=True)
        ]
        self.expected["add"] = {
            "weight": fp32_payload([weight]).hex(),
            "into": elements_bytes(into).hex(),
            "result": elements_bytes(result).hex(),
        }
        return self

    def with_f64(self, values):
        self.expected["values_f64"] = struct.pack(f"<{len(values)}d", *values).hex()
        return self


def added(old, weight, bits):
    old_value, value = struct.unpack("<2f", struct.pack("<2I", old, bits))
    return bits_of(f32(old_value + f32(weight * value)))


def into_for(count):
    """Something to add to, with zeros of both signs and a NaN that must stay where untouched."""
    ordinary = [bits_of(f32(0.1 * index - 1)) for index in range(count)]
    return [(MINUS_ZERO, ordinary[i], 0, ordinary[i], ordinary[i])[i % 5] for i in range(count)]


def description_json(described):
    if described is None:
        return None
    return dict(zip(["type", "dims", "part_values"], described))


def fp32_part(tensor, values, described=None, flags=0, part=0):
    """values: floats, or bytes for what a float cannot carry."""
    payload = values if isinstance(values, bytes) else fp32_payload(values)
    elements = list(struct.unpack(f"<{len(payload) // 4}I", payload))
    return Part(tensor, FP32, payload, elements, described, flags, part)


def contributors_part(tensor, ranks, workers, flags=0, part=0):
    bitmap = contributors_payload(ranks, workers)
    return Part(tensor, CONTRIBUTORS, bitmap, None, flags=flags, part=part)


def as_version_1(data):
    """The same message as older writers made it."""
    return sealed(data[:2] + b"\x01" + data[3:20], [data[28:]])


def accepted_message(name, kind, parts, sender=0, step=0, workers=None, version=VERSION):
    data = message(kind, sender, step, [part.bytes for part in parts])
    data = data if version == VERSION else as_version_1(data)
    return accepted_bytes(name, data, kind, parts, sender, step, workers)


def accepted_file(name, kind, parts):
    """A message for each part."""
    data = b"".join(message(kind, 0, 0, [part.bytes]) for part in parts)
    return accepted_bytes(name, data, kind, parts)


def accepted_bytes(name, data, kind, parts, sender=0, step=0, workers=None):
    vector = {
        "name": name,
        "kind": kind,
        "sender": sender,
        "step": step,
        "workers": workers,
        "hex": data.hex(),
        "frames": [part.expected for part in parts],
    }
    return {name: vector}


def accepted_push(name, codec, cases, with_adds=True):
    """cases are (payload, elements); every second one is described."""
    parts = []
    for tensor, (payload, elements) in enumerate(cases):
        described = (TYPE_F32, [len(elements)]) if tensor % 2 else None
        part = Part(tensor, codec, payload, elements, described)
        parts.append(part.with_add(-0.7, into_for(len(elements))) if with_adds else part)
    return accepted_message(name, PUSH, parts, 3, 7)


# --- Rejected --------------------------------------------------------------


class Rejections:
    """Collects messages with the one reason why each must be rejected."""

    def __init__(self):
        self.vectors = {}

    def add(self, name, data, reason, elems=None, workers=None):
        assert name not in self.vectors, name
        self.vectors[name] = {
            "name": name,
            "reason": reason,
            "elems": elems,
            "workers": workers,
            "hex": data.hex(),
        }

    def add_payload(self, name, codec, payload, reason, elems):
        """A push of one frame without a description."""
        self.add(name, push(frame(0, codec, payload)), reason, elems)

    def add_huge(self, name, codec, payload, reason):
        """As add_payload, for 2^40 elements: nothing may be allocated for them."""
        text = description(TYPE_F32, [2**40])
        self.add(name, push(frame(0, codec, payload, text)), reason)

    def add_cuts_and_tails(self, name, codec, payload, elems):
        """A payload that is right in itself, a byte too short and a byte too long."""
        self.add_payload(f"{name}-short", codec, payload[:-1], "The last byte is missing.", elems)
        self.add_payload(f"{name}-long", codec, payload + b"\0", "A byte is left over.", elems)


def push(*frames):
    return message(PUSH, 1, 2, frames)


ONE = fp32_payload([1.0])
FRAME = frame(0, FP32, ONE)
DESCRIBED_FRAME = frame(0, FP32, ONE, description(TYPE_F32, [1]))
