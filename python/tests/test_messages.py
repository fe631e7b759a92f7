"""Messages and .tw files, packed, parsed and inspected; the program must understand them."""

import json
import os
import subprocess

import numpy
import pytest

import tersewire
from support import NAMES, bits, decoded, gradient, message_of, raises, vectors
from tersewire import ErrorCode


def tw_file(codec="3lc:s=1.75", shape=(20, 50), step=0):
    values = gradient(1000).reshape(shape)
    payload = tersewire.Codec(codec).encoder(shape).encode(values, step)
    return tersewire.pack("file", [tersewire.Frame(0, payload, shape=shape)])


@pytest.mark.parametrize("name", NAMES)
def test_a_file_goes_there_and_back(name):
    payload = tersewire.Codec(name).encoder((20, 50)).encode(gradient(1000).reshape(20, 50), 0)
    frame = tersewire.Frame(0, payload, shape=(20, 50))
    (found,) = tersewire.parse(tersewire.pack("file", [frame])).frames
    assert (found.shape, found.dtype, found.payload.codec) == ((20, 50), "float32", name)
    assert bits(decoded(found.payload, found.shape)) == bits(decoded(payload, (20, 50)))


def test_a_message_says_what_it_was_given():
    codecs = ["3lc", "fp32"]
    payloads = [tersewire.Codec(text).encoder(100).encode(gradient(100), 7) for text in codecs]
    not_finite = tersewire.Codec("3lc").encoder(1).encode(numpy.array([numpy.nan], "f4"), 7)
    frames = [tersewire.Frame(number, payload)
              for number, payload in enumerate(payloads + [not_finite])]
    data = tersewire.pack("push", frames, sender=3, step=7)
    message = tersewire.parse(bytearray(data))
    assert (message.kind, message.sender, message.step) == ("push", 3, 7)
    assert message.wire_bytes == len(data)
    assert [frame.tensor for frame in message.frames] == [0, 1, 2]
    assert [frame.payload.codec for frame in message.frames] == ["3lc", "fp32", "fp32"]
    assert [frame.payload.not_finite for frame in message.frames] == [False, False, True]
    assert [frame.shape for frame in message.frames] == [None] * 3
    kept = message.frames[0].payload
    del message, frames
    assert bytes(kept) == bytes(payloads[0])


def test_a_message_that_cannot_be_is_refused():
    payload = tersewire.Payload("fp32", b"")
    raises(ErrorCode.kInvalidArgument, tersewire.pack, "letter", [])
    raises(ErrorCode.kInvalidArgument, tersewire.Frame, 0, payload, shape=(1,), dtype="int8")
    assert "pass shape=" in raises(ErrorCode.kInvalidArgument, tersewire.Frame, 0, payload,
                                   part_values=4)
    described = tersewire.Frame(0, payload, shape=(0,))
    half = tersewire.Payload("fp32", bytes(16))
    for frames, named in (([described], {"step": 41}), ([described], {"sender": 1}), ([], {}),
                          ([tersewire.Frame(0, payload)], {}), ([described] * 2, {}),
                          ([tersewire.Frame(3, payload, shape=(0,))], {}),
                          ([tersewire.Frame(0, half, shape=(8,), part_values=4)], {})):
        assert "these frames make no file" in raises(
            ErrorCode.kInvalidArgument, tersewire.pack, "file", frames, **named)
    raises(ErrorCode.kInvalidArgument, tersewire.pack, "state", [])
    tersewire.parse(tersewire.pack("state", [described], sender=1, step=41))
    raises(ErrorCode.kInvalidArgument, tersewire.pack, "push", [
        tersewire.Frame(0, payload, shape=(1 << 30, 1 << 30))])


def test_damage_is_found():
    data = tw_file()
    for place in range(len(data)):
        broken = bytearray(data)
        broken[place] ^= 1
        raises(ErrorCode.kDataLoss, tersewire.inspect, broken)
    for length in range(len(data)):
        raises(ErrorCode.kDataLoss, tersewire.parse, data[:length])


