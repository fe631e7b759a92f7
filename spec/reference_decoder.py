#!/usr/bin/python3
"""A reference reader for Tersewire messages, written from wire-format.md.

It is meant to be read next to the specification: plain Python, standard
library only, and no attempt at speed beyond what a test needs.

    reference_decoder.py FILE [--json] [--elems N | --elems TENSOR=N ...]
                         [--workers N]

Exit status: 0 accepted, 1 rejected (one sentence on stderr), 2 wrong usage.
"""

import argparse
import json
import math
import struct
import sys
from dataclasses import dataclass, field
from typing import List, Optional

PUSH, PULL, FILE, STATE, DONE = 1, 2, 3, 4, 5
KIND_NAMES = {PUSH: "push", PULL: "pull", FILE: "file", STATE: "state", DONE: "done"}

CONTRIBUTORS, FP32, THREE_LC = 0, 1, 2
CODEC_NAMES = {CONTRIBUTORS: "contributors", FP32: "fp32", THREE_LC: "3lc"}

TYPE_NAMES = {1: "f32", 2: "f64"}

FLAG_DESCRIBED = 0x01
FLAG_NOT_FINITE = 0x02
FLAGS_RESERVED = 0x3C

LAYOUT_PARTITIONS = 0x01
LAYOUT_ZERO_RUNS = 0x02
LAYOUT_LONG_RUNS = 0x04
LAYOUT_RESERVED = 0xF8

HEADER_BYTES = 28
SMALLEST_FRAME = 4
MAX_TENSOR = 2**32 - 1
MAX_PAYLOAD = 2**35 - 1
MAX_RANK = 32
MAX_DIMENSION = 2**40
MAX_ELEMENTS = 2**40
MAX_RUN = 2**40

ZERO_GROUP = 121  # five digits of 1

# A few bytes can stand for 2^40 elements. The format allows that, but this
# reader expands every element in memory and has to stop somewhere.
EXPANSION_LIMIT = 2**26


class Rejected(Exception):
    """The message breaks a rule of the specification."""

    def __init__(self, offset, reason):
        super().__init__(f"{reason}, at offset {offset}.")
        self.offset = offset


class NeedsMore(Exception):
    """The caller has to say something the message does not hold."""


class TooLarge(Exception):
    """The message is larger than this reader is willing to expand."""


@dataclass
class Description:
    element_type: int
    dims: List[int]

    def elements(self):
        return math.prod(self.dims)


@dataclass
class Frame:
    tensor: int
    codec: int
    flags: int
    description: Optional[Description]
    payload: bytes
    offset: int  # of the frame in the message
    payload_offset: int


@dataclass
class Message:
    kind: int
    sender: int
    step: int
    frames: List[Frame] = field(default_factory=list)


@dataclass
class Decoded:
    """What a frame stands for. Values are little-endian f32 bytes, because a
    Python float cannot carry every NaN."""

    elements: Optional[int] = None
    values: Optional[bytes] = None
    bitmap: Optional[bytes] = None


# --- XXH64 -----------------------------------------------------------------

PRIME_1 = 0x9E3779B185EBCA87
PRIME_2 = 0xC2B2AE3D27D4EB4F
PRIME_3 = 0x165667B19E3779F9
PRIME_4 = 0x85EBCA77C2B2AE63
PRIME_5 = 0x27D4EB2F165667C5
MASK = 2**64 - 1


def rotate_left(value, bits):
    return ((value << bits) | (value >> (64 - bits))) & MASK


def xxh64_round(lane, word):
    return rotate_left((lane + word * PRIME_2) & MASK, 31) * PRIME_1 & MASK


def xxh64_stripes(data, seed):
    """The hash state after all whole 32-byte stripes."""
    a = (seed + PRIME_1 + PRIME_2) & MASK
    b = (seed + PRIME_2) & MASK
    c = seed
    d = (seed - PRIME_1) & MASK
    whole = len(data) - len(data) % 32
    for w, x, y, z in struct.iter_unpack("<4Q", data[:whole]):
        a = xxh64_round(a, w)
        b = xxh64_round(b, x)
        c = xxh64_round(c, y)
        d = xxh64_round(d, z)
    state = rotate_left(a, 1) + rotate_left(b, 7) + rotate_left(c, 12) + rotate_left(d, 18)
    for lane in (a, b, c, d):
        state = ((state ^ xxh64_round(0, lane)) * PRIME_1 + PRIME_4) & MASK
    return state


