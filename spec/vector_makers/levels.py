"""Vectors of codecs 5 (levels) and 6 (qsgd)."""

from reference import levels
from reference.codecs import LEVELS, QSGD
from reference.cursor import varint
from reference.floats import LARGEST_F32, LARGEST_SCALE, bits_of, f32
from reference.floats import bytes_of_floats as fp32_payload
from reference.levels import LAYOUT_BUCKETS, LAYOUT_DENSE, digits_in_word
from reference_decoder import FILE, TYPE_F64

from .common import (
    BAD_MAGNITUDES,
    FEW_BAD_MAGNITUDES,
    M_LARGEST_DENORMAL,
    M_SMALLEST,
    Part,
    accepted_message,
    accepted_push,
    f32_bytes,
)

# D is 40, 32, 27, 22, 21, 15, 7, 4, 4 and 3.
LEVEL_COUNTS = [1, 2, 3, 6, 7, 31, 255, 16384, 32767, 65535]
SCALERS = [0.7, 0.0, 3.0, M_SMALLEST, 1e-3, 1e30, M_LARGEST_DENORMAL, 1.0]


def levels_of(count, most):
    """All levels from -N to N where there is room, in an order that mixes them."""
    return [(index * 5 + index * index) % (2 * most + 1) - most for index in range(count)]


