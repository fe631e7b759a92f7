#!/usr/bin/env python3
"""How many gradient values take 2, 10, 18 and 34 bits under codec inceptionn (INCEPTIONN, Table
III), and the resulting size: by the codec's rules, without encoding anything.

usage: burst_shares.py FILE.npz...
"""

import pathlib
import sys

import numpy as np

WIDTHS = (2, 10, 18, 34)


def paper_tags(magnitude, bits):
    """Algorithm 2: the exponent alone chooses."""
    exponent = magnitude.view(np.uint32) >> 23
    lowest = 127 - bits
    return ((exponent >= lowest).astype(int) + (exponent >= lowest + (bits + 1) // 2)
            + (exponent >= 127))


def bounded_tags(magnitude, bits):
    """Ours: values that round to 0 take nothing, those of seven bits of twice the bound a byte."""
    units = np.rint(magnitude.astype(np.float64) * 2.0 ** (bits - 1))
    return (units > 0).astype(int) + (units > 127) + (magnitude >= 1)


def main():
    print("| gradients | mode | bound | 2 bits | 10 bits | 18 bits | 34 bits | bits a value |"
          " ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    for path in sys.argv[1:]:
        arrays = np.load(path)
        magnitude = np.abs(np.concatenate([arrays[name].ravel() for name in arrays.files]))
        for mode, tags_of in (("paper", paper_tags), ("bounded", bounded_tags)):
            for bits in (10, 8, 6):
                shares = np.bincount(tags_of(magnitude, bits), minlength=4) / magnitude.size
                mean = float(shares @ WIDTHS)
                print(f"| {pathlib.Path(path).stem} | {mode} | 2^-{bits} | "
                      + " | ".join(f"{100 * share:.2f} %" for share in shares)
                      + f" | {mean:.3f} | {32 / mean:.1f} |")


if len(sys.argv) < 2:
    sys.exit(__doc__)
main()
