"""Vectors of codec 15 (oland-raj)."""

import struct

from reference import huffman, oland_raj
from reference.bits import fields_as_bytes
from reference.codecs import OLAND_RAJ
from reference.cursor import varint
from reference.floats import LARGEST_F32, bits_of, f32, f32_to_finite
from reference.floats import bytes_of_floats as fp32_payload
from reference.oland_raj import CONSTANT, FIXED, HUFFMAN, LAYOUT_F64
from reference_decoder import FILE, PUSH, TYPE_F32, TYPE_F64

from .common import M_SMALLEST, NOT_FINITE, Part, accepted_message, f32_bytes, into_for

LARGEST_F64 = struct.unpack("<d", b"\xff\xff\xff\xff\xff\xff\xef\x7f")[0]
SMALLEST_F64 = 2.0**-1074

RANGES = [(-0.3, 0.7), (0.0, M_SMALLEST), (-LARGEST_F32, LARGEST_F32), (-0.0, 1.0), (1e30, 2e30)]
RANGES_F64 = [
    (-0.3, 0.7),
    (0.1, 0.1 + 2.0**-56),
    (0.0, SMALLEST_F64),
    (-1e300, 1e300),
    (-LARGEST_F64, 0.0),
    (0.0, 2 * LARGEST_F32),
]


class Case:
    """A payload with the values that it stands for, not yet rounded to f32."""

    def __init__(self, payload, f64, values):
        self.payload = payload
        self.elements = [bits_of(f32_to_finite(value)) for value in values]
        self.values_f64 = values if f64 else [f32(value) for value in values]

    def part(self, tensor, described=None):
        part = Part(tensor, OLAND_RAJ, self.payload, self.elements, described)
        return part.with_f64(self.values_f64)


def constant(n, low, f64=False):
    low = low if f64 else f32(low)
    return Case(oland_raj.head(CONSTANT, f64, low), f64, [low] * n)


def indexed(coding, bits, body, indices, bounds=(-0.3, 0.7), f64=False):
    low, high = bounds if f64 else map(f32, bounds)
    payload = oland_raj.head(coding, f64, low, high) + bytes([bits]) + body
    width = high - low
    return Case(payload, f64, [low + width * ((i + 0.5) / 2**bits) for i in indices])


def fixed(bits, indices, **options):
    return indexed(FIXED, bits, fields_as_bytes(indices, bits), indices, **options)


def coded(bits, lengths, indices, lengths_bytes=None, **options):
    """lengths of the first symbols, the others are not used."""
    lengths = lengths + [0] * (2**bits - len(lengths))
    lengths_bytes = lengths_bytes or huffman.lengths_bytes(lengths)
    body = lengths_bytes + huffman.streams_bytes(indices, lengths)
    return indexed(HUFFMAN, bits, body, indices, **options)


def indices_of(count, bits):
    return [(index * 7 + index * index) % 2**bits for index in range(count)]


# --- Accepted --------------------------------------------------------------


def accepted():
    return (
        message("constant", [constant(n, low) for n, low in CONSTANTS])
        | message("constant-f64", [constant(n, low, True) for n, low in CONSTANTS_F64])
        | message("fixed", fixed_cases(False))
        | message("fixed-f64", fixed_cases(True))
        | message("huffman", huffman_cases(False))
        | message("huffman-f64", huffman_cases(True))
        | message("huffman-lengths", lengths_cases())
        | accepted_files()
    )


CONSTANTS = [(0, 0.0), (1, 0.3), (5, -0.0), (70, -1e-40), (9, LARGEST_F32)]
CONSTANTS_F64 = [
    (0, 0.0),
    (1, 0.1),
    (5, -0.0),
    (3, SMALLEST_F64),
    (4, LARGEST_F64),
    (2, -LARGEST_F64),
    (2, 1 + 2.0**-24),
]


