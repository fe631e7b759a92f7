#!/usr/bin/env python3
"""Holds the sizes of what every codec makes of fixed arrays against a ledger, encoded_sizes.json.

usage: encoded_sizes_test.py PROGRAM [--update]

PROGRAM is what encoded_sizes.cpp becomes. The arrays are generated ones and, where they are found,
the real gradients of $TERSEWIRE_DATA/gradients (../shared/data beside the project unless said).
Sizes are bytes of a message with one frame; where a codec keeps a residual "first/tenth" step.

A size that changed fails the test: where that was meant, run it with --update and commit the
ledger, which then says what the change cost or saved.
"""

import array
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LEDGER = pathlib.Path(__file__).with_name("encoded_sizes.json")
sys.path.insert(0, str(ROOT / "tools"))
from gradient_arrays import read_npz

CODECS = [
    "fp32", "fp16", "bf16", "truncate:bits=16", "truncate:bits=22", "truncate:bits=24", "int8",
    "3lc", "3lc:s=1.75", "3lc:s=1.75,block=64", "3lc:mode=paper", "3lc:mode=paper,s=1.75",
    "terngrad", "terngrad:pack=2bit", "terngrad:pack=base243", "terngrad:bucket=512", "stoch3",
    "qsgd", "mqe1bit", "signsgd",
    "inceptionn:bound=2^-8", "inceptionn:bound=2^-8,mode=paper", "inceptionn:bound=2^-10",
    "inceptionn:bound=2^-10,mode=paper", "adacomp", "local-selection", "dryden", "topk",
    "oland-raj", "oland-raj:bits=8",
]
KIND_OF_RANK = {1: "bias", 2: "dense", 4: "conv"}


def data_folder():
    return pathlib.Path(os.environ.get("TERSEWIRE_DATA", ROOT.parent / "shared" / "data"))


def generated_arrays():
    """[(name, kind, values)]; arithmetic that is the same everywhere, so no gauss()."""
    numbers = random.Random(1)

    def normal():
        return sum(numbers.random() for _ in range(12)) - 6

    lists = {
        "empty": [],
        "one": [0.25],
        "seven": [0.5, -0.25, 0.0, 1e-3, -1e-3, 3.0, -2.0],
        "zeros-4096": [0.0] * 4096,
        "constant-1000": [0.1] * 1000,
        "alternating-1000": [0.01, -0.01] * 500,
        "one-huge-5000": [1e-4] * 4999 + [1e4],
        "normal-20000": [1e-2 * normal() for _ in range(20000)],
        "heavy-tailed-50003": [1e-3 * normal() ** 3 for _ in range(50003)],
        "sparse-30000": [normal() if numbers.random() < 0.01 else 0.0 for _ in range(30000)],
        "weights-12345": [numbers.random() - 0.5 for _ in range(12345)],
        "above-one-999": [10 * normal() for _ in range(999)],
    }
    return [(f"generated/{name}", "dense", array.array("f", values).tobytes())
            for name, values in lists.items()]


def real_arrays():
    found = []
    for path in sorted((data_folder() / "gradients").glob("*.npz")):
        found += [(f"{path.stem}/{name}", KIND_OF_RANK.get(len(shape), "other"), values)
                  for name, shape, values in read_npz(path)]
    return found


def measured(program, arrays):
    """{name: [size text of each codec]}"""
    with tempfile.TemporaryDirectory() as folder:
        arguments = []
        for i, (_, kind, values) in enumerate(arrays):
            path = pathlib.Path(folder) / str(i)
            path.write_bytes(values)
            arguments.append(f"{kind}:{path}")
        done = subprocess.run([program, *CODECS, "--", *arguments], check=True,
                              stdout=subprocess.PIPE, text=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) == len(arrays) and all(len(line) == len(CODECS) for line in lines)
    return {name: sizes for (name, _, _), sizes in zip(arrays, lines)}


def write_ledger(sizes):
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(sizes[name])}" for name in sizes)
    LEDGER.write_text(f'{{"codecs": {json.dumps(CODECS)},\n "arrays": {{\n{lines}\n}}}}\n')


def first_step_total(sizes, arrays, codec):
    column = CODECS.index(codec)
    return sum(int(sizes[name][column].split("/")[0]) for name, _, _ in arrays)


def differences(sizes, ledger):
    if ledger["codecs"] != CODECS:
        return ["the ledger lists other codecs"]
    found = []
    for name, row in sizes.items():
        known = ledger["arrays"].get(name)
        if known is None:
            found.append(f"{name} is not in the ledger")
            continue
        found += [f"{name}, {codec}: {before} bytes became {now}"
                  for codec, before, now in zip(CODECS, known, row) if before != now]
    return found


def broken_promises(sizes, arrays, real):
    """What must hold whatever the ledger says."""
    found = []
    for bound in ("2^-8", "2^-10"):
        bounded = first_step_total(sizes, real, f"inceptionn:bound={bound}")
        paper = first_step_total(sizes, real, f"inceptionn:bound={bound},mode=paper")
        if real and bounded >= paper:
            found.append(f"inceptionn at {bound}: bounded takes {bounded} bytes, paper {paper}")
    for name, _, values in arrays:
        elems = len(values) // 4
        groups = -(-elems // 5)
        size = int(sizes[name][CODECS.index("terngrad:pack=base243")])
        # The message's head, a frame of at most 12 bytes, and layout and scaler.
        if not groups <= size <= groups + 28 + 12 + 5:
            found.append(f"base-3^5 takes {size} bytes for {elems} values of {name}")
    return found


def main():
    program, update = sys.argv[1], sys.argv[2:] == ["--update"]
    real = real_arrays()
    arrays = generated_arrays() + real
    sizes = measured(program, arrays)
    problems = broken_promises(sizes, arrays, real)
    if update:
        if not real:
            sys.exit(f"nothing updated: there are no gradients under {data_folder()}")
        write_ledger(sizes)
    else:
        problems += differences(sizes, json.loads(LEDGER.read_text()))
    for problem in problems:
        print(problem)
    if not real:
        print(f"SKIPPED: the real gradients, because {data_folder()}/gradients does not exist")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