def xxh64_tail(state, tail):
    """Mixes in the last 0 to 31 bytes: eight at a time, then four, then one."""
    position = 0
    while len(tail) - position >= 8:
        (word,) = struct.unpack_from("<Q", tail, position)
        state = rotate_left(state ^ xxh64_round(0, word), 27) * PRIME_1 + PRIME_4 & MASK
        position += 8
    if len(tail) - position >= 4:
        (word,) = struct.unpack_from("<I", tail, position)
        state = rotate_left(state ^ (word * PRIME_1 & MASK), 23) * PRIME_2 + PRIME_3 & MASK
        position += 4
    for byte in tail[position:]:
        state = rotate_left(state ^ (byte * PRIME_5 & MASK), 11) * PRIME_1 & MASK
    return state


def xxh64(data, seed=0):
    state = xxh64_stripes(data, seed) if len(data) >= 32 else (seed + PRIME_5) & MASK
    state = (state + len(data)) & MASK
    state = xxh64_tail(state, data[len(data) - len(data) % 32 :])
    state = (state ^ (state >> 33)) * PRIME_2 & MASK
    state = (state ^ (state >> 29)) * PRIME_3 & MASK
    return state ^ (state >> 32)


# --- Reading bytes ---------------------------------------------------------


class Cursor:
    """Walks over a part of a message and rejects what would pass its end."""

    def __init__(self, data, base):
        self.data = data
        self.base = base  # where data starts in the message
        self.position = 0

    def offset(self):
        """Where in the message the next byte is."""
        return self.base + self.position

    def left(self):
        return len(self.data) - self.position

    def take(self, count, what):
        if count > self.left():
            raise Rejected(self.offset(), f"The {what} is cut off")
        self.position += count
        return self.data[self.position - count : self.position]

    def byte(self, what):
        return self.take(1, what)[0]

    def varint(self, limit, what):
        start = self.offset()
        value = 0
        shift = 0
        while True:
            byte = self.byte(what)
            value |= (byte & 0x7F) << shift
            shift += 7
            if value > limit:
                raise Rejected(start, f"The {what} is above {limit}")
            if byte < 0x80:
                break
        if byte == 0 and shift > 7:
            raise Rejected(start, f"The {what} is not in its shortest form")
        return value


# --- Message and frames ----------------------------------------------------


def parse_message(data):
    """Checks all that can be checked without knowing tensors or workers."""
    message, count = parse_header(data)
    cursor = Cursor(data[HEADER_BYTES:], HEADER_BYTES)
    for _ in range(count):
        message.frames.append(parse_frame(cursor))
    if cursor.left():
        raise Rejected(cursor.offset(), f"There are {cursor.left()} bytes after the last frame")
    check_kind_rules(message)
    check_contributors_rules(message)
    return message


def parse_header(data):
    if len(data) < HEADER_BYTES:
        raise Rejected(len(data), f"The header is cut off, it has {HEADER_BYTES} bytes")
    magic, version, kind, sender, step, count, checksum = struct.unpack_from("<2sBBIQIQ", data)
    if magic != b"TW":
        raise Rejected(0, "The magic is not TW")
    if version != 1:
        raise Rejected(2, f"The version is {version} and not 1")
    if xxh64(data[:20] + data[HEADER_BYTES:]) != checksum:
        raise Rejected(20, "The checksum is wrong")
    if kind not in KIND_NAMES:
        raise Rejected(3, f"The kind {kind} is reserved")
    if count > (len(data) - HEADER_BYTES) // SMALLEST_FRAME:
        raise Rejected(16, f"The count {count} is more frames than the message can hold")
    return Message(kind, sender, step), count


def parse_frame(cursor):
    offset = cursor.offset()
    tensor = cursor.varint(MAX_TENSOR, "tensor number")
    codec = cursor.byte("codec")
    if codec not in CODEC_NAMES:
        raise Rejected(cursor.offset() - 1, f"The codec {codec} is reserved")
    flags = cursor.byte("flags byte")
    if flags & FLAGS_RESERVED:
        raise Rejected(cursor.offset() - 1, f"The flags {flags:#04x} set a reserved bit")
    if flags & FLAG_NOT_FINITE and codec != FP32:
        raise Rejected(cursor.offset() - 1, "A not-finite frame has a codec other than fp32")
    description = parse_description(cursor) if flags & FLAG_DESCRIBED else None
    length = cursor.varint(MAX_PAYLOAD, "payload length")
    payload_offset = cursor.offset()
    payload = cursor.take(length, "payload")
    return Frame(tensor, codec, flags, description, payload, offset, payload_offset)


