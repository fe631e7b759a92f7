"""All codecs by number and by name, and what they have in common."""

import math
from dataclasses import dataclass
from collections.abc import Callable

from . import (
    fp32,
    halves,
    inceptionn,
    int8,
    levels,
    oland_raj,
    signs,
    sparse,
    ternary,
    three_lc,
    topk,
    truncate,
)
from .cursor import Cursor
from .floats import bits_of, bytes_of_elements, f32, float_of, floats_of_bytes
from .options import BadCodecText, Refused, read_settings
from .task import Task

FP32, THREE_LC, TERNGRAD, STOCH3, LEVELS, QSGD, INCEPTIONN = range(1, 8)
ADACOMP, LOCAL_SELECTION, DRYDEN, TOPK, INT8 = range(8, 13)
MQE1BIT, SIGNSGD, OLAND_RAJ, TRUNCATE, FP16, BF16 = range(13, 19)


@dataclass(frozen=True)
class Codec:
    number: int
    name: str
    decode: Callable
    encode: Callable | None = None
    parameters: dict | None = None
    complete: Callable = dict  # settings with the defaults that depend on others


CODECS = [
    Codec(FP32, "fp32", fp32.decode, fp32.encode, fp32.PARAMETERS),
    Codec(
        THREE_LC,
        "3lc",
        three_lc.decode,
        three_lc.encode,
        three_lc.PARAMETERS,
        three_lc.complete,
    ),
    Codec(
        TERNGRAD,
        "terngrad",
        ternary.decode_terngrad,
        ternary.encode_terngrad,
        ternary.TERNGRAD_PARAMETERS,
    ),
    Codec(
        STOCH3,
        "stoch3",
        ternary.decode_stoch3,
        ternary.encode_stoch3,
        ternary.STOCH3_PARAMETERS,
    ),
    Codec(LEVELS, "levels", levels.decode),
    Codec(QSGD, "qsgd", levels.decode, levels.encode_qsgd, levels.QSGD_PARAMETERS),
    Codec(INCEPTIONN, "inceptionn", inceptionn.decode, inceptionn.encode, inceptionn.PARAMETERS),
    Codec(
        ADACOMP,
        "adacomp",
        sparse.decode_one_scale,
        sparse.encode_adacomp,
        sparse.ADACOMP_PARAMETERS,
    ),
    Codec(
        LOCAL_SELECTION,
        "local-selection",
        sparse.decode_one_scale,
        sparse.encode_local_selection,
        sparse.LOCAL_SELECTION_PARAMETERS,
    ),
    Codec(
        DRYDEN,
        "dryden",
        sparse.decode_two_means,
        sparse.encode_dryden,
        sparse.DRYDEN_PARAMETERS,
    ),
    Codec(TOPK, "topk", topk.decode, topk.encode, topk.PARAMETERS),
    Codec(INT8, "int8", int8.decode, int8.encode, int8.PARAMETERS),
    Codec(MQE1BIT, "mqe1bit", signs.decode_two_means, signs.encode_mqe1bit, signs.PARAMETERS),
    Codec(SIGNSGD, "signsgd", signs.decode_one_mean, signs.encode_signsgd, signs.PARAMETERS),
    Codec(OLAND_RAJ, "oland-raj", oland_raj.decode, oland_raj.encode, oland_raj.PARAMETERS),
    Codec(TRUNCATE, "truncate", truncate.decode, truncate.encode, truncate.PARAMETERS),
    Codec(FP16, "fp16", halves.decode_fp16, halves.encode_fp16, halves.PARAMETERS),
    Codec(BF16, "bf16", halves.decode_bf16, halves.encode_bf16, halves.PARAMETERS),
]
BY_NUMBER = {codec.number: codec for codec in CODECS}
BY_NAME = {codec.name: codec for codec in CODECS}


def parse_codec(text):
    """(Codec, settings) from a codec's text, for example terngrad:clip=off,bucket=512"""
    name, _, parameters = text.partition(":")
    codec = BY_NAME.get(name)
    if codec is None or codec.encode is None:
        raise BadCodecText(f"There is no codec '{name}' to encode with.")
    settings = read_settings(name, codec.parameters, parameters)
    try:
        return codec, codec.complete(settings)
    except ValueError as error:
        raise BadCodecText(f"'{text}': {error}.") from error


# --- Reading ---------------------------------------------------------------


def decode_elements(number, payload, n, offset=0):
    """The n elements of a payload: 32 bits each, or None where it is untouched."""
    return BY_NUMBER[number].decode(Cursor(payload, offset), n)


def decode(number, payload, n, offset=0):
    """The n elements of a payload as f32 bytes."""
    return bytes_of_elements(decode_elements(number, payload, n, offset))


def decode_f64(number, payload, n, offset=0):
    """The n elements as floats: codec 15 has a form for f64, the others are widened."""
    if number == OLAND_RAJ:
        return oland_raj.decode_f64(Cursor(payload, offset), n)
    return floats_of_bytes(decode(number, payload, n, offset))


def decode_add(into, number, payload, n, weight, offset=0):
    """into + weight * tensor; into, and the result, are the 32 bits of the elements."""
    elements = decode_elements(number, payload, n, offset)
    return [
        old if bits is None else added(old, f32(weight), float_of(bits))
        for old, bits in zip(into, elements)
    ]


def added(old, weight, value):
    return bits_of(f32(float_of(old) + f32(weight * value)))


# --- Writing ---------------------------------------------------------------


@dataclass
class Encoded:
    codec: int  # fp32 where the tensor is not finite
    not_finite: bool
    payload: bytes
    residual: list | None  # afterwards; None where there is none


def encode(codec, settings, raw, residual=None, **more):
    """What a writer makes of the f32 bytes of a tensor.

    residual is a list of floats, or None for a writer without one; more are
    fields of Task.
    """
    values = counted = floats_of_bytes(raw)
    total = values
    lead = settings.get("lead", 1.0)
    if residual is not None:
        counted = [f32(lead * v) for v in values]
        total = [f32(r + v) for r, v in zip(residual, counted)]
    if not all(map(math.isfinite, total)):
        return uncompressed(settings, raw, residual)
    payload = codec.encode(Task(total, counted, **more), settings)
    if residual is None:
        return Encoded(codec.number, False, payload, None)
    decoded = floats_of_bytes(decode(codec.number, payload, len(total)))
    rest = [f32(t - x) for t, x in zip(total, decoded)]
    if lead != 1:
        again = f32(1 - lead)
        rest = [f32(left + f32(again * v)) for left, v in zip(rest, values)]
    if not all(map(math.isfinite, rest)):
        return uncompressed(settings, raw, residual)
    return Encoded(codec.number, False, payload, rest)


def uncompressed(settings, raw, residual):
    """For a tensor that is not finite, or that would leave a residual that is not."""
    if not settings["non-finite"]:
        raise Refused("A value is not finite.")
    # The bytes as they came, because a NaN may change on its way through a float.
    return Encoded(FP32, True, raw, residual)


def encode_f64(settings, values, residual=None, **more):
    """The same for f64 values that are finite and codec 15; the residual is f32 all the same."""
    total = values
    if residual is not None:
        total = [r + v for r, v in zip(residual, values)]
    payload = oland_raj.encode(Task(total, values, f64=True, **more), settings)
    if residual is not None:
        decoded = decode_f64(OLAND_RAJ, payload, len(total))
        residual = [f32(t - x) for t, x in zip(total, decoded)]
    return Encoded(OLAND_RAJ, False, payload, residual)
