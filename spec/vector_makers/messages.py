"""Accepted messages: headers, kinds, flags, descriptions, contributors and fp32."""

import math
import struct

from reference.floats import LARGEST_F32, f32
from reference.three_lc import LAYOUT_ZERO_RUNS
from reference_decoder import (
    AGREEMENT,
    CHECKSUM,
    DONE,
    FILE,
    FINITENESS,
    FLAG_NOT_FINITE,
    OFFER,
    PULL,
    PUSH,
    STATE,
    TYPE_F32,
    TYPE_F64,
)

from .common import accepted_message, contributors_part, fp32_part
from .three_lc import three_lc_part


def accepted():
    return (
        accepted_messages()
        | accepted_descriptions()
        | accepted_not_finite()
        | accepted_flags()
        | accepted_contributors()
        | accepted_agreements()
    )


def accepted_agreements():
    offer = [fp32_part(0, [0.5]), fp32_part(300, [0.0, math.inf, 2.0**-149])]
    return (
        accepted_message("offer", OFFER, offer, 2, 9)
        | accepted_message("agreement", AGREEMENT, offer, 3, 9)
        | accepted_message("checksum", CHECKSUM, [fp32_part(0, bytes(range(8)))], 4, 101)
        # Tensors 0 and 9 of a bucket of at most 32; none, and the last, of one of 33 to 64.
        | accepted_message("finiteness", FINITENESS, [fp32_part(2, bytes([1, 2, 0, 0]))], 3, 7)
        | accepted_message("finiteness-none", FINITENESS, [fp32_part(300, bytes(8))], 0, 7)
        | accepted_message(
            "finiteness-last", FINITENESS, [fp32_part(0, bytes(7) + b"\x80")], 0, 2**64 - 1
        )
    )


def accepted_descriptions():
    huge = 2**40
    shapes = {
        "rank-0": (TYPE_F32, []),
        "rank-32": (TYPE_F32, [1] * 31 + [2]),
        "dims-with-zero": (TYPE_F32, [3, 0, 5]),
        "dims-largest-with-zero": (TYPE_F32, [0, huge]),
        "dims-product-at-limit-with-zero": (TYPE_F64, [2**20, 0, 2**20]),
        "type-f64": (TYPE_F64, [2, 3]),
        "dims-two-byte-varint": (TYPE_F32, [1, 130]),
    }
    files = {}
    for name, described in shapes.items():
        count = 1
        for dim in described[1]:
            count *= dim
        values = [f32(0.1 * index - 0.2) for index in range(count)]
        digits = [(index + 2) % 3 for index in range(count)]
        files |= accepted_message(f"{name}-fp32", FILE, [fp32_part(0, values, described)])
        part = three_lc_part(0, digits, LAYOUT_ZERO_RUNS, described=described)
        files |= accepted_message(f"{name}-3lc", FILE, [part])
    return files


# A quiet and a signalling NaN with payloads, both infinities, both zeros,
# a denormal, the largest and an ordinary value.
ANY_BITS = struct.pack(
    "<9I",
    0x7FC12345,
    0xFFA00001,
    0x7F800000,
    0xFF800000,
    0,
    0x80000000,
    0x80000001,
    0x7F7FFFFF,
    0x3F800000,
)


def accepted_not_finite():
    finite = [LARGEST_F32, -1.0]
    return (
        accepted_message("fp32-any-bits", FILE, [fp32_part(0, ANY_BITS, (TYPE_F32, [9]))])
        | accepted_message(
            "not-finite-described",
            FILE,
            [fp32_part(0, ANY_BITS, (TYPE_F32, [3, 3]), FLAG_NOT_FINITE)],
        )
        | accepted_message(
            "not-finite-undescribed",
            PUSH,
            [fp32_part(0, ANY_BITS, None, FLAG_NOT_FINITE), fp32_part(1, [0.5])],
        )
        # Only the sum with the residual overflowed, so every value is finite.
        | accepted_message("not-finite-sum", PUSH, [fp32_part(0, finite, None, FLAG_NOT_FINITE)])
    )


