"""Every codec: there and back, what the residual keeps, and what a restart needs."""

import copy
import pickle
import threading

import numpy
import pytest

import tersewire
from support import NAMES, bits, decoded, gradient, raises
from tersewire import ErrorCode

# That keep a residual, by default or when told to.
KEEPING = [name for name in NAMES if tersewire.Codec(name).keeps_residual]
EXACT = ["3lc:mode=paper", "3lc:mode=paper,s=1.75", "3lc:mode=paper,s=1.75,layout=partitions"]


@pytest.mark.parametrize("name", NAMES)
def test_a_payload_decodes_to_as_many_values(name):
    values = gradient(1003).reshape(17, 59)
    codec = tersewire.Codec(name)
    assert codec.name == name
    payload = codec.encoder(values.shape, seed=3).encode(values, 1)
    assert payload.codec == name and not payload.not_finite
    assert len(payload) == len(bytes(payload)) <= codec.max_encoded_bytes(values.size)
    tersewire.check_payload(payload, values.size)
    out = decoded(payload, values.shape)
    assert numpy.isfinite(out).all() and (out != 7).all()
    # Plain bytes are taken for a payload of the codec.
    again = numpy.empty_like(values)
    codec.decode(bytes(payload), again)
    assert bits(again) == bits(out)
    sums = out.copy()
    codec.decode_add(payload, -1, sums)
    assert not sums.any()


def test_fp32_is_exact():
    values = gradient(1000)
    assert bits(decoded(tersewire.Codec("fp32").encoder(1000).encode(values, 0), 1000)) == bits(
        values)


@pytest.mark.parametrize("name", ["fp32", "oland-raj"])
def test_doubles_are_encoded_and_decoded(name):
    values = gradient(500).astype("float64")
    payload = tersewire.Codec(name).encoder(500).encode(values, 0)
    wide = numpy.empty(500)
    tersewire.decode(payload, wide)
    assert numpy.abs(wide - values).max() <= numpy.abs(values).max() / 10


@pytest.mark.parametrize("text", EXACT)
def test_3lc_as_published_keeps_exactly_what_it_does_not_send(text):
    encoder = tersewire.Codec(text).encoder(5000)
    for step in range(5):
        before = encoder.residual.copy()
        values = gradient(5000, seed=step)
        sent = decoded(encoder.encode(values, step), 5000)
        assert bits(sent + encoder.residual) == bits(values + before)


@pytest.mark.parametrize("name", KEEPING)
def test_what_is_sent_and_what_is_kept_add_up(name):
    encoder = tersewire.Codec(name).encoder(5000, seed=1)
    total = numpy.zeros(5000)
    sent = numpy.zeros(5000)
    for step in range(5):
        values = gradient(5000, seed=step)
        total += values
        sent += decoded(encoder.encode(values, step), 5000)
    numpy.testing.assert_allclose(
        sent + encoder.residual, total, rtol=0, atol=1e-5 * numpy.abs(total).max())


def payloads(encoder, steps):
    return [bytes(encoder.encode(gradient(3000, seed=step), step)) for step in steps]


@pytest.mark.parametrize("name", NAMES + EXACT)
def test_a_restored_state_goes_on_to_the_same_bits(name):
    def fresh():
        return tersewire.Codec(name).encoder(3000, seed=9, sender=2, tensor=5)

    uninterrupted = fresh()
    expected = payloads(uninterrupted, range(6))
    first = fresh()
    begun = payloads(first, range(3))
    state = first.state_dict()
    payloads(first, range(7, 9))  # the state is a copy
    second = fresh()
    second.load_state_dict(state)
    assert begun + payloads(second, range(3, 6)) == expected
    if uninterrupted.residual is not None:
        assert bits(second.residual) == bits(uninterrupted.residual)


def test_a_state_that_does_not_fit_is_refused():
    encoder = tersewire.Codec("3lc").encoder(4)
    encoder.residual[:] = [1, 2, 3, 4]
    for state in ({}, {"residual": None}, {"residual": numpy.zeros(5, "f4")},
                  {"residual": numpy.array([0, numpy.nan, 0, 0], "f4")}):
        raises(ErrorCode.kInvalidArgument, encoder.load_state_dict, state)
        assert encoder.residual.tolist() == [1, 2, 3, 4]
    raises(ErrorCode.kInvalidArgument, tersewire.Codec("fp32").encoder(4).load_state_dict,
           {"residual": numpy.zeros(4, "f4")})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [numpy.nan, numpy.inf, -numpy.inf])
