"""Arrays and tensors as arguments: used in place where they fit, refused in a sentence else."""

import array
import ctypes
import subprocess
import sys
import threading

import numpy
import pytest

import tersewire
from support import bits, decoded, gradient, raises
from tersewire import ErrorCode

CODEC = tersewire.Codec("3lc:mode=paper,s=1.75")


def refused(values, *words, shape=(4, 3)):
    """Has encode() and decode() refuse the values with these words, nothing changed."""
    encoder = CODEC.encoder(shape)
    sentence = raises(ErrorCode.kInvalidArgument, encoder.encode, values, 0)
    assert all(word in sentence for word in words), sentence
    assert not encoder.residual.any()
    payload = encoder.encode(numpy.ones(shape, "float32"), 0)
    sentence = raises(ErrorCode.kInvalidArgument, tersewire.decode_add, payload, 1, values)
    assert all(word in sentence for word in words), sentence


def test_what_is_no_array_is_refused():
    for values in (None, 1.0, [0.0] * 12, "values"):
        refused(values, type(values).__name__, "pass an array")


def test_ctrl_c_and_a_lack_of_memory_are_not_refusals():
    for error in (KeyboardInterrupt, MemoryError):
        class Raises:
            def __dlpack__(self):
                raise error

            __dlpack_device__ = __dlpack__

        with pytest.raises(error):
            CODEC.encoder(12).encode(Raises(), 0)


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32),
                ("dtype", ctypes.c_uint8 * 4), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32 * 2), ("manager_ctx", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", DLTensor)]


class Lender:
    """Lends an array of float32 by DLPack 1, and only by that."""

    def __init__(self, values, flags=0, major=1):
        self.values, self.asked = values, None
        self.shape = (ctypes.c_int64 * values.ndim)(*values.shape)
        self.managed = DLManagedTensorVersioned(
            (major, 3), None, None, flags,
            DLTensor(values.ctypes.data, (1, 0), values.ndim, (2, 32, 1, 0), self.shape, None, 0))

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, *, max_version):
        self.asked = max_version
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.managed), b"dltensor_versioned", None)


def test_what_dlpack_1_lends_is_read_and_written():
    values = numpy.arange(12, dtype="f4").reshape(4, 3)
    lender = Lender(values)
    payload = CODEC.encoder((4, 3)).encode(lender, 0)
    assert lender.asked == (1, 0)
    assert bytes(payload) == bytes(CODEC.encoder((4, 3)).encode(values, 0))
    tersewire.decode(payload, Lender(out := numpy.zeros((4, 3), "f4")))
    assert (out == decoded(payload, (4, 3))).all() and out.any()


def test_what_dlpack_1_lends_to_be_read_is_not_written():
    values = numpy.ones((4, 3), "f4")
    payload = CODEC.encoder((4, 3)).encode(Lender(values, flags=1), 0)
    sentence = raises(ErrorCode.kInvalidArgument, tersewire.decode, payload,
                      Lender(values, flags=1))
    assert "is read-only; pass an array that can be written" in sentence
    assert (values == 1).all() and len(payload) > 0


def test_a_later_dlpack_is_refused():
    refused(Lender(numpy.ones((4, 3), "f4"), major=2), "comes by DLPack 2.3", "with version 1")


def test_other_types_are_refused():
    for dtype in ("float16", "int32", "int64", "uint8", "bool", "complex64", ">f4"):
        refused(numpy.zeros((4, 3), dtype), "convert it to float32")
    refused(numpy.zeros((4, 3), "int64"), "int64")
    raises(ErrorCode.kInvalidArgument, tersewire.decode_add, CODEC.encoder(2).encode(
        numpy.zeros(2, "f4"), 0), 1, numpy.zeros(2))


def test_what_is_not_contiguous_is_refused():
    refused(numpy.zeros((3, 4), "float32").T, "not contiguous", "ascontiguousarray")
    refused(numpy.zeros((8, 3), "float32")[::2], "not contiguous")


