"""What the tests of the package share."""

import gzip
import json
import pathlib
import subprocess
import sys

import numpy
import pytest

import tersewire

ROOT = pathlib.Path(__file__).resolve().parents[2]
VECTORS = ROOT / "spec" / "vectors"

NAMES = [codec.name for codec in tersewire.codecs()]


def gradient(elems, seed=0):
    """float32, as gradients are: most near zero, few large."""
    values = numpy.random.default_rng(seed).standard_normal(elems)
    return (values**3 * 1e-3).astype("float32")


def bits(values):
    """Bit patterns: -0 is not 0, and NaN is NaN."""
    values = numpy.asarray(values)
    return values.view(f"uint{8 * values.itemsize}").tolist()


def decoded(payload, shape):
    out = numpy.full(shape, 7, "float32")
    tersewire.decode(payload, out)
    return out


def vectors(outcome):
    """What every line of the "accepted" or "rejected" vectors holds."""
    return [json.loads(line) for line in (VECTORS / f"{outcome}.jsonl").read_text().splitlines()]


def message_of(vector):
    return bytes.fromhex(vector["hex"])


def from_hex(text, dtype):
    return numpy.frombuffer(bytes.fromhex(text), dtype).copy()


def raises(code, call, *arguments, **named):
    """Calls, and returns the sentence of the Error, whose code must be this one."""
    with pytest.raises(tersewire.Error) as raised:
        call(*arguments, **named)
    assert raised.value.code == code, raised.value
    assert str(raised.value) and "\n" not in str(raised.value)
    return str(raised.value)


def torchrun(*command, cwd=None):
    """What a program prints on two processes, the rank before every line."""
    # Two tests at once need two ports, which --standalone does not give them.
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--rdzv_backend", "c10d",
         "--rdzv_endpoint", "localhost:0", "--nproc_per_node", "2", "--tee", "1",
         *map(str, command)],
        check=True, capture_output=True, text=True, cwd=cwd).stdout


def write_idx(path, array):
    """An IDX file of bytes, as MNIST's are; gzipped where its name says so."""
    sides = b"".join(side.to_bytes(4, "big") for side in array.shape)
    data = bytes([0, 0, 8, array.ndim]) + sides + array.astype("uint8").tobytes()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