def test_input_that_is_not_finite_is_sent_uncompressed(name, bad):
    encoder = tersewire.Codec(name).encoder(100)
    encoder.encode(gradient(100), 0)
    before = None if encoder.residual is None else encoder.residual.copy()
    values = gradient(100, seed=1)
    values[42] = bad
    payload = encoder.encode(values, 1)
    assert payload.codec == "fp32" and payload.not_finite
    assert bits(decoded(payload, 100)) == bits(values)
    if before is not None:
        assert bits(encoder.residual) == bits(before)
    rejecting = tersewire.Codec(name + ":non-finite=reject").encoder(100)
    raises(ErrorCode.kInvalidArgument, rejecting.encode, values, 1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [0, (0,), (3, 0), ()])
def test_tensors_without_sides_or_values(name, shape):
    values = numpy.zeros(shape, "float32")
    encoder = tersewire.Codec(name).encoder(shape)
    payload = encoder.encode(values, 0)
    assert decoded(payload, shape).shape == values.shape
    state = encoder.state_dict()
    encoder.load_state_dict(state)


@pytest.mark.parametrize("name", NAMES)
def test_bytes_do_not_depend_on_threads(name):
    values = gradient(300_000)
    codec = tersewire.Codec(name)
    pool = tersewire.ThreadPool(3)
    assert pool.threads == 3
    alone = codec.encoder(values.size, seed=1).encode(values, 0)
    assert bytes(codec.encoder(values.size, seed=1).encode(values, 0, pool=pool)) == bytes(alone)
    out = numpy.empty_like(values)
    tersewire.decode(alone, out, pool=pool)
    assert bits(out) == bits(decoded(alone, values.size))