def test_what_is_not_aligned_is_refused():
    refused(numpy.zeros(49, "uint8")[1:].view("float32").reshape(4, 3), "pass a copy")


def test_other_shapes_are_refused():
    encoder = CODEC.encoder((4, 3))
    for shape in ((3, 4), (12,), (4, 3, 1), (4, 4)):
        sentence = raises(ErrorCode.kInvalidArgument, encoder.encode,
                          numpy.zeros(shape, "float32"), 0)
        assert str(shape) in sentence and "(4, 3)" in sentence
    # An encoder for a number of values takes any shape.
    encoder = CODEC.encoder(12)
    assert encoder.shape == (12,)
    encoder.encode(numpy.zeros((4, 3), "float32"), 0)
    raises(ErrorCode.kInvalidArgument, encoder.encode, numpy.zeros(13, "float32"), 0)
    payload = encoder.encode(gradient(12), 1)
    out = numpy.full(16, 7, "float32")
    raises(ErrorCode.kDataLoss, tersewire.decode, payload, out)
    assert (out == 7).all()


def test_shapes_are_sides_or_a_number_of_values():
    for shape in (numpy.prod((4, 3)), numpy.uint8(12), 12):
        encoder = CODEC.encoder(shape)
        assert encoder.shape == (12,)
        encoder.encode(numpy.zeros((4, 3), "float32"), 0)
    for shape in ([4, 3], numpy.array([4, 3]), (numpy.int64(4), 3)):
        assert CODEC.encoder(shape).shape == (4, 3)
    for shape in (-1, None, 3.5, "ab", True, (4, -1), (3.5,), 1 << 64):
        assert f"shape is {shape!r}; pass a tuple" in raises(
            ErrorCode.kInvalidArgument, CODEC.encoder, shape)


def test_padding_makes_a_wrong_number_of_values_valid():
    """What the documentation says that decode() cannot tell."""
    payload = CODEC.encoder(4).encode(gradient(4), 0)
    tersewire.check_payload(payload, 5)
    assert bits(decoded(payload, 5)[:4]) == bits(decoded(payload, 4))
    raises(ErrorCode.kDataLoss, tersewire.check_payload, payload, 6)


def test_what_is_read_only_is_encoded_and_not_decoded_into():
    values = gradient(100)
    values.flags.writeable = False
    payload = CODEC.encoder(100).encode(values, 0)
    assert "read-only" in raises(ErrorCode.kInvalidArgument, tersewire.decode, payload, values)


def test_memory_that_overlaps_is_refused():
    encoder = CODEC.encoder(100)
    raises(ErrorCode.kInvalidArgument, encoder.encode, encoder.residual, 0)
    memory = numpy.zeros(400, "uint8")
    payload = tersewire.Payload("fp32", memory)
    raises(ErrorCode.kInvalidArgument, tersewire.decode, payload, memory.view("float32"))


def test_whatever_has_the_buffer_protocol_will_do():
    values = gradient(100)
    expected = bytes(CODEC.encoder(100).encode(values, 0))
    for same in (array.array("f", values.tolist()), memoryview(values), values.reshape(10, 10)):
        assert bytes(CODEC.encoder(100).encode(same, 0)) == expected
    out = array.array("f", [0.0] * 100)
    CODEC.decode(bytearray(expected), out)
    assert bits(numpy.asarray(out)) == bits(decoded(tersewire.Payload("3lc", expected), 100))


def test_payloads_are_bytes_to_others():
    payload = tersewire.Codec("fp32").encoder(10).encode(gradient(10), 0)
    view = memoryview(payload)
    assert view.readonly and view.nbytes == len(payload) == 40
    assert bytes(payload) == gradient(10).tobytes() == view.tobytes()
    buffer = bytearray(b"head")
    buffer += payload
    assert buffer[4:] == view
    kept = numpy.frombuffer(payload, "float32")
    del payload, view
    assert bits(kept) == bits(gradient(10))
    assert bytes(CODEC.encoder(0).encode(numpy.zeros(0, "float32"), 0)) is not None


