#!/usr/bin/env python3
"""Damages every kind of file that the program reads, makes its checksum right again where it has
one, and looks at what the program does with it.

usage: mutated_files.py PATH_TO_TERSEWIRE [--runs N] [--seed N]

Each run damages one file of a random kind, for a random command that reads it; commands that train,
which take longer, have fewer. However a file is damaged, the program is to end by itself with 0, 1
or 2, and where it fails without output and with one sentence. Prints a tally. Ends with 1 where
something was not so, and keeps the files that did it.
"""

import collections
import functools
import gzip
import json
import os
import pathlib
import random
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "spec")]

import hostile_loop
from arrays import npy
from reference.cursor import Rejected
from reference.xxh64 import xxh64
from reference_decoder import message_end

MEMORY_BYTES = 8 << 30  # of address space, most of it libraries'
LIMIT_SECONDS = 120
TRAIN = "--workers 1 --steps 1 --batch 1 --model mlp --threads 1".split()
TRAINS_EVERY = 5  # times that it comes to that
# Words of a library or a language that no sentence of ours has.
FOREIGN = [b"std::", b"terminate", b"what()", b"bad_alloc", b"basic_string", b"c10", b"json.exception",
           b"vector::"]  # fmt: skip


def idx(dims):
    size = 1
    for dim in dims:
        size *= dim
    return struct.pack(f">I{len(dims)}I", 0x800 | len(dims), *dims) + bytes(i % 10 for i in range(size))


def png(side):
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(
            ">I", zlib.crc32(kind + content))  # fmt: skip

    rows = b"".join(b"\0" + bytes((x * y) % 256 for x in range(side)) for y in range(side))
    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows))
            + chunk(b"IEND", b""))  # fmt: skip


def sealed_message(data):
    if len(data) < 28:
        return data
    return data[:20] + struct.pack("<Q", xxh64(data[:20] + data[28:])) + data[28:]


def sealed_file(data):
    """With the checksum of every part's message that can still be found."""
    sealed, at = b"", 0
    while len(data) - at >= 28:
        try:
            end = message_end(data, at)
        except Rejected:
            end = len(data)
        sealed += sealed_message(data[at:end])
        at = end
    return sealed + data[at:]


def sealed_tensors(data):
    found = re.search(rb'"xxh64":"([^"]{16})"', data)
    if not found:
        return data
    begin, end = found.span(1)
    digits = f"{xxh64(data[:begin] + b'0' * 16 + data[end:]):016x}".encode()
    return data[:begin] + digits + data[end:]


def sealed_png(data):
    """With the checksum of every chunk that can still be found."""
    at = 8
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        end = at + 8 + length
        if end + 4 > len(data):
            break
        data = data[:end] + struct.pack(">I", zlib.crc32(data[at + 4 : end])) + data[end + 4 :]
        at = end + 4
    return data


def changed_json(data, draw):
    """Another value in the place of one of its own, deep inside or at the top."""
    lines = data.splitlines(keepends=True)
    place = draw.randrange(len(lines)) if data.count(b"\n{") else None
    document = json.loads(data if place is None else lines[place])
    node = document
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = draw.choice(keys)
        inner = node[key]
        if not (isinstance(inner, (dict, list)) and inner and draw.random() < 0.8):
            break
        node = inner
    if draw.random() < 0.2:
        del node[key]
    else:
        node[key] = draw.choice([
            None, True, -1, 0, 1 << 63, 1 << 70, 1e308, -0.5, "", "nan", "\u0000", "\ud7ff" * 3,
            [], {}, [[[]]], "x" * 5000,
        ])  # fmt: skip
    changed = json.dumps(document).encode()
    return changed if place is None else b"".join([*lines[:place], changed + b"\n", *lines[place + 1 :]])


def damaged(data, draw):
    """A few bits, bytes or runs otherwise, or another length."""
    data = bytearray(data)
    for _ in range(draw.choice([1, 1, 1, 2, 4, 16])):
        if not data:
            break
        # The beginning is where formats say how long the rest is.
        at = draw.randrange(min(len(data), draw.choice([32, 256, len(data)])))
        how = draw.randrange(7)
        if how == 0:
            data[at] ^= 1 << draw.randrange(8)
        elif how == 1:
            data[at] = draw.choice([0, 1, 0x7F, 0x80, 0xFF])
        elif how == 2:
            word = draw.choice([b"\xff" * 8, b"\0" * 8, b"\xff\xff\xff\x7f", b"\0\0\x80\x7f"])
            data[at : at + len(word)] = word
        elif how == 3:
            del data[at : at + draw.choice([1, 4, 64])]
        elif how == 4:
            data[at:at] = draw.randbytes(draw.choice([1, 4, 64]))
        elif how == 5:
            del data[at:]
        else:
            data += data[at : at + 64]
    return bytes(data)


