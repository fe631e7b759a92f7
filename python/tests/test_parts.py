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


def part_encoders(memory=None):
    return _core._PartEncoders(encoders(), BEGINS, memory or _core._PayloadMemory())


def packed(values, step=0):
    """(heads, bytes) as they travel."""
    parts = part_encoders().encode(values, step)
    return numpy.frombuffer(parts.heads, "int64").reshape(-1, 2), numpy.array(parts)


def decode(heads, data, out, stretches=STRETCHES):
    _core._decode_parts(_core._PackedParts(heads, data), out, stretches)


def add(received, weight, out, from_zero):
    _core._add_parts([_core._PackedParts(*one) for one in received], weight, out, STRETCHES,
                     from_zero)


@pytest.mark.parametrize("codec", ["3lc", "terngrad", "oland-raj", "inceptionn"])
def test_threads_change_no_bits(codec):
    elems = [200_001, 70]
    begins = [0, elems[0]]
    stretches = list(zip(begins, elems))
    values = gradient(sum(elems))

    def run(pool):
        encoders = _core._PartEncoders([tersewire.Codec(codec).encoder(n) for n in elems], begins,
                                       _core._PayloadMemory(), pool)
        made = [encoders.encode(values, step) for step in (0, 1)]
        out = numpy.full(values.shape, 7, "float32")
        _core._decode_parts(made[1], out, stretches, pool)
        _core._add_parts(made, 0.3, out, stretches, False, pool)
        mean = values.copy()
        of_mean = encoders.encode_mean(made, mean, 2)
        return [bytes(numpy.array(parts)) for parts in (*made, of_mean)], out.tobytes(), mean.tobytes()

    assert run(tersewire.ThreadPool(3)) == run(None)


def test_parts_are_the_payloads_that_encoders_make():
    values = gradient(350)
    heads, data = packed(values)
    alone = [encoder.encode(values[begin:begin + elems], 0)
             for encoder, (begin, elems) in zip(encoders(), STRETCHES)]
    assert data.tobytes() == b"".join(map(bytes, alone))
    assert heads[:, 1].tolist() == list(map(len, alone))
    out = numpy.full(350, 7, "f4")
    decode(heads, data, out)
    for payload, (begin, elems) in zip(alone, STRETCHES):
        assert (out[begin:begin + elems] == decoded(payload, elems)).all()
    assert (out[5:10] == 7).all()


def test_parts_are_split_for_those_that_serve_them():
    values = gradient(350)
    parts = part_encoders().encode(values, 0)
    pieces = parts.split([1, 0, 2])
    assert [piece.heads for piece in pieces] == [parts.heads[:16], b"", parts.heads[16:]]
    assert b"".join(map(bytes, map(memoryview, pieces))) == bytes(memoryview(parts))
    out, split = numpy.zeros(350, "f4"), numpy.zeros(350, "f4")
    _core._decode_parts(parts, out, STRETCHES)
    del parts
    for piece, stretches in zip(pieces, (STRETCHES[:1], [], STRETCHES[1:])):
        _core._decode_parts(piece, split, stretches)
    assert (split == out).all()
    for counts in ([1], [4], [1, 3]):
        raises(ErrorCode.kDataLoss, pieces[2].split, counts)


def test_sums_of_several_ranks():
    values = [gradient(350, seed) for seed in (1, 2)]
    received = [packed(own) for own in values]
    once = [numpy.zeros(350, "f4") for _ in received]
    for (heads, data), out in zip(received, once):
        decode(heads, data, out)
    out = numpy.full(350, 7, "f4")
    add(received, 0.5, out, True)
    for begin, elems in STRETCHES:
        part = slice(begin, begin + elems)
        assert (out[part] == (0.5 * once[0] + 0.5 * once[1])[part]).all()
    add(received[:1], 2.0, out, False)
    for begin, elems in STRETCHES:
        part = slice(begin, begin + elems)
        numpy.testing.assert_array_equal(
            out[part], ((0.5 * once[0] + 0.5 * once[1]) + 2 * once[0])[part])


def test_means_are_encoded():
    received = [part_encoders().encode(gradient(350, seed), 0) for seed in (1, 2)]
    mean = numpy.full(350, 7, "f4")
    _core._add_parts(received, 0.5, mean, STRETCHES, True)
    values = numpy.full(350, 7, "f4")
    parts = part_encoders().encode_mean(received, values, 3)
    assert (values == mean).all()
    alone = part_encoders().encode(mean, 3)
    assert bytes(memoryview(parts)) == bytes(memoryview(alone)) and parts.heads == alone.heads


def test_what_was_encoded_is_counted():
    values = gradient(350)
    values[20] = numpy.nan
    made = part_encoders()
    lengths = [numpy.frombuffer(made.encode(each, step).heads, "int64")[1::2]
               for step, each in enumerate((values, gradient(350)))]
    assert made.not_finite == 1
    assert made.encoded_bytes == sum(lengths).tolist()


def test_memory_is_used_again():
    memory = _core._PayloadMemory()
    first = part_encoders(memory).encode(gradient(350), 0)
    address = numpy.asarray(first).ctypes.data
    second = part_encoders(memory).encode(gradient(350), 0)
    assert numpy.asarray(second).ctypes.data != address  # the first is in use
    del first
    assert numpy.asarray(part_encoders(memory).encode(gradient(350), 0)).ctypes.data == address


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
    raises(ErrorCode.kDataLoss, decode, heads, data, out)
    raises(ErrorCode.kDataLoss, add, [(heads, data)], 1.0, out, True)
    raises(ErrorCode.kDataLoss, part_encoders().encode_mean, [_core._PackedParts(heads, data)],
           out, 0)


def test_random_bytes_are_refused_or_decoded():
    numbers = numpy.random.default_rng(1)
    heads, data = packed(gradient(350))
    refused = 0
    for _ in range(300):
        bad = data.copy()
        bad[numbers.integers(len(bad), size=3)] = numbers.integers(256, size=3)
        try:
            decode(heads, bad, numpy.zeros(350, "f4"))
        except tersewire.Error as error:
            assert error.code == ErrorCode.kDataLoss
            refused += 1
    assert 0 < refused < 300


def test_parts_beyond_the_values_are_refused():
    heads, data = packed(gradient(350))
    for stretches in ([(51, 300), *STRETCHES[1:]], [(1 << 63, 300), *STRETCHES[1:]]):
        raises(ErrorCode.kInvalidArgument, decode, heads, data, numpy.zeros(350, "f4"), stretches)
    for values in (gradient(349), gradient(350)[:0]):
        raises(ErrorCode.kInvalidArgument, part_encoders().encode, values, 0)


def test_encoders_need_as_many_beginnings():
    raises(ErrorCode.kInvalidArgument, _core._PartEncoders, encoders(), BEGINS[:2],
           _core._PayloadMemory())
