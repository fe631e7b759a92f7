#!/usr/bin/env python3
"""What a call from Python costs beyond the codec itself.

usage: python_overhead.py PROGRAM [--codec CODEC]... [--bytes N]... [--rounds N]

PROGRAM is python_overhead.cpp, compiled. It and this process take turns: each encodes the same
values and adds them up equally often, with one thread. Times are medians over all steps except the
first quarter of a turn. Needs numpy, and tersewire on PYTHONPATH.
"""

import argparse
import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy

import tersewire


def python_steps(codec, values, steps):
    """[(nanoseconds of encode, of decode_add)]"""
    encoder = tersewire.Codec(codec).encoder(values.shape)
    sums = numpy.zeros_like(values)
    found = []
    for step in range(steps):
        begin = time.perf_counter_ns()
        payload = encoder.encode(values, step)
        encoded = time.perf_counter_ns()
        tersewire.decode_add(payload, 1.0, sums)
        found.append((encoded - begin, time.perf_counter_ns() - encoded))
    return found


def cpp_steps(program, codec, path, steps):
    output = subprocess.run([program, codec, path, str(steps)], check=True, capture_output=True,
                            text=True).stdout
    return [tuple(map(int, line.split())) for line in output.splitlines()]


def medians(steps):
    """In microseconds."""
    return [statistics.median(times) / 1e3 for times in zip(*steps)]


def measure(program, codec, size, rounds):
    values = (numpy.random.default_rng(1).standard_normal(size // 4) ** 3 * 1e-3).astype("float32")
    steps = max(20, (1 << 26) // size)
    cpp, python = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "input.f32"
        values.tofile(path)
        for _ in range(rounds):
            cpp += cpp_steps(program, codec, path, steps)[steps // 4:]
            python += python_steps(codec, values, steps)[steps // 4:]
    for what, ours, theirs in zip(("encode", "decode_add"), medians(python), medians(cpp)):
        print(f"{codec:22} {size:>10} {what:10} {theirs:>10.1f} {ours:>10.1f} {ours / theirs:7.3f}",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--codec", action="append")
    parser.add_argument("--bytes", action="append", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(f"{'codec':22} {'bytes':>10} {'call':10} {'C++ us':>10} {'Python us':>10}   ratio")
    for size in arguments.bytes or [1 << 20, 1 << 26]:
        for codec in arguments.codec or ["fp32", "3lc:s=1.75", "terngrad", "int8", "adacomp"]:
            measure(arguments.program, codec, size, arguments.rounds)


if __name__ == "__main__":
    main()