def parse_description(cursor):
    element_type = cursor.byte("element type")
    if element_type not in TYPE_NAMES:
        raise Rejected(cursor.offset() - 1, f"The element type {element_type} is reserved")
    rank = cursor.byte("rank")
    if rank > MAX_RANK:
        raise Rejected(cursor.offset() - 1, f"The rank {rank} is reserved")
    start = cursor.offset()
    dims = [cursor.varint(MAX_DIMENSION, "dimension") for _ in range(rank)]
    # Zeros are left out, because they must not hide a product that overflows.
    if math.prod(d for d in dims if d) > MAX_ELEMENTS:
        raise Rejected(start, "The product of the dimensions is above 2^40")
    return Description(element_type, dims)


def check_kind_rules(message):
    if message.kind == DONE and message.frames:
        raise Rejected(16, "A done message has frames")
    if message.kind in (FILE, STATE):
        check_single_described_frame(message)
    if message.kind == FILE:
        check_file_zeros(message)
    if message.kind == STATE and message.frames[0].codec != FP32:
        raise Rejected(message.frames[0].offset, "The frame of a state message is not fp32")
    if message.kind == STATE and message.frames[0].description.element_type != 1:
        raise Rejected(message.frames[0].offset, "The values of a state message are not f32")


def check_single_described_frame(message):
    name = KIND_NAMES[message.kind]
    if len(message.frames) != 1:
        raise Rejected(16, f"A {name} message has {len(message.frames)} frames and not one")
    if message.frames[0].description is None:
        raise Rejected(message.frames[0].offset, f"The frame of a {name} message is not described")


def check_file_zeros(message):
    if message.sender != 0:
        raise Rejected(4, "The sender of a file is not 0")
    if message.step != 0:
        raise Rejected(8, "The step of a file is not 0")
    if message.frames[0].tensor != 0:
        raise Rejected(message.frames[0].offset, "The tensor number in a file is not 0")


def check_contributors_rules(message):
    followers = message.frames[1:] + [None]
    for frame, follower in zip(message.frames, followers):
        if frame.codec != CONTRIBUTORS:
            continue
        if message.kind != PULL:
            raise Rejected(frame.offset, "A contributors frame is not in a pull message")
        if frame.description is not None:
            raise Rejected(frame.offset, "A contributors frame is described")
        if follower is None or follower.codec == CONTRIBUTORS or follower.tensor != frame.tensor:
            raise Rejected(
                frame.offset, "A contributors frame is not directly before a frame for its tensor"
            )


# --- Payloads --------------------------------------------------------------


def decode_message(data, elems=None, workers=None):
    """Reads a whole message: (Message, [Decoded of each frame]).

    elems is the number of elements of every tensor without a description, or
    a dict from tensor number to it, with None standing for the tensors that
    are not listed; workers is the number of workers.
    """
    message = parse_message(data)
    return message, [decode_frame(frame, elems, workers) for frame in message.frames]


def decode_frame(frame, elems=None, workers=None):
    if frame.codec == CONTRIBUTORS:
        return Decoded(bitmap=decode_contributors(frame, workers))
    elements = elements_of(frame, elems)
    if frame.codec == FP32:
        return Decoded(elements, decode_fp32(frame, elements))
    m, digits = decode_3lc(frame, elements)
    return Decoded(elements, values_of_digits(m, digits))


def elements_of(frame, elems):
    if frame.description is not None:
        return frame.description.elements()
    if isinstance(elems, dict):
        elems = elems.get(frame.tensor, elems.get(None))
    if elems is None:
        raise NeedsMore(f"Tensor {frame.tensor} is not described: give --elems.")
    return elems


def decode_contributors(frame, workers):
    if workers is None:
        raise NeedsMore("The message has a contributors frame: give --workers.")
    if len(frame.payload) != (workers + 7) // 8:
        raise Rejected(
            frame.payload_offset,
            f"The bitmap has {len(frame.payload)} bytes, which does not fit {workers} workers",
        )
    bitmap = int.from_bytes(frame.payload, "little")
    if bitmap >> workers:
        raise Rejected(frame.payload_offset, "The bitmap sets a bit past the last worker")
    if bitmap == 2**workers - 1:
        raise Rejected(frame.payload_offset, "The bitmap leaves out no worker")
    return frame.payload