def message(name, cases):
    """Every second frame is described, of element type f64 and f32 in turn."""
    parts = []
    for tensor, case in enumerate(cases):
        n = len(case.elements)
        described = ((TYPE_F64, TYPE_F32)[tensor // 2 % 2], [n]) if tensor % 2 else None
        parts.append(case.part(tensor, described).with_add(-0.7, into_for(n)))
    return accepted_message(f"oland-raj-{name}", PUSH, parts, 3, 7)


def fixed_cases(f64):
    lengths = [1, 2, 3, 7, 8, 9, 33]
    cases = [fixed(bits, indices_of(9, bits), f64=f64) for bits in range(1, 17)]
    cases += [fixed(3, indices_of(n, 3), f64=f64) for n in lengths]
    cases.append(fixed(16, [0, 65535, 32768, 32767], f64=f64))
    for bounds in RANGES_F64 if f64 else RANGES:
        cases.append(fixed(2, [0, 3, 1, 2], bounds=bounds, f64=f64))
    return cases


def huffman_cases(f64):
    """Codes of one bit, of all lengths, and a tensor for every number of elements mod 4."""
    ladder = list(range(1, 16)) + [15]
    longest = [1, 16, *range(2, 16), 16]
    cases = [coded(1, [1, 1], [k % 2 for k in range(n)], f64=f64) for n in (1, 2, 3, 4, 5, 33)]
    cases.append(coded(4, ladder, [k * k % 16 for k in range(61)], f64=f64))
    cases.append(coded(5, longest, [k * k % 17 for k in range(62)], f64=f64))
    cases.append(coded(2, [2, 2, 2, 2], [0, 3, 1, 2, 3, 3, 3], f64=f64))
    cases.append(coded(2, [0, 1, 0, 1], [1, 3, 1, 3, 3], f64=f64))
    for bounds in RANGES_F64 if f64 else RANGES:
        cases.append(coded(2, [1, 2, 3, 3], [0, 3, 1, 2], bounds=bounds, f64=f64))
    return cases


def lengths_cases():
    """All ways to write a run, and all symbols in use."""
    ends = [1] + [0] * 65534 + [1]
    all_of_16_bits = [16] * 65536
    return [
        coded(16, ends, [0, 65535, 65535, 0, 65535]),
        coded(16, all_of_16_bits, [0, 65535, 1, 32768, 4660]),
        coded(4, [4] * 16, list(range(16))),
        coded(4, [4] * 16, list(range(16)), bytes([4 | 7 << 5, 0, 4 | 6 << 5, 4])),
        coded(4, [4] * 16, list(range(16)), bytes([4]) * 16),
        coded(3, [3] * 8, list(range(8))),
        coded(3, [1, 2, 0, 0, 0, 0, 0, 2], [0, 1, 7, 7], bytes([1, 2, 2 << 5, 1 << 5, 2])),
        coded(4, [1] + [0] * 7 + [1], [0, 8, 0]),
        coded(4, [1] + [0] * 8 + [1], [0, 9, 0]),
    ]


def accepted_files():
    f64 = fixed(9, indices_of(30, 9), bounds=(-1e-3, 1.5e-3), f64=True)
    f32_as_f64 = fixed(9, indices_of(30, 9), bounds=(-1e-3, 1.5e-3))
    return accepted_message(
        "oland-raj-file-f64", FILE, [f64.part(0, (TYPE_F64, [5, 6]))]
    ) | accepted_message("oland-raj-file-f32", FILE, [f32_as_f64.part(0, (TYPE_F32, [5, 6]))])


# --- Rejected --------------------------------------------------------------


def rejected(out):
    rejected_layouts(out)
    rejected_constants(out)
    rejected_bounds(out)
    rejected_bits(out)
    rejected_fixed(out)
    rejected_lengths(out)
    rejected_streams(out)


def add(out, name, payload, reason, elems):
    out.add_payload(f"oland-raj-{name}", OLAND_RAJ, payload, reason, elems)


def head(coding, bits=None, bounds=(-1.0, 1.0)):
    start = oland_raj.head(coding, False, *bounds)
    return start if bits is None else start + bytes([bits])


def rejected_layouts(out):
    zero = fp32_payload([0.0])
    add(out, "empty", b"", "The payload is empty.", 0)
    add(out, "layout-3", b"\3" + zero * 2 + b"\1\0", "The layout 3 is reserved.", 1)
    add(out, "layout-7", b"\7" + bytes(16) + b"\1\0", "The layout 3 is reserved.", 1)
    for bit in range(3, 8):
        reason = f"Bit {bit} of the layout is reserved."
        add(out, f"layout-bit-{bit}", bytes([1 << bit]) + zero, reason, 1)


def rejected_constants(out):
    add(out, "constant-min-cut", b"\0\0\0\0", "The minimum is cut off.", 1)
    add(out, "constant-long", head(CONSTANT, None, [1.0]) + b"\0", "A byte is left over.", 1)
    add(out, "constant-f64-as-f32", b"\4" + bytes(4), "A minimum of f64 has 4 bytes.", 1)
    add(out, "constant-f32-as-f64", b"\0" + bytes(8), "A minimum of f32 has 8 bytes.", 1)
    add(out, "constant-with-max", head(CONSTANT, None, [0.0, 1.0]), "There is a maximum.", 1)
    for which, bits, what in NOT_FINITE:
        add(out, f"constant-min-{which}", b"\0" + f32_bytes(bits), f"The minimum {what}.", 1)
    for which, value in [("infinite", "inf"), ("minus-infinite", "-inf"), ("nan", "nan")]:
        payload = struct.pack("<Bd", LAYOUT_F64, float(value))
        add(out, f"constant-f64-min-{which}", payload, f"The minimum is {value}.", 1)
    reason = "There are no elements, and the minimum is not 0."
    add(out, "constant-one-without-elements", head(CONSTANT, None, [1.0]), reason, 0)
    for coding, name, body in [(FIXED, "fixed", b""), (HUFFMAN, "huffman", b"\x21" + bytes(4))]:
        reason = "There are no elements, and the layout is not constant."
        add(out, f"{name}-without-elements", head(coding, 1) + body, reason, 0)


def rejected_bounds(out):
    for coding, name, body in [
        (FIXED, "fixed", b"\1\0"),
        (HUFFMAN, "huffman", b"\1\x21\1\0\0\0\0"),
    ]:
        one = fp32_payload([1.0])
        for which, bits, what in NOT_FINITE:
            bad = f32_bytes(bits)
            start = bytes([coding])
            add(out, f"{name}-min-{which}", start + bad + one + body, f"The minimum {what}.", 1)
            add(out, f"{name}-max-{which}", start + one + bad + body, f"The maximum {what}.", 1)
        for what, low, high in [
            ("equal", 1.0, 1.0),
            ("less", 1.0, 0.5),
            ("negative", -0.5, -1.0),
            ("zeros", -0.0, 0.0),
        ]:
            payload = head(coding, None, (low, high)) + body
            reason = "The maximum is not greater than the minimum."
            add(out, f"{name}-max-{what}", payload, reason, 1)
        wide = struct.pack("<Bdd", coding | LAYOUT_F64, -LARGEST_F64, LARGEST_F64)
        reason = "The maximum less the minimum overflows."
        add(out, f"{name}-f64-range-infinite", wide + body, reason, 1)
        equal = struct.pack("<Bdd", coding | LAYOUT_F64, 0.1, 0.1)
        reason = "The maximum is not greater than the minimum."
        add(out, f"{name}-f64-max-equal", equal + body, reason, 1)
        for which, value in [("infinite", "inf"), ("nan", "nan")]:
            bad = struct.pack("<Bdd", coding | LAYOUT_F64, 0.0, float(value))
            add(out, f"{name}-f64-max-{which}", bad + body, f"The maximum is {value}.", 1)
        add(out, f"{name}-max-missing", head(coding, None, [0.0]), "The maximum is missing.", 1)
        cut = head(coding, None, (0.0, 1.0))[:-1]
        add(out, f"{name}-max-cut", cut, "The maximum is cut off.", 1)


def rejected_bits(out):
    add(out, "fixed-bits-missing", head(FIXED), "N is missing.", 1)
    add(out, "huffman-bits-missing", head(HUFFMAN), "N is missing.", 1)
    for bits in (0, 17, 32, 255):
        body = bytes((bits + 7) // 8)
        add(out, f"fixed-bits-{bits}", head(FIXED, bits) + body, f"N is {bits}.", 1)
        body = b"\x21\1\0\0\0\0"
        add(out, f"huffman-bits-{bits}", head(HUFFMAN, bits) + body, f"N is {bits}.", 1)


def rejected_fixed(out):
    for bits, elems in [(1, 9), (3, 3), (16, 2)]:
        payload = head(FIXED, bits) + bytes((bits * elems + 7) // 8)
        out.add_cuts_and_tails(f"oland-raj-fixed-{bits}", OLAND_RAJ, payload, elems)
    for bits, elems, bit in [(1, 1, 1), (1, 7, 7), (3, 3, 9), (3, 3, 15), (5, 1, 5)]:
        body = (1 << bit).to_bytes((bits * elems + 7) // 8, "little")
        reason = f"Bit {bit} is left over and set."
        name = f"fixed-left-over-{bits}-{elems}-{bit}"
        add(out, name, head(FIXED, bits) + body, reason, elems)
    payload = head(FIXED, 1) + bytes(9)
    out.add_huge("oland-raj-fixed-huge", OLAND_RAJ, payload, "2^40 elements have 9 bytes.")


def rejected_lengths(out):
    """One element whose code would be one zero bit."""
    streams = b"\1\0\0\0\0"

    def add_lengths(name, bits, lengths, reason):
        add(out, f"huffman-{name}", head(HUFFMAN, bits) + lengths + streams, reason, 1)

    for length in (17, 31):
        lengths = bytes([1, 1, length, 0])
        add_lengths(f"length-{length}", 2, lengths, f"The code length {length} is reserved.")
    add_lengths("over-complete", 2, bytes([1, 1, 1, 0]), "The sum of 2^-length is 1.5.")
    add_lengths("over-complete-little", 2, bytes([1, 1, 16, 0]), "The sum is 1 + 2^-16.")
    add_lengths("incomplete", 2, bytes([1, 2, 0, 0]), "The sum of 2^-length is 0.75.")
    add_lengths("incomplete-little", 5, one_short_of_complete(), "The sum is 1 - 2^-16.")
    add_lengths("one-symbol", 2, bytes([1, 2 << 5]), "The sum of 2^-length is 0.5.")
    add_lengths("no-symbols", 2, bytes([3 << 5]), "No symbol is used.")
    # 2^16 codes of length 1 would be a sum that wraps in 32 bits with 17 fractional bits.
    lengths = bytes([1 | 7 << 5]) + varint(65528)
    add_lengths("over-complete-wide", 16, lengths, "The sum of 2^-length is 2^15.")
    add_lengths("run-too-long", 1, bytes([1 | 2 << 5]), "There are 3 lengths for 2 symbols.")
    add_lengths("long-run-too-long", 3, bytes([3 | 7 << 5, 1]), "9 lengths for 8 symbols.")
    add_lengths("run-past-end", 2, bytes([1, 1, 2 << 5]), "5 lengths for 4 symbols.")
    lengths = bytes([1 | 7 << 5]) + varint(2**16 + 1)
    add_lengths("run-above", 16, lengths, "The varint of a run is above 2^16.")
    lengths = bytes([1, 1, 7 << 5]) + varint(2**64)
    add_lengths("run-wraps", 16, lengths, "The varint of a run is above 2^16.")
    lengths = bytes([3 | 7 << 5, 0x80, 0])
    add_lengths("run-overlong", 3, lengths, "The varint of a run is not in its shortest form.")
    add(out, "huffman-lengths-missing", head(HUFFMAN, 1), "The code lengths are missing.", 1)
    add(out, "huffman-lengths-cut", head(HUFFMAN, 3) + b"\1\1", "Six lengths are missing.", 1)
    add(out, "huffman-run-cut", head(HUFFMAN, 3) + b"\xe3", "The varint of a run is missing.", 1)


def one_short_of_complete():
    """Lengths 1 to 16 once each, where 16 should be there twice."""
    return bytes(range(1, 17)) + bytes([7 << 5, 8])


def rejected_streams(out):
    lengths = bytes([1, 2, 2, 0])

    def add_streams(name, streams, reason, elems):
        payload = head(HUFFMAN, 2) + lengths + streams
        add(out, f"huffman-{name}", payload, reason, elems)

    add_streams("sizes-missing", b"", "The streams' lengths are missing.", 1)
    add_streams("sizes-cut", b"\0\0\0", "The fourth stream's length is missing.", 1)
    add_streams("size-overlong", b"\x81\0\0\0\0\0", "A varint is not in its shortest form.", 1)
    add_streams("size-wraps", varint(2**64 + 1) + b"\0\0\0\0", "Cut to 64 bits it would be 1.", 1)
    add_streams("sizes-wrap", varint(2**63) * 2 + b"\1\0\0", "The sum cut to 64 bits is 1.", 1)
    add_streams("size-above", b"\2\0\0\0\0", "The first stream is cut off.", 1)
    add_streams("size-below", b"\0\0\0\0\0", "A byte follows the streams.", 1)
    add_streams("stream-missing", b"\1\0\0\0\0", "The second stream is empty.", 2)
    add_streams("stream-too-many", b"\1\1\0\0\0\0", "The second stream has no elements.", 1)
    add_streams("stream-long", b"\2\0\0\0\0\0", "The first stream has a byte more.", 1)
    add_streams("stream-short", b"\1\0\0\0\xff", "Five codes of two bits have a byte.", 17)
    add_streams("code-cut", b"\1\1\1\1\x80\0\0\0", "The last code lacks a bit.", 32)
    add_streams("left-over", b"\1\0\0\0\2", "Bit 1 is left over and set.", 1)
    add_streams("left-over-last", b"\1\0\0\0\x80", "Bit 7 is left over and set.", 1)
    add_streams("left-over-fourth", b"\1\1\1\1\0\0\0\4", "Bit 2 is left over and set.", 4)
    add_streams("byte-left-over", b"\1\0\0\0\0\0", "A byte follows the streams.", 1)
    add_streams("stream-order", b"\0\1\0\0\0", "The only element is in the first stream.", 1)
    payload = head(HUFFMAN, 2) + lengths + b"\2\2\2\2" + bytes(8)
    out.add_huge("oland-raj-huffman-huge", OLAND_RAJ, payload, "2^40 elements have 8 bytes.")