class Files:
    """One whole file of each kind, and the directories that they belong in."""

    def __init__(self, program, directory):
        self.program = program
        self.directory = directory
        self.write("in.npy", npy([i % 7 - 3.0 for i in range(600)], (600,)))
        for codec in ("3lc", "3lc:mode=paper,layout=partitions", "terngrad", "qsgd", "inceptionn",
                      "adacomp", "dryden", "topk", "int8", "mqe1bit", "oland-raj", "truncate"):  # fmt: skip
            self.tersewire("encode", "--codec", codec, "in.npy", codec.replace(":", "-") + ".tw")
        self.tersewire("encode", "--state", "state.tw", "in.npy", "first.tw")
        parts = ("--codec", "3lc:mode=paper", "--part-values", "64", "--state", "parts-state.tw")
        self.tersewire("encode", *parts, "in.npy", "parts.tw")
        self.write("recipe.ini", b"# Small.\nmodel = mlp\nworkers = 1\nsteps = 1\nbatch = 1\nlr = 0.1\n"
                                 b"codec = 3lc:s=1.5\nscale-lr = true\n")  # fmt: skip
        for name, count in (("train", 40), ("t10k", 20)):
            self.write(f"mnist/{name}-images-idx3-ubyte", idx([count, 28, 28]))
            self.write(f"mnist/{name}-labels-idx1-ubyte.gz", gzip.compress(idx([count])))
        record = bytes([3]) + bytes(i % 251 for i in range(3072))
        for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
            self.write(f"cifar/{name}.bin", record * 4)
        for part in ("train", "test"):
            for label in ("a", "b"):
                for i in range(2):
                    self.write(f"images/{part}/{label}/{i}.png", png(28))
        self.write("text.txt", bytes(32 + i * i % 90 for i in range(2000)))
        self.write("shapes.json", json.dumps([
            {"name": "conv.weight", "shape": [8, 3, 3, 3], "kind": "conv"}, {"name": "conv.bias", "shape": [8]},
            {"name": "fc.weight", "shape": [500, 800]}]).encode())  # fmt: skip
        self.write("probe.json", json.dumps({
            "rate_bits_per_second": 1e8, "latency_seconds": 1e-3, "cores": 2, "peers": [],
            "codecs": [{"codec": "3lc", "encode_seconds_per_value": 1e-9, "decode_seconds_per_value": 1e-9,
                        "bits_per_value": 1, "pull_bits_per_value": 0.5}]}).encode())  # fmt: skip
        self.has_trainer = b"  train " in self.tersewire("--help")
        if self.has_trainer:
            self.tersewire("train", *TRAIN[:2], "--steps", "4", "--batch", "2", "--model", "mlp",
                           "--checkpoint-steps", "2", "--observe-steps", "2", "--out", "run")
            os.remove(self.path("run/summary.json"))  # as one that was killed
            self.tersewire("train", *TRAIN, "--out", "ended")
            self.tersewire("compare", "--designs", "fp32; int8", "--steps", "1", "--set", "model=mlp",
                           "--set", "workers=1", "--set", "batch=1", "--out", "compared")

    def path(self, name):
        return os.path.join(self.directory, name)

    def write(self, name, content):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "wb") as file:
            file.write(content)

    def tersewire(self, *arguments):
        return subprocess.run([self.program, *arguments], cwd=self.directory, check=True,
                              capture_output=True).stdout  # fmt: skip

    def kinds(self):
        """(file, how it is sealed, the command that reads it): "@" is where the file lies."""
        tw = [name for name in sorted(os.listdir(self.directory)) if name.endswith(".tw")]
        yield "in.npy", None, ["encode", "--force", "in.npy", "out.tw"]
        yield "in.npy", None, ["encode", "--force", "--codec", "oland-raj:bits-from=gradient",
                               "--gradient", "in.npy", self.path("in.npy"), "out.tw"]  # fmt: skip
        for name in tw:
            yield name, sealed_file, ["decode", "--force", name, "out.npy"]
            yield name, sealed_file, ["inspect", name]
        for state in ("state.tw", "parts-state.tw"):
            yield state, sealed_file, ["encode", "--force", "--state", state, "in.npy", "out.tw"]
        predict = ["predict", "--model", "shapes.json", "--workers", "4", "--compute-ms", "1", "--probe", "probe.json",
                   "--exchange", "gradient-server", "--codec", "3lc"]  # fmt: skip
        yield "shapes.json", None, predict
        yield "probe.json", None, predict
        if not self.has_trainer:
            return
        for name in ("config.json", "metrics.jsonl", "summary.json", "model.safetensors"):
            yield f"ended/{name}", sealed_tensors, ["inspect", "ended"]
            yield f"ended/{name}", sealed_tensors, ["report", "--out", "page.html", "ended"]
        yield "run/observations.jsonl", None, ["report", "--out", "page.html", "run"]
        for node in (0, 1):
            checkpoint = f"run/checkpoints/step-2/node-{node}.safetensors"
            yield checkpoint, sealed_tensors, ["inspect", checkpoint]
            yield checkpoint, sealed_tensors, ["train", "--resume", "run"]
        for name in ("metrics.jsonl", "config.json"):
            yield f"run/{name}", None, ["train", "--resume", "run"]
        for name in ("compare.json", "results.json"):
            yield f"compared/{name}", None, ["inspect", "compared"]
            yield f"compared/{name}", None, ["report", "--out", "page.html", "compared"]
        train = ["train", *TRAIN, "--out", "new"]
        yield "recipe.ini", None, ["train", "--recipe", "./recipe.ini", "--out", "new"]
        yield "mnist/train-images-idx3-ubyte", None, [*train, "--data", "mnist"]
        yield "mnist/train-labels-idx1-ubyte.gz", None, [*train, "--data", "mnist"]
        yield "cifar/data_batch_3.bin", None, [*train, "--model", "cifarnet", "--data", "cifar",
                                               "--augment", "cifarnet"]  # fmt: skip
        yield "images/train/b/1.png", sealed_png, [*train, "--data", "images"]
        yield "text.txt", None, [*train, "--model", "lstm", "--data", "text.txt"]


