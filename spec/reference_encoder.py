#!/usr/bin/python3
"""A reference writer for Tersewire messages, written from wire-format.md.

It writes files (message kind 3) and the states that belong to them:

    reference_encoder.py [--codec NAME:KEY=VALUE,...] [--state FILE]
                         [--seed N] [--step N] [--gradient FILE.f32]
                         [--part-values N] --dims 3,5 [--dtype f32|f64]
                         IN.f32 OUT.tw

A codec's text is that of the program; --s, --layout and --zre are short for
parameters of 3lc. IN.f32 holds raw little-endian f32 values, but f64 values
where --dtype f64 meets oland-raj; an empty --dims is rank 0.
The state is read if it exists, as the residual, and written afterwards.
Without a state a codec keeps no residual and has no lead, which only later
arrays could take back, unless its text has ef or lead.
Without --part-values the array is not cut.
--gradient is for oland-raj:bits-from=gradient. Exit status: 0 written, 2
wrong usage.
"""

import argparse
import math
import os
import struct
import sys

from reference import codecs, three_lc
from reference.cursor import varint
from reference.floats import bytes_of_floats as fp32_payload
from reference.floats import floats_of_bytes
from reference.options import BadCodecText, Refused
from reference.random_numbers import Draws
from reference.xxh64 import xxh64
from reference_decoder import (
    FILE,
    FLAG_CUT,
    FLAG_DESCRIBED,
    FLAG_NOT_FINITE,
    FLAG_PART,
    FP32,
    OLAND_RAJ,
    STATE,
    TYPE_F32,
    TYPE_F64,
    VERSION,
    Rejected,
    TooLarge,
    decode_message,
)

# --- Messages and frames ---------------------------------------------------


def description(element_type, dims, part_values=None):
    """part_values, of a tensor that is cut, belongs to a frame with FLAG_CUT."""
    cut = varint(part_values) if part_values else b""
    return bytes([element_type, len(dims)]) + b"".join(varint(dim) for dim in dims) + cut


def frame(tensor, codec, payload, described=None, flags=0, part=0):
    """described holds the bytes of the description, or is None."""
    if described is not None:
        flags |= FLAG_DESCRIBED
    if part:
        flags |= FLAG_PART
    head = varint(tensor) + bytes([codec, flags])
    head += (varint(part) if part else b"") + (described or b"")
    return head + varint(len(payload)) + payload


def message(kind, sender, step, frames):
    return sealed(struct.pack("<2sBBIQI", b"TW", VERSION, kind, sender, step, len(frames)), frames)


def sealed(header, frames):
    """Puts the checksum between the first 20 bytes and the frames."""
    body = b"".join(frames)
    checksum = xxh64(header + body)
    return header + struct.pack("<Q", checksum) + body


