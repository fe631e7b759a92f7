#!/usr/bin/python3
"""A reference writer for Tersewire messages, written from wire-format.md.

It writes files (message kind 3) and the states that belong to them:

    reference_encoder.py [--codec 3lc|fp32] [--s 1.75]
                         [--layout neighbours|partitions] [--zre on|off]
                         [--long-runs on|off] [--state FILE]
                         --dims 3,5 [--dtype f32|f64] IN.f32 OUT.tw

IN.f32 holds raw little-endian f32 values; an empty --dims is rank 0. The
state is read if it exists, as the residual, and written afterwards. Exit
status: 0 written, 2 wrong usage.
"""

import argparse
import ctypes
import math
import os
import struct
import sys

from reference_decoder import (
    CODEC_NAMES,
    FILE,
    FLAG_DESCRIBED,
    FLAG_NOT_FINITE,
    FP32,
    LAYOUT_LONG_RUNS,
    LAYOUT_PARTITIONS,
    LAYOUT_ZERO_RUNS,
    STATE,
    THREE_LC,
    ZERO_GROUP,
    Rejected,
    TooLarge,
    decode_message,
    xxh64,
)

TYPE_F32, TYPE_F64 = 1, 2
LARGEST_F32 = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]


def f32(value):
    """Rounds to the nearest f32, ties to even, overflow to infinity."""
    return ctypes.c_float(value).value


# --- Messages and frames ---------------------------------------------------


def varint(value):
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def description(element_type, dims):
    return bytes([element_type, len(dims)]) + b"".join(varint(dim) for dim in dims)


def frame(tensor, codec, payload, described=None, flags=0):
    """described holds the bytes of the description, or is None."""
    if described is not None:
        flags |= FLAG_DESCRIBED
    head = varint(tensor) + bytes([codec, flags]) + (described or b"")
    return head + varint(len(payload)) + payload


def message(kind, sender, step, frames):
    return sealed(struct.pack("<2sBBIQI", b"TW", 1, kind, sender, step, len(frames)), frames)


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


def fp32_payload(values):
    return struct.pack(f"<{len(values)}f", *values)


# --- 3lc -------------------------------------------------------------------


def layout_byte(partitions, zero_runs, long_runs):
    return (
        LAYOUT_PARTITIONS * partitions
        | LAYOUT_ZERO_RUNS * zero_runs
        | LAYOUT_LONG_RUNS * long_runs
    )


def three_lc_payload(m, s, digits, layout):
    groups = groups_of_digits(digits, layout & LAYOUT_PARTITIONS)
    if layout & LAYOUT_ZERO_RUNS:
        groups = zero_run_encoded(groups, layout & LAYOUT_LONG_RUNS)
    return struct.pack("<ffB", m, s, layout) + groups


def groups_of_digits(digits, partitions):
    count = (len(digits) + 4) // 5
    padded = list(digits) + [1] * (5 * count - len(digits))
    groups = bytearray()
    for g in range(count):
        group = 0
        for k in range(5):
            group = 3 * group + padded[k * count + g if partitions else 5 * g + k]
        groups.append(group)
    return bytes(groups)


def zero_run_encoded(groups, long_runs):
    body = bytearray()
    run = 0
    for group in groups:
        if group == ZERO_GROUP:
            run += 1
            continue
        body += encoded_run(run, long_runs)
        body.append(group)
        run = 0
    return bytes(body + encoded_run(run, long_runs))