def accepted_flags():
    return accepted_message(
        "flags-unused",
        PULL,
        [
            fp32_part(0, [1.0], (TYPE_F32, []), 0x40),
            fp32_part(1, [2.0], None, 0x80),
            three_lc_part(2, [0, 1, 2], 0, flags=0xC0),
            fp32_part(3, [3.0], (TYPE_F32, [1]), 0xC0 | FLAG_NOT_FINITE),
            contributors_part(4, [0], 2, 0xC0),
            fp32_part(4, [4.0]),
        ],
        workers=2,
    )


def accepted_contributors():
    delta = [0.25, -0.25]
    return (
        accepted_message(
            "contributors-3-workers",
            PULL,
            [
                fp32_part(0, delta),
                contributors_part(1, [0, 2], 3),
                fp32_part(1, delta),
                contributors_part(300, [1], 3),
                three_lc_part(300, [2, 1, 0, 0, 2, 1], LAYOUT_ZERO_RUNS),
            ],
            step=12,
            workers=3,
        )
        | accepted_message(
            "contributors-8-workers",
            PULL,
            [contributors_part(0, range(7), 8), fp32_part(0, delta)],
            workers=8,
        )
        | accepted_message(
            "contributors-9-workers",
            PULL,
            [contributors_part(0, range(1, 9), 9), fp32_part(0, delta, (TYPE_F32, [2]))],
            workers=9,
        )
    )


def accepted_messages():
    largest = 2**32 - 1
    numbers = [0, 127, 128, 16383, 16384, 2**21, 2**28, largest]
    return (
        accepted_message("done", DONE, [], 5, 1000)
        | accepted_message("push-empty", PUSH, [])
        | accepted_message("pull-empty", PULL, [])
        # Two versions of a bucket of tensors 3 and 1.
        | accepted_message(
            "pull-versions",
            PULL,
            [
                fp32_part(3, [1.0, -2.0]),
                fp32_part(1, [0.5]),
                fp32_part(3, [0.0, 3.0]),
                fp32_part(1, [-0.5]),
            ],
            6,
            12,
        )
        | accepted_message("sender-step-largest", PUSH, [fp32_part(0, [1.0])], largest, 2**64 - 1)
        | accepted_message("tensor-numbers", PUSH, [fp32_part(n, [1.0, 2.0]) for n in numbers])
        | accepted_message(
            "part-numbers",
            PUSH,
            [fp32_part(n, [1.0, 2.0], part=part) for n in (0, 300) for part in numbers],
        )
        | accepted_message(
            "part-contributors",
            PULL,
            [
                contributors_part(7, [0, 2], 3, part=2),
                fp32_part(7, [1.0], part=2),
                fp32_part(7, [1.0], part=1),
            ],
            workers=3,
        )
        | accepted_message(
            "part-scalers",
            OFFER,
            [fp32_part(1, [1.0]), fp32_part(1, [2.0], part=1), fp32_part(2, [2.0], part=1)],
        )
        | accepted_message(
            "version-1-file", FILE, [fp32_part(0, [0.5] * 3, (TYPE_F32, [3]))], version=1
        )
        | accepted_message(
            "version-1-state", STATE, [fp32_part(0, [0.5] * 3, (TYPE_F32, [3]))], version=1
        )
        | accepted_message(
            "fp32-200-byte-payload", FILE, [fp32_part(0, [0.5] * 50, (TYPE_F32, [50]))]
        )
        | accepted_message("fp32-empty", PUSH, [fp32_part(0, [])])
        | accepted_message("state", STATE, [fp32_part(0, [0.5, -0.25, 0.0], (TYPE_F32, [3]))])
        | accepted_message("state-empty", STATE, [fp32_part(0, [], (TYPE_F32, [0]))])
    )
