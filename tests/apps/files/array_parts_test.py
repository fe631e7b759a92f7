#!/usr/bin/python3
"""Tests of arrays that are encoded and decoded part by part, against the reference.

    array_parts_test.py PATH_TO_TERSEWIRE
"""

import json
import math
import os
import pathlib
import struct
import subprocess
import sys

sys.dont_write_bytecode = True

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "spec")]

import program
import reference_decoder as decoder
import reference_encoder as encoder
from arrays import ArrayTest, floats, heavy_tailed, npy, read_npy
from program import run, run_all

PARTS = ("--part-values", "8")


class Reference(ArrayTest):
    """Both writers write the same bytes, and what is decoded is what the reference decodes."""

    CODECS = {
        "fp32": "f",
        "3lc:s=1.75": "f",
        "3lc:mode=paper": "d",
        "terngrad": "f",
        "qsgd": "f",
        "adacomp:bin=3": "f",
        "topk": "f",
        "int8": "f",
        "oland-raj": "d",
    }
    SHAPE = (3, 7)

    def encode(self, values, code, codec, *options, cut=8):
        source = self.write("in.npy", npy(values, self.SHAPE, code))
        options = ("--seed", "7", "--step", "41", "--codec", codec, *options)
        parts = ("--part-values", cut or "whole")
        self.assert_done(run("encode", "--force", *parts, *options, source, self.path("m.tw")))
        wide = codec.startswith("oland-raj") and code == "d"
        self.write("in.raw", struct.pack(f"<{len(values)}{'d' if wide else 'f'}", *values))
        options = [word.replace("out.state", "reference.state") for word in options]
        options += ["--dims", "3,7", "--dtype", "f64" if code == "d" else "f32"]
        options += ["--part-values", str(cut)] if cut else []
        self.assertEqual(encoder.main([*options, self.path("in.raw"), self.path("r.tw")]), 0)
        self.assertEqual(self.read("m.tw"), self.read("r.tw"), codec)
        return self.read("m.tw")

    def assert_decodes(self, message, code):
        parsed, decoded = decoder.decode_message(message)
        self.assertEqual([frame.part for frame in parsed.frames], [0, 1, 2])
        wide = [part.values_f64 for part in decoded]
        if code == "d" and None not in wide:
            expected = b"".join(wide)
        else:
            values = floats(b"".join(part.values for part in decoded))
            expected = struct.pack(f"<{len(values)}{code}", *values)
        self.assert_done(run("decode", "--force", self.path("m.tw"), self.path("back.npy")))
        self.assertEqual(read_npy(self.read("back.npy"))[1:], (self.SHAPE, expected))
        piped = run("decode", "-", "-", stdin=message)
        self.assert_done(piped)
        self.assertEqual(piped.stdout, self.read("back.npy"))

    def test_every_kind_of_codec(self):
        values = floats(struct.pack("<21f", *heavy_tailed(self.random, 21)))
        for codec, code in self.CODECS.items():
            with self.subTest(codec=codec):
                self.assert_decodes(self.encode(values, code, codec), code)

    def test_states(self):
        state = ("--state", self.path("out.state"))
        for step in range(3):
            values = floats(struct.pack("<21f", *heavy_tailed(self.random, 21)))
            self.encode(values, "f", "3lc:s=1.5", *state)
            self.assertEqual(self.read("out.state"), self.read("reference.state"), step)

    def test_a_state_serves_other_parts(self):
        for cut in (None, 8, 12, None):
            values = floats(struct.pack("<21f", *heavy_tailed(self.random, 21)))
            state = ("--state", self.path("out.state"))
            self.encode(values, "f", "3lc:mode=paper,s=1.2", *state, cut=cut)
            self.assertEqual(self.read("out.state"), self.read("reference.state"), cut)

    def test_a_part_that_is_not_finite_travels_alone(self):
        values = heavy_tailed(self.random, 21)
        values[10] = math.inf
        message = self.encode(values, "f", "3lc")
        parsed, _ = decoder.decode_message(message)
        self.assertEqual([frame.codec for frame in parsed.frames], [2, 1, 2])
        self.assert_decodes(message, "f")
        described = json.loads(run("inspect", "--json", self.path("m.tw")).stdout)
        found = [described[key] for key in ("codec", "not_finite", "parts", "elems", "shape")]
        self.assertEqual(found, ["3lc", True, 3, 21, [3, 7]])
        self.assertEqual([frame["elems"] for frame in described["frames"]], [8, 8, 5])
        self.assertEqual(described["wire_bytes"], len(message))
        result = run("encode", "--codec", "3lc:non-finite=reject", *PARTS, self.path("in.npy"),
                     self.path("none.tw"))  # fmt: skip
        self.assert_refused(result, 1, "in.npy", "from value 8 on", "NaN")

    def test_a_gradient_in_parts(self):
        values = heavy_tailed(self.random, 21)
        gradient = self.write("g.npy", npy([6.0 + i for i in range(21)], (21,)))
        self.write("g.f32", struct.pack("<21f", *[6.0 + i for i in range(21)]))
        source = self.write("in.npy", npy(values, self.SHAPE))
        self.write("in.raw", struct.pack("<21f", *values))
        options = ["--codec", "oland-raj:bits-from=gradient", *PARTS]
        self.assert_done(run("encode", *options, "--gradient", gradient, source, self.path("m.tw")))
        options += ["--gradient", self.path("g.f32"), "--dims", "3,7"]
        self.assertEqual(encoder.main([*options, self.path("in.raw"), self.path("r.tw")]), 0)
        self.assertEqual(self.read("m.tw"), self.read("r.tw"))


