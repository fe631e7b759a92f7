"""The package against the vectors of spec/vectors: the same bytes as C++ and the reference."""

import json

import numpy
import pytest

import tersewire
from support import VECTORS, bits, from_hex, message_of, raises, vectors
from tersewire import ErrorCode

POOLS = [None, tersewire.ThreadPool(3)]
NUMBERS = {codec.name: codec.id for codec in tersewire.codecs()} | {"levels": 5, "contributors": 0}
HALVES = ("fp16", "bf16")  # which NaN comes back is not said
MAX_DECODED = 1 << 20
ENCODED = VECTORS / "encoded"
LONG = numpy.fromfile(ENCODED / "long.f32", "<f4")


def by_name(vectors_or_cases):
    return [pytest.param(each, id=each["name"]) for each in vectors_or_cases]


def comparable(values, codec):
    if codec in HALVES:
        values = numpy.where(numpy.isnan(values), numpy.float32("nan"), values)
    return bits(values)


def check_values(payload, expected, pool):
    values = from_hex(expected["values"], "<f4")
    out = numpy.full(len(values), 7, "float32")
    tersewire.decode(payload, out, pool=pool)
    assert comparable(out, payload.codec) == comparable(values, payload.codec)
    wide_values = values.astype("float64")
    if "values_f64" in expected:
        wide_values = from_hex(expected["values_f64"], "<f8")
    wide = numpy.full(len(values), 7, "float64")
    tersewire.decode(payload, wide, pool=pool)
    numpy.testing.assert_array_equal(wide, wide_values)
    if expected["add"]:
        sums = from_hex(expected["add"]["into"], "<f4")
        weight = float(from_hex(expected["add"]["weight"], "<f4")[0])
        tersewire.decode_add(payload, weight, sums, pool=pool)
        assert bits(sums) == bits(from_hex(expected["add"]["result"], "<f4"))


@pytest.mark.parametrize("expected", by_name(vectors("accepted")))
def test_accepted_messages_decode_to_what_they_hold(expected):
    data = message_of(expected)
    message = tersewire.parse(data)
    assert (message.sender, message.step) == (expected["sender"], expected["step"])
    assert len(message.frames) == len(expected["frames"])
    for frame, told in zip(message.frames, expected["frames"]):
        assert (frame.tensor, frame.part) == (told["tensor"], told["part"])
        assert NUMBERS[frame.payload.codec] == told["codec"]
        assert frame.payload.not_finite == bool(told["flags"] & 2)
        dims = told["description"] and tuple(told["description"]["dims"])
        assert frame.shape == dims
        assert frame.part_values == (told["description"] or {}).get("part_values")
        if frame.payload.codec == "contributors":
            assert bytes(frame.payload).hex() == told["bitmap"]
            continue
        tersewire.check_payload(frame.payload, told["elems"])
        for pool in POOLS:
            check_values(frame.payload, told, pool)
    tersewire.inspect(data)


def rejected_values(frame, told):
    """Whether the frame's payload is refused; where it is decoded, `out` must not change."""
    elems = frame.elems if frame.elems is not None else told
    if frame.payload.codec == "contributors" or elems is None:
        return frame.payload.codec == "contributors"
    try:
        tersewire.check_payload(frame.payload, elems)
        return False
    except tersewire.Error as error:
        assert error.code == ErrorCode.kDataLoss
    if elems <= MAX_DECODED:
        for dtype in ("float32", "float64"):
            out = numpy.full(elems, -123.25, dtype)
            raises(ErrorCode.kDataLoss, tersewire.decode, frame.payload, out)
            assert (out == -123.25).all()
        sums = numpy.full(elems, -123.25, "float32")
        raises(ErrorCode.kDataLoss, tersewire.decode_add, frame.payload, 1, sums)
        assert (sums == -123.25).all()
    return True


@pytest.mark.parametrize("why", by_name(vectors("rejected")))
def test_rejected_messages_raise_and_change_nothing(why):
    try:
        message = tersewire.parse(message_of(why))
    except tersewire.Error as error:
        assert error.code == ErrorCode.kDataLoss and str(error)
        return
    assert any([rejected_values(frame, why["elems"]) for frame in message.frames]), why


def encode_as_told(encoder, case, values, pool):
    if case["agreed"] is None:
        return encoder.encode(values, case["step"], pool=pool)
    return encoder.encode_under(from_hex(case["agreed"], "<f4"), values, case["step"], pool=pool)


def check_encoded(case, pool):
    dtype = "<f8" if case["type"] == "f64" else "<f4"
    values = LONG[: case["long"]] if case["long"] is not None else from_hex(case["input"], dtype)
    context = {name: case[name] for name in ("seed", "sender", "tensor")}
    encoder = tersewire.Codec(case["codec"]).encoder(
        len(values), first_elem=case["first"], **context)
    if case["residual"]:
        encoder.residual[:] = from_hex(case["residual"], "<f4")
    if case["gradient"]:
        encoder.observe_gradient(from_hex(case["gradient"], "<f4"))
    payload = encode_as_told(encoder, case, values, pool)
    assert NUMBERS[payload.codec] == case["made"]
    assert payload.not_finite == case["not_finite"]
    assert bytes(payload).hex() == case["payload"]
    after = from_hex(case["residual_after"] or "", "<f4")
    assert bits(numpy.array([], "f4") if encoder.residual is None else encoder.residual) == bits(
        after)


CASES = {path.stem: json.loads(path.read_text()) for path in sorted(ENCODED.glob("*.json"))}
LEVELS = CASES.pop("levels")


@pytest.mark.parametrize("case", [
    pytest.param(case, id=f"{codec}: {case['name']}")
    for codec, cases in CASES.items() for case in cases])
def test_encoders_make_the_same_bytes(case):
    for pool in POOLS:
        check_encoded(case, pool)


@pytest.mark.parametrize("case", by_name(LEVELS))
def test_levels_are_packed_the_same(case):
    payload = tersewire.encode_levels(
        from_hex(case["sums"], "<i4"), case["workers"], from_hex(case["scalers"], "<f4"),
        bucket_elems=case["bucket"], dense=case["dense"])
    assert payload.codec == "levels"
    assert bytes(payload).hex() == case["payload"]