def decode_fp32(frame, elements):
    if len(frame.payload) != 4 * elements:
        raise Rejected(
            frame.payload_offset,
            f"The fp32 payload has {len(frame.payload)} bytes and not 4 for each of"
            f" {elements} elements",
        )
    return frame.payload


def decode_3lc(frame, elements):
    """(m, digits): the digits as bytes 0, 1 or 2, in the order of the elements."""
    cursor = Cursor(frame.payload, frame.payload_offset)
    m, layout = parse_3lc_header(cursor)
    group_count = (elements + 4) // 5
    body_offset = cursor.offset()
    if layout & LAYOUT_ZERO_RUNS:
        items = parse_zero_runs(cursor, group_count, bool(layout & LAYOUT_LONG_RUNS))
        check_expansion(elements)
        groups = b"".join(bytes([value]) * count for value, count in items)
    else:
        groups = parse_plain_groups(cursor, group_count)
        check_expansion(elements)
    digits = digits_of_groups(groups, bool(layout & LAYOUT_PARTITIONS))
    if digits.count(1, elements) != len(digits) - elements:
        raise Rejected(body_offset, "The body has a padding digit other than 1")
    return m, bytes(digits[:elements])


def check_expansion(elements):
    if elements > EXPANSION_LIMIT:
        raise TooLarge(f"The tensor has {elements} elements, more than this reader expands.")


def parse_3lc_header(cursor):
    start = cursor.offset()
    m, s, layout = struct.unpack("<ffB", cursor.take(9, "3lc header"))
    # The sign is compared as a sign, because -0 < 0 is false.
    if not math.isfinite(m) or math.copysign(1, m) < 0:
        raise Rejected(start, "m is not finite or has its sign bit set")
    if not 1 <= s < 2:  # also false for NaN
        raise Rejected(start + 4, "s is not in 1 <= s < 2")
    if layout & LAYOUT_RESERVED:
        raise Rejected(start + 8, f"The layout {layout:#04x} sets a reserved bit")
    if layout & LAYOUT_LONG_RUNS and not layout & LAYOUT_ZERO_RUNS:
        raise Rejected(start + 8, "The layout has long runs without zero-run encoding")
    return m, layout


def parse_plain_groups(cursor, group_count):
    start = cursor.offset()
    groups = cursor.take(cursor.left(), "body")
    if len(groups) != group_count:
        raise Rejected(start, f"The body has {len(groups)} bytes and not {group_count}")
    for index, value in enumerate(groups):
        if value > 242:
            raise Rejected(start + index, f"The byte {value} is not a group")
    return groups


def parse_zero_runs(cursor, group_count, long_runs):
    """The body as (group, repetitions) pairs; nothing large is allocated."""
    items = []
    total = 0
    while cursor.left():
        start = cursor.offset()
        byte = cursor.byte("body")
        if byte <= 242:
            items.append((byte, 1))
        elif byte == 255 and long_runs:
            items.append((ZERO_GROUP, 14 + cursor.varint(MAX_RUN, "long run")))
        else:
            items.append((ZERO_GROUP, byte - 241))
        total += items[-1][1]
        if total > group_count:
            raise Rejected(start, f"The body stands for more than {group_count} groups")
    if total < group_count:
        raise Rejected(cursor.offset(), f"The body stands for {total} groups and not {group_count}")
    return items