class Loop:
    def __init__(self, files, seed):
        self.files = files
        self.random = random.Random(seed)
        self.tally = collections.Counter()
        self.wrong = []

    def damaged(self, name, content, seal):
        if name.endswith((".json", ".jsonl")) and self.random.random() < 0.5:
            return changed_json(content, self.random)
        content = damaged(content, self.random)
        return seal(content) if seal and self.random.random() < 0.9 else content

    def read(self, name, seal, command):
        """What the program does with a damaged file, in a copy of the directory of whole ones."""
        place = tempfile.mkdtemp()
        shutil.copytree(self.files.directory, place, dirs_exist_ok=True)
        path = os.path.join(place, name)
        with open(path, "rb") as file:
            content = self.damaged(name, file.read(), seal)
        with open(path, "wb") as file:
            file.write(content)
        limit = functools.partial(resource.setrlimit, resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        try:
            ended = subprocess.run([self.files.program, *command], cwd=place, preexec_fn=limit,
                                   stdin=subprocess.DEVNULL, capture_output=True, check=False,
                                   timeout=LIMIT_SECONDS)  # fmt: skip
            wrong = self.what_is_wrong(ended, command)
        except subprocess.TimeoutExpired:
            wrong = f"it did not end within {LIMIT_SECONDS} s"
        if wrong:
            self.wrong.append(f"{' '.join(command)}, {path} damaged: {wrong}")
        else:
            self.tally[f"{command[0]}: {'refused' if ended.returncode else 'read'}"] += 1
            shutil.rmtree(place)

    def what_is_wrong(self, ended, command):
        said = ended.stderr.splitlines()
        if ended.returncode not in (0, 1, 2):
            return f"it ended with {ended.returncode}: {ended.stderr[-300:]}"
        for word in FOREIGN:
            if word in ended.stderr:
                return f"it speaks of {word.decode()}: {ended.stderr[-300:]}"
        sentences = [line for line in said if line.startswith(b"tersewire: ")]
        if ended.returncode == 0:
            return f"it complained and went on: {sentences}" if sentences else ""
        if len(sentences) != 1 or said[-1] != sentences[0]:
            return f"it said {ended.stderr[-300:]}"
        # A run that trained tells what came of it, whatever its loss was.
        return f"it failed and printed {ended.stdout[:100]}" if ended.stdout and command[0] != "train" else ""

    def run(self, kinds):
        name, seal, command = self.random.choice(kinds)
        while command[0] == "train" and self.random.randrange(TRAINS_EVERY) != 0:
            name, seal, command = self.random.choice(kinds)
        self.read(name, seal, command)


def main():
    arguments = hostile_loop.arguments(__doc__, runs=60, seed=1624).parse_args()
    with tempfile.TemporaryDirectory() as directory:
        loop = Loop(Files(os.path.abspath(arguments.program), directory), arguments.seed)
        kinds = list(loop.files.kinds())
        for _ in range(arguments.runs):
            loop.run(kinds)
    return hostile_loop.verdict(loop.tally, loop.wrong, f"the seed was {arguments.seed}")


if __name__ == "__main__":
    sys.exit(main())