def test_several_encoders_at_once_make_the_same_bytes():
    def encode(tensor, made):
        encoder = tersewire.Codec("terngrad").encoder(200_000, seed=4, tensor=tensor)
        for step in range(5):
            made.append(bytes(encoder.encode(gradient(200_000, seed=tensor), step)))

    expected, made = [[], []], [[], []]
    for tensor in range(2):
        encode(tensor, expected[tensor])
    threads = [threading.Thread(target=encode, args=(t, made[t])) for t in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == expected


def test_threads_that_share_an_encoder_wait_for_each_other():
    values = gradient(100_000)
    encoder = tersewire.Codec("3lc").encoder(values.size)
    sums = [numpy.zeros(values.size), numpy.zeros(values.size)]

    def encode(total):
        for step in range(20):
            total += decoded(encoder.encode(values, step), values.size)

    threads = [threading.Thread(target=encode, args=(total,)) for total in sums]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numpy.testing.assert_allclose(sums[0] + sums[1] + encoder.residual, 40.0 * values,
                                  rtol=0, atol=1e-3 * numpy.abs(values).max())


def test_what_nobody_used_is_given_back():
    encoder = tersewire.Codec("3lc:mode=paper").encoder(1000)
    values = gradient(1000)
    encoder.give_back(encoder.encode(values, 0))
    assert bits(encoder.residual) == bits(values)


def test_shared_scalers_make_exact_sums():
    workers, elems = 3, 1000
    inputs = [gradient(elems, seed=worker) for worker in range(workers)]
    encoders = [tersewire.Codec("terngrad:bucket=300").encoder(elems, seed=2, sender=worker)
                for worker in range(workers)]
    offers = [encoder.local_scalers(values) for encoder, values in zip(encoders, inputs)]
    agreed = numpy.max(offers, axis=0)
    assert agreed.shape == (4,) and agreed.dtype == numpy.float32
    made = [encoder.encode_under(agreed, values, 0) for encoder, values in zip(encoders, inputs)]
    levels = numpy.zeros(elems, "int32")
    for payload in made:
        bucket_elems, scalers = tersewire.payload_scalers(payload, elems)
        assert bucket_elems == 300 and bits(scalers) == bits(agreed)
        tersewire.decode_levels_add(payload, levels)
    assert abs(levels).max() <= workers and levels.any()
    mean = decoded(tersewire.encode_levels(levels, workers, agreed, bucket_elems=300), elems)
    scaler = numpy.repeat(agreed, 300)[:elems]
    assert bits(mean) == bits(levels.astype("f4") * (scaler / numpy.float32(workers)))
    raises(ErrorCode.kInvalidArgument, encoders[0].encode_under, agreed / 2, inputs[0], 1)
    raises(ErrorCode.kInvalidArgument, tersewire.Codec("3lc").encoder(elems).encode_under, agreed,
           inputs[0], 1)
    assert tersewire.Codec("3lc").encoder(elems).local_scalers(inputs[0]).size == 0


def test_texts_that_mean_nothing_are_refused():
    assert "3lc" in raises(ErrorCode.kInvalidArgument, tersewire.Codec, "4lc")
    assert "s" in raises(ErrorCode.kInvalidArgument, tersewire.Codec, "3lc:s=16")
    raises(ErrorCode.kInvalidArgument, tersewire.ThreadPool, 0)
    raises(ErrorCode.kInvalidArgument, tersewire.Payload, "4lc", b"")
    raises(ErrorCode.kInvalidArgument, tersewire.Codec("3lc").encoder, 4, sender=1 << 24)
    raises(ErrorCode.kInvalidArgument, tersewire.Codec("3lc").encoder, 4, kind="cone")
    raises(ErrorCode.kOutOfRange, tersewire.Codec("3lc").encoder, (1 << 30, 1 << 30))


def test_too_little_memory_is_a_memory_error():
    with pytest.raises(MemoryError):
        tersewire.Codec("3lc").encoder(1 << 40)


def test_policies_choose_codecs():
    tensors = [tersewire.TensorInfo("conv.weight", (20, 1, 5, 5), "conv"),
               tersewire.TensorInfo("norm.weight", (20,), "norm"),
               tersewire.TensorInfo("fc.weight", (500, 320), kind="dense"),
               tersewire.TensorInfo("out.weight", (10, 500), kind="dense")]
    assert (tensors[0].name, tensors[0].shape, tensors[0].kind) == (
        "conv.weight", (20, 1, 5, 5), "conv")
    chosen = tersewire.choose_codecs("kind=norm:fp32; last:int8", "3lc:s=1.75", tensors)
    assert [codec.name for codec in chosen] == ["3lc", "fp32", "3lc", "int8"]
    assert chosen[0] is chosen[2] and "s=1.75" in chosen[0].text
    assert "kind=bias" in raises(ErrorCode.kInvalidArgument, tersewire.choose_codecs,
                                 "kind=bias:fp32", "3lc", tensors)


def test_the_list_of_codecs():
    listed = {codec.name: codec for codec in tersewire.codecs()}
    assert {"3lc", "terngrad", "inceptionn", "adacomp", "oland-raj", "fp32"} <= set(listed)
    s = next(p for p in listed["3lc"].parameters if p.key == "s")
    assert s.default == "1.25; paper: 1" and s.range and s.meaning and listed["3lc"].summary
    assert tersewire.Codec("3lc").id == listed["3lc"].id
    assert "3lc" in repr(tersewire.Codec("3lc"))


def test_codecs_are_values():
    codec = tersewire.Codec("3lc:s=1.75")
    assert eval(repr(codec), {"tersewire": tersewire}) == codec
    assert codec == tersewire.Codec("3lc:s=1.750") != tersewire.Codec("3lc")
    assert codec != "3lc:s=1.75" and len({codec, tersewire.Codec("3lc:s=1.75")}) == 1
    again = pickle.loads(pickle.dumps(codec))
    assert again == codec and again is not codec and copy.deepcopy(codec) == codec


def test_payloads_are_values():
    encoder = tersewire.Codec("3lc").encoder(1000)
    payload = encoder.encode(gradient(1000), 0)
    again = pickle.loads(pickle.dumps(payload))
    assert again == payload and hash(again) == hash(payload) and again is not payload
    assert decoded(again, 1000).tolist() == decoded(payload, 1000).tolist()
    assert payload != encoder.encode(gradient(1000), 1) and payload != bytes(payload)
    assert tersewire.Payload("fp32", bytes(8)) != tersewire.Payload("topk", bytes(8))
    told = pickle.loads(pickle.dumps(tersewire.Payload("fp32", bytes(8), not_finite=True)))
    assert told.not_finite and told != tersewire.Payload("fp32", bytes(8))
    assert repr(told) == "<tersewire.Payload of fp32, 8 bytes, not finite>"