# DIGIT_TABLES[k][group] is digit d_k; translate() wants tables of 256 entries.
DIGIT_TABLES = [
    bytes(group // 3 ** (4 - k) % 3 for group in range(243)) + bytes(13) for k in range(5)
]


def digits_of_groups(groups, partitions):
    """All 5 G digits, those of the padding last."""
    count = len(groups)
    digits = bytearray(5 * count)
    for k in range(5):
        if partitions:
            digits[k * count : (k + 1) * count] = groups.translate(DIGIT_TABLES[k])
        else:
            digits[k::5] = groups.translate(DIGIT_TABLES[k])
    return digits


def values_of_digits(m, digits):
    encoded = (struct.pack("<f", -m), struct.pack("<f", 0.0), struct.pack("<f", m))
    return b"".join([encoded[digit] for digit in digits])


# --- decode_add ------------------------------------------------------------


def f32(value):
    """Rounds to the nearest f32, ties to even, overflow to infinity.

    Products and sums of two f32 come out right although Python computes them
    in f64: the product is exact there, and f64 has enough spare bits that
    rounding a sum twice equals rounding it once.
    """
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def decode_add(into, frame, weight, elems=None):
    """into + weight * tensor, both as little-endian f32 bytes.

    For 3lc, elements with digit 1 keep their bytes. For fp32 every product is
    rounded once before it is added, in the same way.
    """
    if frame.codec == CONTRIBUTORS:
        raise ValueError("A contributors frame is not a tensor.")
    elements = elements_of(frame, elems)
    if len(into) != 4 * elements:
        raise ValueError(f"The sum has {len(into)} bytes and not 4 for each element.")
    if frame.codec == THREE_LC:
        m, digits = decode_3lc(frame, elements)
        product = f32(f32(weight) * m)
        addends = [(-product, None, product)[digit] for digit in digits]
    else:
        values = struct.unpack(f"<{elements}f", decode_fp32(frame, elements))
        addends = [f32(f32(weight) * value) for value in values]
    return add_to_bytes(into, addends)


def add_to_bytes(into, addends):
    total = bytearray(into)
    for index, addend in enumerate(addends):
        if addend is not None:
            (old,) = struct.unpack_from("<f", total, 4 * index)
            struct.pack_into("<f", total, 4 * index, f32(old + addend))
    return bytes(total)


# --- Command line ----------------------------------------------------------


def as_json(message, decoded, workers):
    """The same fields as in vectors/accepted/*.json."""
    return {
        "kind": message.kind,
        "sender": message.sender,
        "step": message.step,
        "workers": workers,
        "frames": [frame_as_json(f, d) for f, d in zip(message.frames, decoded)],
    }


def frame_as_json(frame, decoded):
    description = None
    if frame.description is not None:
        description = {"type": frame.description.element_type, "dims": frame.description.dims}
    return {
        "tensor": frame.tensor,
        "codec": frame.codec,
        "flags": frame.flags,
        "description": description,
        "elems": decoded.elements,
        "values": None if decoded.values is None else decoded.values.hex(),
        "bitmap": None if decoded.bitmap is None else decoded.bitmap.hex(),
    }


def print_text(message, decoded):
    print(f"kind {message.kind} ({KIND_NAMES[message.kind]})")
    print(f"sender {message.sender}")
    print(f"step {message.step}")
    for index, (frame, result) in enumerate(zip(message.frames, decoded)):
        size = f"{result.elements} elements"
        if result.bitmap is not None:
            size = f"bitmap {result.bitmap.hex()}"
        print(
            f"frame {index}: tensor {frame.tensor}, codec {frame.codec}"
            f" ({CODEC_NAMES[frame.codec]}), flags {frame.flags:#04x},"
            f" {description_text(frame.description)}, {size}"
        )


def description_text(description):
    if description is None:
        return "not described"
    dims = ", ".join(str(d) for d in description.dims)
    return f"{TYPE_NAMES[description.element_type]} [{dims}]"


def natural(text):
    value = int(text)
    if value < 0:
        raise ValueError("negative")
    return value


def elems_option(text):
    """TENSOR=N as (TENSOR, N); a plain N, for all other tensors, as (None, N)."""
    tensor, equals, count = text.rpartition("=")
    return (natural(tensor) if equals else None), natural(count)


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description="Reads one Tersewire message.")
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--json", action="store_true", help="print everything, with the values")
    parser.add_argument(
        "--elems",
        type=elems_option,
        action="append",
        default=[],
        metavar="[TENSOR=]N",
        help="elements of tensors (or of one tensor) without a description",
    )
    parser.add_argument("--workers", type=natural, metavar="N", help="for contributors frames")
    return parser.parse_args(argv)


def main(argv):
    arguments = parse_arguments(argv)
    try:
        with open(arguments.file, "rb") as file:
            data = file.read()
        message, decoded = decode_message(data, dict(arguments.elems), arguments.workers)
    except Rejected as rejection:
        print(rejection, file=sys.stderr)
        return 1
    except (OSError, NeedsMore, TooLarge) as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps(as_json(message, decoded, arguments.workers)))
    else:
        print_text(message, decoded)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
