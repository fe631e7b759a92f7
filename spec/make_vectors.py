#!/usr/bin/python3
"""Writes spec/vectors: messages every reader must accept, messages every reader
must reject, and what a writer must make of an input.

    make_vectors.py

The output depends on nothing but the files in vector_makers/ and the
reference encoder.
"""

import json
import pathlib
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

VECTORS = pathlib.Path(__file__).resolve().parent / "vectors"

FAMILIES = [three_lc, three_lc_blocks, ternary, levels, inceptionn, sparse, dense, oland_raj]
ACCEPTED = [messages, files, *FAMILIES]
REJECTED = [broken_messages, files, *FAMILIES]


def json_lines(vectors):
    """The bytes of a file of {name: vector}, a line each, sorted by name."""
    return "".join(json.dumps(vectors[name]) + "\n" for name in sorted(vectors)).encode()


def all_vectors():
    """Every file below vectors/ but its README, as {path: bytes}."""
    accepted = {}
    for maker in ACCEPTED:
        made = maker.accepted()
        assert not accepted.keys() & made.keys()
        accepted |= made
    rejections = Rejections()
    for maker in REJECTED:
        maker.rejected(rejections)
    return {
        "accepted.jsonl": json_lines(accepted),
        "rejected.jsonl": json_lines(rejections.vectors),
    } | encoded.encoded()


def stored_files():
    """The files that all_vectors() makes, as they are stored: {path: bytes}."""
    paths = [path for path in VECTORS.rglob("*") if path.is_file() and path.name != "README.md"]
    return {path.relative_to(VECTORS).as_posix(): path.read_bytes() for path in paths}


def stored_vectors(outcome):
    """The vectors of "accepted" or "rejected", as they are stored: {name: vector}."""
    with open(VECTORS / f"{outcome}.jsonl") as file:
        return {vector["name"]: vector for vector in map(json.loads, file)}


def main(argv):
    if argv:
        print("make_vectors.py takes no arguments.", file=sys.stderr)
        return 2
    files = all_vectors()
    for path in stored_files().keys() - files.keys():
        (VECTORS / path).unlink()
    for path, data in files.items():
        (VECTORS / path).parent.mkdir(exist_ok=True)
        (VECTORS / path).write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