def test_a_payload_keeps_its_memory_alive():
    data = bytearray(CODEC.encoder(100).encode(gradient(100), 0))
    expected = decoded(tersewire.Payload("3lc", bytes(data)), 100)
    payload = tersewire.Payload("3lc", data)
    with pytest.raises(BufferError):
        data.clear()
    del data
    assert bits(decoded(payload, 100)) == bits(expected)


def test_the_residual_shares_memory_and_outlives_its_encoder():
    encoder = CODEC.encoder((10, 10))
    residual = encoder.residual
    assert residual.shape == (10, 10) and residual.dtype == numpy.float32
    values = gradient(100).reshape(10, 10)
    encoder.encode(values, 0)
    assert numpy.shares_memory(residual, encoder.residual)
    assert residual.any() and bits(residual) == bits(encoder.residual)
    residual[:] = 0
    assert not encoder.residual.any()
    residual[3, 4] = 2
    assert encoder.state_dict()["residual"][3, 4] == 2
    del encoder
    assert residual[3, 4] == 2


def test_parts_of_an_array_are_written_in_place():
    whole = numpy.zeros((3, 100), "float32")
    payload = tersewire.Codec("fp32").encoder(100).encode(gradient(100), 0)
    tersewire.decode(payload, whole[1])
    tersewire.decode_add(payload, 2, whole[2])
    assert not whole[0].any()
    assert bits(whole[1]) == bits(gradient(100)) and bits(whole[2]) == bits(2 * gradient(100))


# In a process of its own: the most memory that it ever had is what a copy would raise. The payload itself is
# copied (into a message and out of it), a sixteenth of the array each time, so the line is half an array.
MEMORY = """
import numpy, re, tersewire
def peak():
    return 1024 * int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read()).group(1))
values = numpy.full(1 << 24, 1e-3, "float32")
out = numpy.ones(values.size, "float32")
encoder = tersewire.Codec("3lc:ef=off").encoder(values.size)
before = peak()
payload = encoder.encode(values, 0)
tersewire.decode(payload, out)
tersewire.decode_add(tersewire.parse(tersewire.pack(
    "push", [tersewire.Frame(0, payload)])).frames[0].payload, 1, out)
assert out[-1] == numpy.float32(1e-3) + numpy.float32(1e-3)
grown = peak() - before
assert grown < values.nbytes / 2, grown
copy = values.copy()
assert peak() - before >= values.nbytes / 2, "copies would not have been seen"
"""


def test_nothing_is_copied():
    subprocess.run([sys.executable, "-c", MEMORY], check=True)


def test_others_run_while_it_computes():
    """Nobody takes the GIL from this thread: another runs only if it is given up."""
    interval = sys.getswitchinterval()
    gate, ran = threading.Lock(), threading.Event()
    gate.acquire()
    other = threading.Thread(target=lambda: (gate.acquire(), ran.set()))
    other.start()
    values = gradient(1 << 20)
    encoder = CODEC.encoder(values.size)
    sys.setswitchinterval(1000)
    try:
        gate.release()
        for _ in range(1000):
            CODEC.max_encoded_bytes(100)
        before = ran.is_set()
        for step in range(200):
            encoder.encode(values, step)
            if ran.is_set():
                break
        after = ran.is_set()
    finally:
        sys.setswitchinterval(interval)
    other.join()
    assert not before and after


def test_memory_of_a_payload_serves_the_next_once_it_is_gone():
    def address(payload):
        return numpy.frombuffer(payload, "uint8").__array_interface__["data"][0]

    values = [gradient(1000, seed=step) for step in range(3)]
    encoder = tersewire.Codec("fp32").encoder(1000)
    first = encoder.encode(values[0], 0)
    second = encoder.encode(values[1], 1)
    assert address(first) != address(second)
    kept = memoryview(first)
    gone = address(second)
    del first, second
    third = encoder.encode(values[2], 2)
    assert address(third) == gone
    assert bytes(kept) == values[0].tobytes() and bytes(third) == values[2].tobytes()
