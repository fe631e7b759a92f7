"""What tersewire.torch calls for each bucket, and what other ranks may send it."""

import numpy
import pytest

import tersewire
from support import decoded, gradient, raises
from tersewire import ErrorCode, _core

ELEMS = [300, 5, 40]
BEGINS = [50, 0, 10]
STRETCHES = list(zip(BEGINS, ELEMS))
CODECS = ["3lc", "fp32", "int8"]


def encoders():
    return [tersewire.Codec(codec).encoder(elems) for codec, elems in zip(CODECS, ELEMS)]


def packed(values, step=0):
    """(heads, bytes) as they travel."""
    parts = _core._PartPacker().pack(encoders(), values, BEGINS, step)
    return numpy.frombuffer(parts.heads, "int64").reshape(-1, 2), numpy.array(parts)


def test_parts_are_the_payloads_that_encoders_make():
    values = gradient(350)
    heads, data = packed(values)
    alone = [encoder.encode(values[begin:begin + elems], 0)
             for encoder, (begin, elems) in zip(encoders(), STRETCHES)]
    assert data.tobytes() == b"".join(map(bytes, alone))
    assert heads[:, 1].tolist() == list(map(len, alone))
    out = numpy.full(350, 7, "f4")
    _core._decode_parts(heads, data, out, STRETCHES)
    for payload, (begin, elems) in zip(alone, STRETCHES):
        assert (out[begin:begin + elems] == decoded(payload, elems)).all()
    assert (out[5:10] == 7).all()


def test_sums_of_several_ranks():
    values = [gradient(350, seed) for seed in (1, 2)]
    received = [packed(own) for own in values]
    once = [numpy.zeros(350, "f4") for _ in received]
    for (heads, data), out in zip(received, once):
        _core._decode_parts(heads, data, out, STRETCHES)
    out = numpy.full(350, 7, "f4")
    _core._add_parts(received, 0.5, out, STRETCHES, True)
    for begin, elems in STRETCHES:
        part = slice(begin, begin + elems)
        assert (out[part] == (0.5 * once[0] + 0.5 * once[1])[part]).all()
    _core._add_parts(received[:1], 2.0, out, STRETCHES, False)
    for begin, elems in STRETCHES:
        part = slice(begin, begin + elems)
        numpy.testing.assert_array_equal(
            out[part], ((0.5 * once[0] + 0.5 * once[1]) + 2 * once[0])[part])


def test_parts_that_are_not_finite_are_counted():
    values = gradient(350)
    values[20] = numpy.nan
    parts = _core._PartPacker().pack(encoders(), values, BEGINS, 0)
    assert parts.not_finite == 1


def test_memory_is_used_again():
    packer = _core._PartPacker()
    first = packer.pack(encoders(), gradient(350), BEGINS, 0)
    address = numpy.asarray(first).ctypes.data
    second = packer.pack(encoders(), gradient(350), BEGINS, 0)
    assert numpy.asarray(second).ctypes.data != address  # the first is in use
    del first
    assert numpy.asarray(packer.pack(encoders(), gradient(350), BEGINS, 0)).ctypes.data == address


@pytest.mark.parametrize("damage", [
    lambda heads, data: (heads[:2], data),
    lambda heads, data: (heads * [1, 2], data),
    lambda heads, data: (heads * [1, -1], data),
    lambda heads, data: (heads * [300, 1], data),
    lambda heads, data: (heads * [-1, 1], data),
    lambda heads, data: (heads * [0, 1] + [200, 0], data),
    lambda heads, data: (heads, data[:-1]),
    lambda heads, data: (heads, data[:0]),
    lambda heads, data: (heads + [0, 1 << 62], data),
    lambda heads, data: (heads - [0, 1], data),
])
def test_damaged_parts_are_refused(damage):
    heads, data = damage(*packed(gradient(350)))
    heads, data = numpy.ascontiguousarray(heads), numpy.ascontiguousarray(data)
    out = numpy.zeros(350, "f4")
    raises(ErrorCode.kDataLoss, _core._decode_parts, heads, data, out, STRETCHES)
    raises(ErrorCode.kDataLoss, _core._add_parts, [(heads, data)], 1.0, out, STRETCHES, True)


def test_random_bytes_are_refused_or_decoded():
    numbers = numpy.random.default_rng(1)
    heads, data = packed(gradient(350))
    refused = 0
    for _ in range(300):
        bad = data.copy()
        bad[numbers.integers(len(bad), size=3)] = numbers.integers(256, size=3)
        try:
            _core._decode_parts(heads, bad, numpy.zeros(350, "f4"), STRETCHES)
        except tersewire.Error as error:
            assert error.code == ErrorCode.kDataLoss
            refused += 1
    assert 0 < refused < 300


def test_parts_beyond_the_values_are_refused():
    heads, data = packed(gradient(350))
    for stretches in ([(51, 300), *STRETCHES[1:]], [(1 << 63, 300), *STRETCHES[1:]]):
        raises(ErrorCode.kInvalidArgument, _core._decode_parts, heads, data,
               numpy.zeros(350, "f4"), stretches)
    raises(ErrorCode.kInvalidArgument, _core._PartPacker().pack, encoders(), gradient(349), BEGINS,
           0)
    raises(ErrorCode.kInvalidArgument, _core._PartPacker().pack, encoders(), gradient(350),
           BEGINS[:2], 0)
