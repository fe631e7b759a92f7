#!/usr/bin/env python3
"""What TernGrad's clipping changes of recorded gradients: their length and direction (evidence/codec-speed).

usage: clipping_change.py FILE.npz ... [--clip C]

Every array is clipped as codec terngrad does it: at C (2.5) standard deviations, the population's, about the mean, in
double (section 3.3). Prints a line of JSON for each array, for each file as a whole, and for a million normal values.
Needs numpy.
"""

import argparse
import json
import math
import pathlib

import numpy as np

NORMAL_VALUES = 1_000_000


def clipped(values, clip):
    limit = clip * values.std()
    return values if limit == 0 else np.clip(values, -limit, limit)


def change(before, after):
    """How much shorter, in percent, and how many degrees apart."""
    length, clipped_length = np.linalg.norm(before), np.linalg.norm(after)
    if length == 0:
        return {"shorter_percent": 0.0, "degrees": 0.0}
    cosine = min(1.0, float(before @ after / (length * clipped_length)))
    return {"shorter_percent": round(100 * (1 - clipped_length / length), 3),
            "degrees": round(math.degrees(math.acos(cosine)), 3)}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE.npz")
    parser.add_argument("--clip", type=float, default=2.5)
    options = parser.parse_args()

    def show(source, array, before, after):
        print(json.dumps({"source": source, "array": array, "clip": options.clip, "values": before.size,
                          **change(before, after)}))  # fmt: skip

    normal = np.random.default_rng(1).standard_normal(NORMAL_VALUES)
    show("normal", "all", normal, clipped(normal, options.clip))
    for path in options.files:
        with np.load(path) as file:
            arrays = {name: file[name].astype(np.float64).ravel() for name in file.files}
        after = {name: clipped(values, options.clip) for name, values in arrays.items()}
        for name, values in arrays.items():
            show(path.stem, name, values, after[name])
        show(path.stem, "all", np.concatenate([*arrays.values()]), np.concatenate([*after.values()]))


if __name__ == "__main__":
    main()