def encoded_run(length, long_runs):
    if long_runs and length >= 14:
        return b"\xff" + varint(length - 14)
    body = b"\xff" * (length // 14)
    rest = length % 14
    if rest == 1:
        body += bytes([ZERO_GROUP])
    elif rest > 1:
        body += bytes([rest + 241])
    return body


def quantized(values, residual, s):
    """(m, digits, new residual), or None where an element of T is not finite.

    Every operation is done in f64 on f32 values and rounded to f32 once,
    which is the correctly rounded f32 operation.
    """
    total = [f32(r + v) for r, v in zip(residual, values)]
    if not all(math.isfinite(t) for t in total):
        return None
    m = min(f32(max(map(abs, total), default=0.0) * s), LARGEST_F32)
    digits = bytes(digit_of(t, m) for t in total)
    rest = [f32(t - m * (digit - 1)) for t, digit in zip(total, digits)]
    return m, digits, rest


def digit_of(t, m):
    # For m = 0 every t is 0 and nothing is below m, so it needs its own test.
    if m == 0 or 2 * abs(t) < m:
        return 1
    return 2 if t > 0 else 0


# --- Command line ----------------------------------------------------------


class WrongUsage(Exception):
    pass


def file_frame(arguments, raw, residual):
    """(frame for the values in raw, new residual)"""
    values = struct.unpack(f"<{len(raw) // 4}f", raw)
    described = description(arguments.dtype, arguments.dims)
    not_finite = 0 if all(map(math.isfinite, values)) else FLAG_NOT_FINITE
    if arguments.codec == FP32:
        return frame(0, FP32, raw, described, not_finite), residual
    result = quantized(values, residual, arguments.s)
    if result is None:
        # The bytes as they came, because a NaN may change on its way through a float.
        return frame(0, FP32, raw, described, FLAG_NOT_FINITE), residual
    m, digits, rest = result
    payload = three_lc_payload(m, arguments.s, digits, arguments.layout_byte)
    return frame(0, THREE_LC, payload, described), rest


def read_state(arguments, count):
    if arguments.state is None or not os.path.exists(arguments.state):
        return [0.0] * count
    with open(arguments.state, "rb") as file:
        parsed, decoded = decode_message(file.read())
    if parsed.kind != STATE:
        raise WrongUsage("The state file is not a state message.")
    if parsed.frames[0].description.dims != arguments.dims:
        raise WrongUsage("The state file is for other dimensions.")
    return struct.unpack(f"<{count}f", decoded[0].values)


def write_state(arguments, residual):
    # The residual is an array of f32 whatever the type of the tensor is.
    described = description(TYPE_F32, arguments.dims)
    state = message(STATE, 0, 0, [frame(0, FP32, fp32_payload(residual), described)])
    with open(arguments.state, "wb") as file:
        file.write(state)


def dims_option(text):
    dims = [int(part) for part in text.split(",")] if text else []
    if len(dims) > 32 or any(not 0 <= dim <= 2**40 for dim in dims):
        raise ValueError("out of range")
    if math.prod(dim for dim in dims if dim) > 2**40:
        raise ValueError("too many elements")
    return dims


def s_option(text):
    s = f32(float(text))
    if not 1 <= s < 2:
        raise ValueError("out of range")
    return s


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description="Writes one Tersewire file.")
    parser.add_argument("--codec", choices=["3lc", "fp32"], default="3lc")
    parser.add_argument("--s", type=s_option, default=1.0, help="1 <= s < 2, default 1")
    parser.add_argument("--layout", choices=["neighbours", "partitions"], default="neighbours")
    parser.add_argument("--zre", choices=["on", "off"], default="on")
    parser.add_argument("--long-runs", choices=["on", "off"], default="off")
    parser.add_argument("--state", metavar="FILE")
    parser.add_argument("--dims", type=dims_option, required=True, metavar="N,N,...")
    parser.add_argument("--dtype", choices=["f32", "f64"], default="f32")
    parser.add_argument("input", metavar="IN.f32")
    parser.add_argument("output", metavar="OUT.tw")
    arguments = parser.parse_args(argv)
    if arguments.long_runs == "on" and arguments.zre == "off":
        parser.error("--long-runs on needs --zre on")
    if arguments.codec == "fp32" and arguments.state is not None:
        parser.error("--state is for 3lc")
    arguments.layout_byte = layout_byte(
        arguments.layout == "partitions", arguments.zre == "on", arguments.long_runs == "on"
    )
    arguments.codec = {name: codec for codec, name in CODEC_NAMES.items()}[arguments.codec]
    arguments.dtype = {"f32": TYPE_F32, "f64": TYPE_F64}[arguments.dtype]
    return arguments


def main(argv):
    arguments = parse_arguments(argv)
    try:
        with open(arguments.input, "rb") as file:
            raw = file.read()
        if len(raw) != 4 * math.prod(arguments.dims):
            raise WrongUsage("The input does not have the number of values that --dims says.")
        residual = read_state(arguments, len(raw) // 4)
        encoded, residual = file_frame(arguments, raw, residual)
        with open(arguments.output, "wb") as file:
            file.write(message(FILE, 0, 0, [encoded]))
        if arguments.state is not None:
            write_state(arguments, residual)
    except Rejected as rejection:
        print(f"The state file is rejected: {rejection}", file=sys.stderr)
        return 2
    except (OSError, WrongUsage, TooLarge) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
