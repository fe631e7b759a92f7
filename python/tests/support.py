"""What the tests of the package share."""

import json
import pathlib

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


def vectors(folder):
    """[(name, what the JSON file holds)]"""
    return [(path.stem, json.loads(path.read_text())) for path in sorted(
        (VECTORS / folder).glob("*.json"))]


def from_hex(text, dtype):
    return numpy.frombuffer(bytes.fromhex(text), dtype).copy()


def raises(code, call, *arguments, **named):
    """Calls, and returns the sentence of the Error, whose code must be this one."""
    with pytest.raises(tersewire.Error) as raised:
        call(*arguments, **named)
    assert raised.value.code == code, raised.value
    assert str(raised.value) and "\n" not in str(raised.value)
    return str(raised.value)
