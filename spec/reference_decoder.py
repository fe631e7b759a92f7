#!/usr/bin/python3
"""A reference reader for Tersewire messages, written from wire-format.md.

It is meant to be read next to the specification: plain Python, standard
library only, and no attempt at speed beyond what a test needs. Messages and
frames are here, payloads in reference/.

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

from reference import codecs
from reference.codecs import FP32, OLAND_RAJ
from reference.cursor import LARGEST_PAYLOAD, Cursor, NeedsMore, Rejected, TooLarge
from reference.xxh64 import xxh64

PUSH, PULL, FILE, STATE, DONE, OFFER, AGREEMENT, CHECKSUM, FINITENESS = 1, 2, 3, 4, 5, 6, 7, 8, 9
KIND_NAMES = {
    PUSH: "push",
    PULL: "pull",
    FILE: "file",
    STATE: "state",
    DONE: "done",
    OFFER: "offer",
    AGREEMENT: "agreement",
    CHECKSUM: "checksum",
    FINITENESS: "finiteness",
}

CONTRIBUTORS = 0
CODEC_NAMES = {CONTRIBUTORS: "contributors"} | {c.number: c.name for c in codecs.CODECS}

TYPE_F32, TYPE_F64 = 1, 2
TYPE_NAMES = {TYPE_F32: "f32", TYPE_F64: "f64"}

FLAG_DESCRIBED = 0x01
FLAG_NOT_FINITE = 0x02
FLAG_PART = 0x04
FLAG_CUT = 0x08
FLAGS_RESERVED = 0x30

VERSION = 2
HEADER_BYTES = 28
SMALLEST_FRAME = 4
MAX_TENSOR = 2**32 - 1
MAX_PART = 2**32 - 1
MAX_PARTS = 2**32
MAX_RANK = 32
MAX_DIMENSION = 2**40
MAX_ELEMENTS = 2**40

PLUS_INFINITY = 0x7F800000  # the bits of f32 numbers that are negative or a NaN are above


@dataclass
class Description:
    element_type: int
    dims: list[int]
    part_values: int | None = None  # of each part but the last; None where there is one

    def elements(self):
        return math.prod(self.dims)

    def parts(self):
        return -(-self.elements() // self.part_values) if self.part_values else 1

    def elements_of_part(self, part):
        if not self.part_values:
            return self.elements()
        return min(self.part_values, self.elements() - part * self.part_values)


@dataclass
class Frame:
    tensor: int
    part: int  # its place among the tensor's
    codec: int
    flags: int
    description: Description | None
    payload: bytes
    offset: int  # of the frame in the message
    payload_offset: int


@dataclass
class Message:
    kind: int
    sender: int
    step: int
    frames: list[Frame] = field(default_factory=list)


@dataclass
class Decoded:
    """What a frame stands for. Values are little-endian f32 bytes, because a
    Python float cannot carry every NaN."""

    elements: int | None = None
    values: bytes | None = None
    values_f64: bytes | None = None  # only of codec 15, which has a form for f64
    bitmap: bytes | None = None


# --- Message and frames ----------------------------------------------------


def parse(data):
    """A message, or all parts of a file or a state as if they were one."""
    is_file = data[:2] == b"TW" and len(data) > 3 and data[3] in (FILE, STATE)
    return parse_file(data) if is_file else parse_message(data)


def parse_file(data):
    file = None
    at = 0
    while at < len(data):
        if file is not None and len(file.frames) == file.frames[0].description.parts():
            raise Rejected(at, f"There are {len(data) - at} bytes after the last part")
        end = message_end(data, at)
        try:
            message = parse_message(data[at:end])
        except Rejected as rejection:
            raise Rejected(at + rejection.offset, rejection.reason) from rejection
        if file is None:
            file = message
        else:
            check_is_next(file, message, at)
            file.frames += message.frames
        at = end
    if len(file.frames) != file.frames[0].description.parts():
        raise Rejected(at, f"The file holds {len(file.frames)} parts and not all")
    return file


def message_end(data, at):
    """Where a message of one frame ends that begins at `at`. Nothing else is checked."""
    if len(data) - at < HEADER_BYTES or data[at : at + 2] != b"TW":
        return len(data)
    if struct.unpack_from("<I", data, at + 16) != (1,):
        return len(data)
    cursor = Cursor(data[at + HEADER_BYTES :], at + HEADER_BYTES)
    parse_frame(cursor)
    return cursor.offset()


def check_is_next(file, message, at):
    first, frame = file.frames[0], message.frames[0]
    if message.kind != file.kind:
        raise Rejected(at, "The parts are of several kinds of message")
    if frame.description != first.description:
        raise Rejected(at, "The parts have several descriptions")
    if frame.part != len(file.frames):
        raise Rejected(at, f"Part {frame.part} is not in its place")
    codecs_used = {f.codec for f in file.frames + [frame] if not f.flags & FLAG_NOT_FINITE}
    if len(codecs_used) > 1:
        raise Rejected(at, "The parts are of several codecs")


def parse_message(data):
    """Checks all that can be checked without knowing tensors or workers."""
    message, count = parse_header(data)
    cursor = Cursor(data[HEADER_BYTES:], HEADER_BYTES)
    for _ in range(count):
        message.frames.append(parse_frame(cursor))
    if cursor.left():
        raise Rejected(cursor.offset(), f"There are {cursor.left()} bytes after the last frame")
    check_kind_rules(message)
    check_cut_rules(message, data[2])
    check_contributors_rules(message)
    return message


def parse_header(data):
    if len(data) < HEADER_BYTES:
        raise Rejected(len(data), f"The header is cut off, it has {HEADER_BYTES} bytes")
    magic, version, kind, sender, step, count, checksum = struct.unpack_from("<2sBBIQIQ", data)
    if magic != b"TW":
        raise Rejected(0, "The magic is not TW")
    if version != VERSION and not (version == 1 and kind in (FILE, STATE)):
        raise Rejected(2, f"The version is {version} and not {VERSION}, in a message of kind {kind}")
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
    part = parse_part(cursor) if flags & FLAG_PART else 0
    description = parse_description(cursor) if flags & FLAG_DESCRIBED else None
    if flags & FLAG_CUT:
        parse_part_values(cursor, description)
    length = cursor.varint(LARGEST_PAYLOAD, "payload length")
    payload_offset = cursor.offset()
    payload = cursor.take(length, "payload")
    return Frame(tensor, part, codec, flags, description, payload, offset, payload_offset)


def parse_part(cursor):
    start = cursor.offset()
    part = cursor.varint(MAX_PART, "part number")
    if part == 0:
        raise Rejected(start, "The part number is 0, which the flag alone says")
    return part


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


def parse_part_values(cursor, description):
    start = cursor.offset()
    if description is None:
        raise Rejected(start, "A frame that is cut is not described")
    part_values = cursor.varint(MAX_ELEMENTS, "number of a part's values")
    if part_values == 0 or part_values % 4 or part_values >= description.elements():
        raise Rejected(start, f"Parts of {part_values} values do not cut the tensor")
    description.part_values = part_values
    if description.parts() > MAX_PARTS:
        raise Rejected(start, "There are more than 2^32 parts")


def check_cut_rules(message, version):
    """Parts in files and states are those of a tensor that is cut, which no other message has."""
    for frame in message.frames:
        if frame.flags & FLAG_CUT and message.kind not in (FILE, STATE):
            raise Rejected(frame.offset, "A frame is cut, in no file and no state")
        if message.kind in (FILE, STATE) and frame.part >= frame.description.parts():
            raise Rejected(frame.offset, f"There is no part {frame.part}")
        if version == 1 and frame.flags & (FLAG_PART | FLAG_CUT):
            raise Rejected(frame.offset, "A frame of version 1 names a part")


def check_kind_rules(message):
    if message.kind == DONE and message.frames:
        raise Rejected(16, "A done message has frames")
    if message.kind in (FILE, STATE):
        check_single_described_frame(message)
    if message.kind == FILE:
        check_file_zeros(message)
    if message.kind == STATE and message.frames[0].codec != FP32:
        raise Rejected(message.frames[0].offset, "The frame of a state message is not fp32")
    if message.kind == STATE and message.frames[0].description.element_type != TYPE_F32:
        raise Rejected(message.frames[0].offset, "The values of a state message are not f32")
    if message.kind in (OFFER, AGREEMENT):
        check_scalers(message)
    if message.kind == CHECKSUM:
        check_checksum(message)
    if message.kind == FINITENESS:
        check_finiteness(message)


def check_plain_fp32(frame):
    if frame.codec != FP32 or frame.flags & (FLAG_DESCRIBED | FLAG_NOT_FINITE):
        raise Rejected(frame.offset, "The frame is not a plain fp32 frame")


def check_no_part(frame):
    if frame.part != 0:
        raise Rejected(frame.offset, "The frame names a part, and its message is of none")


def check_scalers(message):
    if not message.frames:
        raise Rejected(16, "There are no scalers")
    seen = set()
    for frame in message.frames:
        check_plain_fp32(frame)
        if not frame.payload or len(frame.payload) % 4:
            raise Rejected(frame.payload_offset, "The payload does not hold one or more scalers")
        if (frame.tensor, frame.part) in seen:
            raise Rejected(
                frame.offset, f"Part {frame.part} of tensor {frame.tensor} has scalers twice"
            )
        seen.add((frame.tensor, frame.part))
        for index, bits in enumerate(struct.iter_unpack("<I", frame.payload)):
            if bits[0] > PLUS_INFINITY:
                raise Rejected(frame.payload_offset + 4 * index, "A scaler is negative or a NaN")


def check_checksum(message):
    if len(message.frames) != 1:
        raise Rejected(16, f"A checksum message has {len(message.frames)} frames and not one")
    frame = message.frames[0]
    check_plain_fp32(frame)
    check_no_part(frame)
    if frame.tensor != 0:
        raise Rejected(frame.offset, "The tensor number in a checksum message is not 0")
    if len(frame.payload) != 8:
        raise Rejected(frame.payload_offset, "A checksum does not have 8 bytes")


def check_finiteness(message):
    """How many words are due, and which bits are reserved, the bucket says."""
    if len(message.frames) != 1:
        raise Rejected(16, f"A finiteness message has {len(message.frames)} frames and not one")
    frame = message.frames[0]
    check_plain_fp32(frame)
    check_no_part(frame)
    if not frame.payload or len(frame.payload) % 4:
        raise Rejected(frame.payload_offset, "The payload does not hold one or more words")


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
        if (
            follower is None
            or follower.codec == CONTRIBUTORS
            or (follower.tensor, follower.part) != (frame.tensor, frame.part)
        ):
            raise Rejected(
                frame.offset, "A contributors frame is not directly before a frame for its part"
            )


# --- Payloads --------------------------------------------------------------


def decode_message(data, elems=None, workers=None):
    """Reads a whole message or file: (Message, [Decoded of each frame]).

    elems is the number of elements of every tensor without a description, or
    a dict from tensor number to it, with None standing for the tensors that
    are not listed; workers is the number of workers.
    """
    message = parse(data)
    return message, [decode_frame(frame, elems, workers) for frame in message.frames]


def decode_frame(frame, elems=None, workers=None):
    if frame.codec == CONTRIBUTORS:
        return Decoded(bitmap=decode_contributors(frame, workers))
    elements = elements_of(frame, elems)
    decoded = Decoded(elements, codecs.decode(*payload_of(frame, elements)))
    if frame.codec == OLAND_RAJ:
        values = codecs.decode_f64(*payload_of(frame, elements))
        decoded.values_f64 = struct.pack(f"<{elements}d", *values)
    return decoded


def payload_of(frame, elements):
    return frame.codec, frame.payload, elements, frame.payload_offset


def elements_of(frame, elems):
    if frame.description is not None:
        return frame.description.elements_of_part(frame.part)
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


def decode_add(into, frame, weight, elems=None):
    """into + weight * tensor, both as little-endian f32 bytes."""
    if frame.codec == CONTRIBUTORS:
        raise ValueError("A contributors frame is not a tensor.")
    elements = elements_of(frame, elems)
    if len(into) != 4 * elements:
        raise ValueError(f"The sum has {len(into)} bytes and not 4 for each element.")
    codec, payload, elements, offset = payload_of(frame, elements)
    old = struct.unpack(f"<{elements}I", into)
    return struct.pack(
        f"<{elements}I", *codecs.decode_add(old, codec, payload, elements, weight, offset)
    )


# --- Command line ----------------------------------------------------------


def as_json(message, decoded, workers):
    """The same fields as in vectors/accepted.jsonl, but for the name, the bytes and `add`."""
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
        if frame.description.part_values:
            description["part_values"] = frame.description.part_values
    described = {
        "tensor": frame.tensor,
        "part": frame.part,
        "codec": frame.codec,
        "flags": frame.flags,
        "description": description,
        "elems": decoded.elements,
        "values": None if decoded.values is None else decoded.values.hex(),
        "bitmap": None if decoded.bitmap is None else decoded.bitmap.hex(),
    }
    if decoded.values_f64 is not None:
        described["values_f64"] = decoded.values_f64.hex()
    return described


def print_text(message, decoded):
    print(f"kind {message.kind} ({KIND_NAMES[message.kind]})")
    print(f"sender {message.sender}")
    print(f"step {message.step}")
    for index, (frame, result) in enumerate(zip(message.frames, decoded)):
        size = f"{result.elements} elements"
        if result.bitmap is not None:
            size = f"bitmap {result.bitmap.hex()}"
        print(
            f"frame {index}: tensor {frame.tensor}, part {frame.part}, codec {frame.codec}"
            f" ({CODEC_NAMES[frame.codec]}), flags {frame.flags:#04x},"
            f" {description_text(frame.description)}, {size}"
        )


def description_text(description):
    if description is None:
        return "not described"
    dims = ", ".join(str(d) for d in description.dims)
    cut = f" in parts of {description.part_values}" if description.part_values else ""
    return f"{TYPE_NAMES[description.element_type]} [{dims}]{cut}"


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
    parser = argparse.ArgumentParser(description="Reads one Tersewire message or file.")
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