class Files(ArrayTest):
    def test_an_array_of_one_part_is_a_message_as_ever(self):
        source = self.write("in.npy", npy(heavy_tailed(self.random, 21), (21,)))
        written = []
        for part_values in ("whole", "24", "1048576"):
            out = self.path(part_values + ".tw")
            self.assert_done(run("encode", "--part-values", part_values, source, out))
            written.append(self.read(part_values + ".tw"))
        self.assert_done(run("encode", source, self.path("default.tw")))
        self.assertEqual(written, [self.read("default.tw")] * 3)
        decoder.parse_message(written[0])

    def test_hostile_files(self):
        values = heavy_tailed(self.random, 20)
        source = self.write("in.npy", npy(values, (20,)))
        other = self.write("other.npy", npy(values, (4, 5)))
        encode = ("encode", *PARTS)
        for name, codec, array in [("m", "fp32", source), ("int8", "int8", source),
                                   ("other", "fp32", other)]:  # fmt: skip
            self.assert_done(run(*encode, "--codec", codec, array, self.path(name + ".tw")))
        whole = self.read("m.tw")
        parts, of_int8, of_other = (self.split(name) for name in ("m.tw", "int8.tw", "other.tw"))
        flipped = bytearray(whole)
        flipped[-1] ^= 1
        cases = [
            (whole[: len(parts[0]) + 40], "part 1 of 3"),
            (whole[: len(parts[0])], "ends after 1 of its 3 parts"),
            (parts[0] + parts[2], "part 2 stands where part 1 belongs"),
            (parts[1] + parts[2], "part 1 stands where part 0 belongs"),
            (whole + parts[0], "more follows its last part"),
            (whole + b"\0", "more follows its last part"),
            (parts[0] + of_int8[1] + parts[2], "part 1 of 3", "of codec"),
            (parts[0] + parts[1] + of_other[2], "part 2 of 3", "another shape"),
            (bytes(flipped), "part 2 of 3", "checksum"),
        ]
        commands = []
        for i, (content, *_) in enumerate(cases):
            self.write(f"{i}.npy", b"older")
            commands.append(
                ("decode", "--force", self.write(f"{i}.bad", content), self.path(f"{i}.npy"))
            )
            commands.append(("inspect", self.path(f"{i}.bad")))
        results = run_all(commands)
        for i, (_, *words) in enumerate(cases):
            with self.subTest(words=words):
                self.assert_refused(results[2 * i], 1, f"{i}.bad", *words)
                self.assert_refused(results[2 * i + 1], 1, f"{i}.bad", *words)
                self.assertEqual(self.read(f"{i}.npy"), b"older")
        # From a pipe what came before the damage has gone on.
        piped = run("decode", "-", "-", stdin=cases[0][0])
        self.assertEqual(piped.returncode, 1)
        self.assertIn(b"standard input: part 1 of 3", piped.stderr)
        self.assertEqual(piped.stdout[-32:], struct.pack("<8f", *values[:8]))

    def split(self, name):
        data = self.read(name)
        ends = [0]
        while ends[-1] < len(data):
            ends.append(decoder.message_end(data, ends[-1]))
        return [data[begin:end] for begin, end in zip(ends, ends[1:])]

    def test_arrays_that_end_early_leave_nothing(self):
        whole = npy(heavy_tailed(self.random, 40), (40,))
        for content in (whole[:-4], whole + b"1234"):
            source = self.write("in.npy", content)
            result = run("encode", *PARTS, source, self.path("m.tw"))
            self.assert_refused(result, 1, "in.npy", "where its shape needs 160")
            piped = run("encode", *PARTS, "-", self.path("m.tw"), stdin=content)
            self.assert_refused(piped, 1, "standard input:", "needs")
            self.assert_files("in.npy")

    def test_wrong_usage(self):
        source = self.write("in.npy", npy([1.0] * 9, (9,)))
        cases = [("0", "multiple of 4"), ("6", "multiple of 4"), ("-4", "part"), ("010", "octal"),
                 ("all", "nor 'whole'"), ("", "nor 'whole'")]  # fmt: skip
        for text, word in cases:
            with self.subTest(text=text):
                result = run("encode", f"--part-values={text}", source, self.path("m.tw"))
                self.assert_refused(result, 2, word)
        self.assert_files("in.npy")


