"""torch's tensors as arguments. The extension does not know torch."""

import gc
import subprocess
import sys

import numpy
import pytest

import tersewire
from support import bits, decoded, gradient, raises
from tersewire import ErrorCode

torch = pytest.importorskip("torch")

CODEC = tersewire.Codec("3lc:s=1.75")


def test_tensors_are_encoded_and_decoded_in_place():
    values = torch.from_numpy(gradient(1000)).reshape(20, 50)
    expected = CODEC.encoder(1000).encode(gradient(1000), 0)
    payload = CODEC.encoder(values.shape).encode(values, 0)
    assert bytes(payload) == bytes(expected)
    whole = torch.zeros(3, 20, 50)
    tersewire.decode(payload, whole[1])
    tersewire.decode_add(payload, 2.0, whole[2])
    assert not whole[0].any()
    assert bits(whole[1].flatten()) == bits(decoded(expected, 1000))
    assert bits(whole[2].flatten()) == bits(2 * decoded(expected, 1000))


def test_doubles_and_bytes():
    values = torch.linspace(-1, 1, 100, dtype=torch.float64)
    payload = tersewire.Codec("oland-raj:bits=8").encoder(100).encode(values, 0)
    out = torch.zeros(100, dtype=torch.float64)
    tersewire.decode(payload, out)
    assert (out - values).abs().max() < 0.05
    received = torch.frombuffer(bytearray(payload), dtype=torch.uint8)
    again = torch.zeros(100, dtype=torch.float64)
    tersewire.decode(tersewire.Payload("oland-raj", received), again)
    assert torch.equal(again, out)
    message = torch.frombuffer(bytearray(tersewire.pack("push", [
        tersewire.Frame(3, payload)])), dtype=torch.uint8)
    assert bytes(tersewire.parse(message).frames[0].payload) == bytes(payload)
    assert tersewire.inspect(message)["wire_bytes"] == len(message)


def test_gradients_of_parameters():
    parameter = torch.nn.Parameter(torch.ones(10))
    (parameter * torch.arange(10.0)).sum().backward()
    encoder = CODEC.encoder(parameter.shape)
    payload = encoder.encode(parameter.grad, 0)
    numpy.testing.assert_array_equal(
        decoded(payload, 10) + encoder.residual, numpy.arange(10, dtype="float32"))
    assert "detach" in raises(ErrorCode.kInvalidArgument, tersewire.decode_add, payload, 1,
                              parameter)
    tersewire.decode_add(payload, 1, parameter.detach())
    numpy.testing.assert_array_equal(parameter.detach().numpy(), decoded(payload, 10) + 1)


def test_the_residual_as_a_tensor_shares_memory():
    encoder = CODEC.encoder(10)
    residual = torch.from_numpy(encoder.residual)
    residual += 3
    assert (encoder.residual == 3).all()


@pytest.mark.parametrize("values, words", [
    (torch.zeros(10, dtype=torch.float16), "float16; convert it to float32"),
    (torch.zeros(10, dtype=torch.bfloat16), "bfloat16; convert it to float32"),
    (torch.zeros(10, dtype=torch.int64), "int64; convert it to float32"),
    (torch.zeros(20)[::2], "contiguous()"),
    (torch.zeros(10, device="meta"), "meta"),
    (torch.zeros(10).to_sparse(), "strided"),
    (torch.zeros(10, requires_grad=True), "detach"),
    (torch.zeros(5, 2), "shape (5, 2)"),
])
def test_tensors_that_do_not_fit_are_refused(values, words):
    encoder = CODEC.encoder((10,))
    assert words in raises(ErrorCode.kInvalidArgument, encoder.encode, values, 0)
    assert not encoder.residual.any()


def test_other_devices_are_refused():
    class OnCuda:
        device = "cuda:1"

        def __dlpack_device__(self):
            return 2, 1

        def __dlpack__(self):
            raise AssertionError("its memory was asked for")

    assert "input is on cuda:1" in raises(
        ErrorCode.kInvalidArgument, CODEC.encoder(10).encode, OnCuda(), 0)


def test_memory_lent_is_given_back():
    """A tensor that is lent keeps its storage: what is not given back adds up."""
    values = torch.zeros(10)
    encoder = CODEC.encoder(10)
    before, uses = sys.getrefcount(values), values._use_count()
    for step in range(10):
        encoder.encode(values, step)
        raises(ErrorCode.kInvalidArgument, CODEC.encoder(11).encode, values, step)
    gc.collect()
    assert sys.getrefcount(values) == before
    assert values._use_count() == uses


def test_the_package_does_without_torch():
    script = "import sys, tersewire; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
