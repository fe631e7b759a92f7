#!/usr/bin/python3
"""Writes spec/vectors: messages every reader must accept, messages every reader
must reject, and what a writer must make of an input.

    make_vectors.py

The output depends on nothing but the files in vector_makers/ and the
reference encoder.
"""

import os
import sys

from vector_makers import (
    broken_messages,
    dense,
    encoded,
    files,
    inceptionn,
    levels,
    messages,
    oland_raj,
    sparse,
    ternary,
    three_lc,
    three_lc_blocks,
)
from vector_makers.common import Rejections

VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vectors")
FOLDERS = ["accepted", "rejected", "encoded"]

FAMILIES = [three_lc, three_lc_blocks, ternary, levels, inceptionn, sparse, dense, oland_raj]
ACCEPTED = [messages, files, *FAMILIES]
REJECTED = [broken_messages, files, *FAMILIES]


def all_vectors():
    """Every file below vectors/, as {path: bytes}."""
    files = {}
    for maker in ACCEPTED:
        made = maker.accepted()
        assert not files.keys() & made.keys()
        files |= made
    rejections = Rejections()
    for maker in REJECTED:
        maker.rejected(rejections)
    return files | rejections.all_files() | encoded.encoded()


def stored_paths():
    """Every file in the folders of vectors, as all_vectors() names them."""
    paths = set()
    for folder in FOLDERS:
        if os.path.isdir(os.path.join(VECTORS, folder)):
            paths |= {f"{folder}/{name}" for name in os.listdir(os.path.join(VECTORS, folder))}
    return paths


def main(argv):
    if argv:
        print("make_vectors.py takes no arguments.", file=sys.stderr)
        return 2
    files = all_vectors()
    for path in stored_paths() - files.keys():
        os.remove(os.path.join(VECTORS, path))
    for path, data in files.items():
        target = os.path.join(VECTORS, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(data)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