class Memory(ArrayTest):
    """What an array takes does not depend on its length."""

    ELEMS = 1 << 25
    MOST_KILOBYTES = 64 << 10  # half of the array

    def large_array(self):
        """Zeros, which take no room on the disk, and something at both ends of a few parts."""
        head = npy(b"", (self.ELEMS,))
        values = heavy_tailed(self.random, 1000)
        with open(self.path("in.npy"), "wb") as file:
            file.write(head)
            for part in (0, 5, 31):
                file.seek(len(head) + 4 * ((part + 1 << 20) - 500))
                file.write(struct.pack("<1000f", *values)[: 4000 if part < 31 else 2000])
        os.truncate(self.path("in.npy"), len(head) + 4 * self.ELEMS)
        return self.path("in.npy")

    def kilobytes(self, command):
        """What it takes at most; it must succeed."""
        with subprocess.Popen(command, shell=isinstance(command, str), stderr=subprocess.PIPE,
                              env=program.ENVIRONMENT) as process:  # fmt: skip
            errors = process.stderr.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual((process.returncode, errors), (0, b""))
        return usage.ru_maxrss

    def test_bounded(self):
        source, out, back = self.large_array(), self.path("m.tw"), self.path("back.npy")
        for codec in ("fp32", "3lc"):
            with self.subTest(codec=codec):
                encode = [program.PATH, "encode", "--force", "--codec", codec, source, out]
                self.assertLess(self.kilobytes(encode), self.MOST_KILOBYTES)
                decode = [program.PATH, "decode", "--force", out, back]
                self.assertLess(self.kilobytes(decode), self.MOST_KILOBYTES)
                for option in ("", "--json"):
                    inspect = f"'{program.PATH}' inspect {option} - < '{out}' > '{self.path('told')}'"
                    self.assertLess(self.kilobytes(inspect), self.MOST_KILOBYTES)
                described = json.loads(self.read("told"))
                self.assertEqual(described["elems"], self.ELEMS)
                self.assertEqual(described["wire_bytes"], os.path.getsize(out))
                self.assertEqual(len(described["frames"]), 32)
                if codec == "fp32":
                    self.assertEqual(os.system(f"cmp -s '{source}' '{back}'"), 0)
        through = f"'{program.PATH}' decode - - < '{out}' | '{program.PATH}' encode --codec 3lc - - > '{back}'"
        self.assertLess(self.kilobytes(through), self.MOST_KILOBYTES)
        self.assertEqual(self.read("back.npy")[:2], b"TW")

    def test_parts_without_end(self):
        """What is said of an array does not wait for all of its parts to be in memory."""
        elems = 400_000
        source = self.write("in.npy", npy(bytes(4 * elems), (elems,)))
        self.assert_done(run("encode", "--part-values", "4", source, self.path("m.tw")))
        inspect = f"'{program.PATH}' inspect '{self.path('m.tw')}' > '{self.path('told')}'"
        self.assertLess(self.kilobytes(inspect), self.MOST_KILOBYTES)
        self.assertIn(b"parts              100000\n", self.read("told"))


if __name__ == "__main__":
    program.main(__doc__)