def contributors_payload(contributors, workers):
    bitmap = bytearray((workers + 7) // 8)
    for rank in contributors:
        bitmap[rank // 8] |= 1 << rank % 8
    return bytes(bitmap)


# --- Command line ----------------------------------------------------------


class WrongUsage(Exception):
    pass


def encoded_parts(arguments, raw, residual):
    """(file, new residual) of all values in raw"""
    count = math.prod(arguments.dims)
    length = arguments.part_values or max(count, 1)
    item = len(raw) // count if count else 0
    gradient = None
    if arguments.gradient is not None:
        gradient = floats_of_bytes(read_file(arguments.gradient))
    file, residuals = b"", []
    for part, first in enumerate(range(0, max(count, 1), length)):
        end = first + length
        more = {"draws": Draws(arguments.seed, step=arguments.step, first=first)}
        if gradient is not None:
            more["gradient"] = gradient[first:end]
        old = residual and residual[first:end]
        made, new = encoded_values(arguments, raw[item * first : item * end], old, more)
        file += part_message(arguments, FILE, arguments.dtype, part, *made)
        residuals += new or []
    return file, residuals


def part_message(arguments, kind, dtype, part, codec, payload, flags=0):
    described = description(dtype, arguments.dims, arguments.part_values)
    flags |= FLAG_CUT if arguments.part_values else 0
    return message(kind, 0, 0, [frame(0, codec, payload, described, flags, part)])


def encoded_values(arguments, raw, residual, more):
    """((codec, payload, flags), new residual) of the values in raw"""
    codec, settings = arguments.codec
    if arguments.wide:
        return encoded_f64(settings, raw, residual, more)
    encoded = codecs.encode(codec, settings, raw, residual, **more)
    flags = FLAG_NOT_FINITE if encoded.not_finite else 0
    return (encoded.codec, encoded.payload, flags), encoded.residual


def encoded_f64(settings, raw, residual, more):
    values = struct.unpack(f"<{len(raw) // 8}d", raw)
    try:
        if all(map(math.isfinite, values)):
            encoded = codecs.encode_f64(settings, values, residual, **more)
            return (OLAND_RAJ, encoded.payload, 0), encoded.residual
        if not settings["non-finite"]:
            raise Refused("A value is not finite.")
        return (FP32, fp32_payload(values), FLAG_NOT_FINITE), residual
    except OverflowError as error:
        raise WrongUsage("A value is too large for an f32.") from error


def read_file(path):
    with open(path, "rb") as file:
        return file.read()


def write_file(path, data):
    with open(path, "wb") as file:
        file.write(data)


def read_state(arguments, count):
    """The residual, or None for a codec without one."""
    if not arguments.codec[1].get("ef"):
        return None
    if arguments.state is None or not os.path.exists(arguments.state):
        return [0.0] * count
    parsed, decoded = decode_message(read_file(arguments.state))
    if parsed.kind != STATE:
        raise WrongUsage("The state file is not a state message.")
    if parsed.frames[0].description.dims != arguments.dims:
        raise WrongUsage("The state file is for other dimensions.")
    return floats_of_bytes(b"".join(part.values for part in decoded))


def write_state(arguments, residual):
    # The residual is an array of f32 whatever the type of the tensor is.
    length = arguments.part_values or max(len(residual), 1)
    state = b""
    for part, first in enumerate(range(0, max(len(residual), 1), length)):
        payload = fp32_payload(residual[first : first + length])
        state += part_message(arguments, STATE, TYPE_F32, part, FP32, payload)
    write_file(arguments.state, state)


def dims_option(text):
    dims = [int(part) for part in text.split(",")] if text else []
    if len(dims) > 32 or any(not 0 <= dim <= 2**40 for dim in dims):
        raise ValueError("out of range")
    if math.prod(dim for dim in dims if dim) > 2**40:
        raise ValueError("too many elements")
    return dims


def word_option(text):
    value = int(text)
    if not 0 <= value < 2**64:
        raise ValueError("out of range")
    return value


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description="Writes one Tersewire file.")
    parser.add_argument("--codec", default="3lc", metavar="NAME:KEY=VALUE,...")
    for key in three_lc.PARAMETERS:
        if key != "ef":
            parser.add_argument(f"--{key}", metavar="VALUE", help="for 3lc")
    parser.add_argument("--state", metavar="FILE")
    parser.add_argument("--seed", type=word_option, default=0, help="of random numbers")
    parser.add_argument("--step", type=word_option, default=0, help="of random numbers")
    parser.add_argument("--gradient", metavar="FILE.f32", help="for oland-raj")
    parser.add_argument("--part-values", type=word_option, metavar="N", help="a multiple of 4")
    parser.add_argument("--dims", type=dims_option, required=True, metavar="N,N,...")
    parser.add_argument("--dtype", choices=["f32", "f64"], default="f32")
    parser.add_argument("input", metavar="IN.f32")
    parser.add_argument("output", metavar="OUT.tw")
    arguments = parser.parse_args(argv)
    try:
        text = codec_text(arguments)
        arguments.codec = codecs.parse_codec(text)
        if arguments.state is None and arguments.codec[1].get("ef") and not says_error(text):
            arguments.codec = codecs.parse_codec(text + ("ef=off" if text[-1] == ":" else ",ef=off"))
    except BadCodecText as error:
        parser.error(str(error))
    check_arguments(parser, arguments)
    arguments.dtype = {"f32": TYPE_F32, "f64": TYPE_F64}[arguments.dtype]
    return arguments


def codec_text(arguments):
    """The codec's text with what the short options add to it."""
    short = {key: getattr(arguments, key.replace("-", "_"), None) for key in three_lc.PARAMETERS}
    added = [f"{key}={value}" for key, value in short.items() if value is not None]
    name, _, parameters = arguments.codec.partition(":")
    return f"{name}:{','.join(added + [parameters] if parameters else added)}"


def says_error(text):
    """Whether it says what happens to what is not sent."""
    return any(key in text for key in (":ef=", ",ef=", ":lead=", ",lead="))


def check_arguments(parser, arguments):
    codec, settings = arguments.codec
    arguments.wide = codec.number == OLAND_RAJ and arguments.dtype == "f64"
    if arguments.part_values is not None:
        if arguments.part_values == 0 or arguments.part_values % 4:
            parser.error("--part-values is no multiple of 4")
        if arguments.part_values >= math.prod(arguments.dims):
            arguments.part_values = None
    if arguments.state is not None and not settings.get("ef"):
        parser.error("--state is for codecs with a residual (ef=on)")
    if settings.get("bits-from") == "gradient" and arguments.gradient is None:
        parser.error("bits-from=gradient needs --gradient")


def main(argv):
    arguments = parse_arguments(argv)
    try:
        raw = read_file(arguments.input)
        count = math.prod(arguments.dims)
        if len(raw) != (8 if arguments.wide else 4) * count:
            raise WrongUsage("The input does not have the number of values that --dims says.")
        encoded, residual = encoded_parts(arguments, raw, read_state(arguments, count))
        write_file(arguments.output, encoded)
        if arguments.state is not None:
            write_state(arguments, residual)
    except Rejected as rejection:
        print(f"The state file is rejected: {rejection}", file=sys.stderr)
        return 2
    except (OSError, WrongUsage, TooLarge, Refused) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