def case(most, signed_levels, scalers, bucket=0, dense=False):
    """(payload, elements)"""
    scalers = [f32(scaler) for scaler in scalers]
    payload = levels.payload(most, bucket, scalers, signed_levels, dense)
    steps = [f32(scaler / most) for scaler in scalers]
    elements = [
        bits_of(f32(level * steps[index // bucket if bucket else 0])) if level else None
        for index, level in enumerate(signed_levels)
    ]
    return payload, elements


# --- Accepted --------------------------------------------------------------


def accepted():
    files = {}
    for name, dense in [("plain", False), ("dense", True)]:
        cases = [
            case(most, levels_of(n, most), [0.7], dense=dense)
            for most in LEVEL_COUNTS
            for n in lengths(most)
        ]
        files |= accepted_push(f"levels-{name}", LEVELS, cases, with_adds=False)
        files |= accepted_push(f"qsgd-{name}-buckets", QSGD, bucket_cases(dense))
        cases = [case(5, levels_of(13, 5), [scaler], dense=dense) for scaler in SCALERS]
        files |= accepted_push(f"levels-{name}-scalers", LEVELS, cases)
    largest = [
        case(most, [-most, 0, most, 1], [scaler], dense=dense)
        for most in (4, 25, 65535)  # with 25 the largest scaler overflows
        for scaler in (LARGEST_SCALE, LARGEST_F32)
        for dense in (False, True)
    ]
    files |= accepted_push("levels-largest-scaler", LEVELS, largest)
    payload, elements = case(7, levels_of(20, 7), [0.25, 4.0, 1.0], 8)
    part = Part(0, QSGD, payload, elements, (TYPE_F64, [4, 5]))
    return files | accepted_message("qsgd-file-f64", FILE, [part])


def lengths(most):
    per_word = digits_in_word(2 * most + 1)
    return [0, 1, per_word - 1, per_word, per_word + 1]


def bucket_cases(dense):
    cases = [case(3, [], [], bucket, dense) for bucket in (1, 2**40)]
    for n, bucket in [(8, 1), (7, 2), (9, 4), (13, 13), (13, 14), (13, 2**40), (300, 128)]:
        count = -(-n // bucket)
        for most in (3, 10):
            cases.append(case(most, levels_of(n, most), SCALERS[:count], bucket, dense))
    return cases


# --- Rejected --------------------------------------------------------------


def rejected(out):
    rejected_heads(out)
    rejected_buckets(out)
    rejected_plain(out)
    rejected_dense(out)


ONE = fp32_payload([1.0])


def rejected_heads(out):
    def add(name, payload, reason, elems=1):
        out.add_payload(f"levels-{name}", LEVELS, payload, reason, elems)

    add("empty", b"", "The payload is empty.", 0)
    for bit in range(2, 8):
        payload = bytes([1 << bit]) + varint(1) + ONE + b"\x02"
        add(f"layout-bit-{bit}", payload, f"Bit {bit} of the layout is reserved.")
    for name, encoded in [
        ("zero", b"\0"),
        ("above", varint(65536)),
        ("wraps-16-bits", varint(65537)),
        ("wraps-64-bits", varint(2**64 + 1)),
        ("overlong", b"\x81\x00"),
    ]:
        add(f"n-{name}", b"\0" + encoded + ONE + b"\x02", "N is not a varint in 1..65535.")
    add("n-zero-without-elements", b"\0\0" + ONE, "N is 0.", 0)
    add("n-zero-dense", b"\x01\0" + ONE + bytes(8), "N is 0.")
    add("n-cut", b"\0", "N is cut off.", 0)
    for codec, codec_name, bad_ones in [
        (LEVELS, "levels", BAD_MAGNITUDES),
        (QSGD, "qsgd", FEW_BAD_MAGNITUDES),
    ]:
        for name, bits, what in bad_ones:
            payload = b"\0" + varint(1) + f32_bytes(bits) + b"\x02"
            out.add_payload(f"{codec_name}-scaler-{name}", codec, payload, f"A scaler {what}.", 1)
    add("scaler-cut", b"\0\x01" + ONE[:3], "The scaler is cut off.", 0)
    add("without-scaler", b"\0\x01", "One scaler is due where there are no elements.", 0)


def rejected_buckets(out):
    def add(name, bucket, scalers, reason, elems=3):
        head = bytes([LAYOUT_BUCKETS]) + varint(1) + bucket + fp32_payload([1.0] * scalers)
        body = b"\x15" if elems else b""
        out.add_payload(f"qsgd-{name}", QSGD, head + body, reason, elems)

    add("bucket-zero", b"\0", 1, "The bucket length is 0.")
    add("bucket-above", varint(2**40 + 1), 1, "The bucket length is above 2^40.")
    add("bucket-overlong", b"\x83\x00", 1, "The bucket length is not in its shortest form.")
    add("bucket-cut", b"\x83", 0, "The bucket length is cut off.", 0)
    add("scaler-missing", varint(2), 1, "Two buckets have one scaler.")
    add("scaler-left-over", varint(3), 2, "One bucket has two scalers.")
    add("scaler-without-bucket", varint(1), 1, "No bucket has a scaler.", 0)
    payload = bytes([LAYOUT_BUCKETS]) + varint(1) + varint(1) + ONE
    out.add_huge("qsgd-huge-buckets", QSGD, payload, "2^40 buckets have 1 scaler.")


def rejected_plain(out):
    def add(name, most, body, elems, reason):
        payload = b"\0" + varint(most) + ONE + body
        out.add_payload(f"levels-plain-{name}", LEVELS, payload, reason, elems)

    add("above", 1, b"\x03", 1, "The field 3 is above 2 N = 2.")
    add("above-last", 1, b"\xc0", 4, "The field 3 is above 2 N = 2.")
    add("above-three-bits", 2, b"\x05", 1, "The field 5 is above 2 N = 4.")
    add("above-across-bytes", 5, b"\x00\xb0", 4, "The field 11 is above 2 N = 10.")
    add("above-widest", 65535, b"\xff\xff\x01", 1, "The field 131071 is above 2 N = 131070.")
    add("left-over", 1, b"\x06", 1, "Bit 2 is left over and set.")
    add("left-over-last", 3, b"\x83", 2, "Bit 7 is left over and set.")
    add("short", 1, b"\x01", 5, "The body has 1 byte for 10 bits.")
    add("long", 1, b"\x55\x00", 4, "The body has 2 bytes for 8 bits.")
    add("body-without-elements", 1, b"\0", 0, "There are no elements, and the body has a byte.")
    add("dense-body", 1, bytes(8), 1, "The body is dense, and the layout does not say so.")
    payload = b"\0" + varint(1) + ONE + bytes(9)
    out.add_huge("levels-plain-huge", LEVELS, payload, "2^40 elements have 9 bytes.")


def rejected_dense(out):
    def add(name, most, words, elems, reason, tail=b""):
        body = b"".join(word.to_bytes(8, "little") for word in words) + tail
        payload = bytes([LAYOUT_DENSE]) + varint(most) + ONE + body
        out.add_payload(f"levels-dense-{name}", LEVELS, payload, reason, elems)

    # All digits 1, which is level 0 for N = 1.
    zero = (3**40 - 1) // 2
    add("word-above", 1, [3**40], 40, "The word is 3^40.")
    add("word-largest", 1, [2**64 - 1], 40, "The word is above 3^40.")
    add("word-above-later", 1, [zero, 3**40], 80, "The second word is 3^40.")
    add("word-above-wide", 65535, [131071**3], 3, "The word is 131071^3.")
    add("padding-first", 1, [zero + 3**39], 39, "The padding digit is 2.")
    add("padding-zero", 1, [0], 1, "The padding digits are 0, which is level -1.")
    add("padding-second-word", 1, [zero, zero - 3], 41, "The first padding digit is 0.")
    add("short", 1, [zero], 41, "There is one word for 41 elements.")
    add("long", 1, [zero, zero], 40, "There are two words for 40 elements.")
    add("word-cut", 1, [], 40, "The word is cut off.", bytes(7))
    add("byte-left-over", 1, [zero], 40, "A byte is left over.", b"\0")
    add("word-without-elements", 1, [zero], 0, "There are no elements, and there is a word.")
    payload = bytes([LAYOUT_DENSE]) + varint(1) + ONE + bytes(8)
    out.add_huge("levels-dense-huge", LEVELS, payload, "2^40 elements have one word.")