def test_inspect_says_what_a_file_holds():
    found = tersewire.inspect(tw_file())
    assert found["kind"] == "file" and found["codec"] == "3lc"
    assert found["parameters"]["s"] == 1.75 and found["parameters"]["mode"] == "blocks"
    assert found["shape"] == [20, 50] and found["elems"] == 1000
    assert found["payload_verified"] and not found["not_finite"]
    assert found["bits_per_value"] == 8 * len(tw_file()) / 1000
    empty = tersewire.Codec("fp32").encoder(0).encode(numpy.zeros(0, "f4"), 0)
    found = tersewire.inspect(tersewire.pack("file", [tersewire.Frame(0, empty, shape=(0,))]))
    assert found["bits_per_value"] is None


def parts_file(codec="3lc:s=1.75", shape=(20, 50), part_values=400):
    values = gradient(1000)
    frames = []
    for part in range(3):
        piece = values[part * part_values:(part + 1) * part_values]
        payload = tersewire.Codec(codec).encoder(piece.shape).encode(piece, 0)
        frames.append(tersewire.Frame(0, payload, shape=shape, part=part, part_values=part_values))
    return tersewire.pack("file", frames)


def test_a_file_in_parts_goes_there_and_back():
    message = tersewire.parse(parts_file("fp32"))
    assert [(f.part, f.part_values, f.elems) for f in message.frames] == [
        (0, 400, 400), (1, 400, 400), (2, 400, 200)]
    values = numpy.empty(1000, "f4")
    for frame in message.frames:
        begin = frame.part * frame.part_values
        tersewire.decode(frame.payload, values[begin:begin + frame.elems])
    assert bits(values) == bits(gradient(1000))
    assert message.wire_bytes == len(parts_file("fp32"))
    found = tersewire.inspect(parts_file())
    assert (found["parts"], found["elems"], found["shape"]) == (3, 1000, [20, 50])
    assert [frame["elems"] for frame in found["frames"]] == [400, 400, 200]


def test_damage_of_a_file_in_parts_is_found():
    data = parts_file()
    for length in range(0, len(data), 7):
        raises(ErrorCode.kDataLoss, tersewire.parse, data[:length])
    raises(ErrorCode.kDataLoss, tersewire.parse, data + data)
    payload = tersewire.Payload("fp32", b"")
    frame = tersewire.Frame(0, payload, shape=(10,), part_values=6)
    raises(ErrorCode.kInvalidArgument, tersewire.pack, "file", [frame])


PROGRAM = os.environ.get("TERSEWIRE_PROGRAM")


@pytest.mark.skipif(not PROGRAM, reason="TERSEWIRE_PROGRAM names no tersewire program")
def test_the_program_agrees(tmp_path):
    def program(*words):
        return subprocess.run([PROGRAM, *map(str, words)], check=True, capture_output=True).stdout

    for vector in vectors("accepted")[::40]:
        data = message_of(vector)
        (tmp_path / "vector.tw").write_bytes(data)
        assert json.loads(program("inspect", tmp_path / "vector.tw", "--json")) == (
            tersewire.inspect(data))
    numpy.save(tmp_path / "in.npy", gradient(1000).reshape(20, 50))
    program("encode", "--codec", "3lc:s=1.75", "--state", tmp_path / "state", tmp_path / "in.npy",
            tmp_path / "made.tw")
    assert (tmp_path / "made.tw").read_bytes() == tw_file()
    program("encode", "--codec", "3lc:s=1.75", "--part-values", "400", "--state",
            tmp_path / "state-of-parts", tmp_path / "in.npy", tmp_path / "parts.tw")
    assert (tmp_path / "parts.tw").read_bytes() == parts_file()
    assert json.loads(program("inspect", tmp_path / "parts.tw", "--json")) == tersewire.inspect(
        parts_file())
    (tmp_path / "ours.tw").write_bytes(tw_file("terngrad"))
    program("decode", tmp_path / "ours.tw", tmp_path / "back.npy")
    (frame,) = tersewire.parse(tw_file("terngrad")).frames
    assert bits(numpy.load(tmp_path / "back.npy")) == bits(decoded(frame.payload, frame.shape))
    listed = json.loads(program("codecs", "--json"))
    assert [(c["name"], c["number"]) for c in listed] == [
        (c.name, c.id) for c in tersewire.codecs()]
