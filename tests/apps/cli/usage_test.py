#!/usr/bin/python3
"""Tests of the program `tersewire` from outside: help, wrong usage, defaults, output.

    usage_test.py PATH_TO_TERSEWIRE
"""

import json
import os
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/support"))

import program
from arrays import npy
from program import ProgramTest, run, run_all


class Usage(ProgramTest):
    def test_a_state_and_an_output_that_would_be_one_file(self):
        self.write("in.npy", npy([1.0], (1,)))
        for state in ("./x.tw", self.path("x.tw")):
            with self.subTest(state=state):
                result = run("encode", "--codec", "3lc", "--state", state, "in.npy", "x.tw",
                             cwd=self.directory)  # fmt: skip
                self.assert_refused(result, 2, "same file")
        self.assert_files("in.npy")

    def test_wrong_usage(self):
        source, out = self.write("in.npy", npy([1.0], (1,))), self.path("m.tw")
        state = ("--state", self.path("s"))
        cases = [
            (("encode", "--codec", "3lc:s=16", source, out), "s must be"),
            (("encode", "--codec", "4lc", source, out), "4lc"),
            (("encode", "--codec", "fp32", *state, source, out), "residual"),
            (("encode", "--codec", "3lc:ef=off", *state, source, out), "residual"),
            (("encode", source, source), "same file"),
            (("encode", "--state", out, source, out), "same file"),
            (("encode", "--gradient", source, source, out), "omit --gradient"),
            (("encode", "--codec", "oland-raj:bits-from=gradient", "--gradient", "-", "-", out),
             "both be standard input"),
            (("encode", "--state", "-", source, out), "a state is both read and written"),
            (("encode", "--codec", "oland-raj:bits-from=gradient", source, out), "--gradient"),
            (("encode", "--threads", 0, source, out), "--threads"),
            (("encode", source), "OUT.tw"),
            (("transmogrify",), "transmogrify"),
            (("encode", "--seed", "-1", source, out), "-1 is negative"),
            (("encode", "--seed", "1" * 26, source, out), "too large"),
            (("encode", "--threads", "010", source, out), "octal"),
            (("encode", "--step", "0x10", source, out), "not a whole number"),
            (("encode", "--step", "", source, out), "--step: '' is not a number"),
            (("encode", "--threads", "", source, out), "--threads: '' is not a number"),
            (("bench", "exchange", "--servers", ""), "--servers: '' is not a number, and not colocated"),
            (("bench", "exchange", "--workers", "010"), "octal"),
            (("bench", "exchange", "--servers", "01"), "octal"),
            (("encode", "--codec", "3lc:block=-64", source, out), "whole number"),
            (("encode", "--codec", "qsgd:levels=" + "1" * 26, source, out), "whole number"),
            (("encode", "--codec", "3lc:s=1e999", source, out), "'1e999'"),
            (("inpsect",), "did you mean inspect?"),
            (("encode", "--thread", "2", source, out), "did you mean --threads?"),
            (("bench", "codecs", "--target", "mmx"), "mmx"),
            (("bench", "codecs", "--part-values", "0"), "whole"),
        ]
        for (_, word), result in zip(cases, run_all([command for command, _ in cases])):
            with self.subTest(word=word):
                self.assert_refused(result, 2, word)
        self.assert_files("in.npy")

    def test_no_suggestion_is_better_than_a_far_one(self):
        result = run("encode", "--verbatim", "in.npy", "out.tw")
        self.assert_refused(result, 2, "--verbatim")
        self.assertNotIn(b"did you mean", result.stderr)

    def test_help(self):
        commands = [(), ("help",), ("-h",), ("encode", "--help"), ("bench", "codecs", "--help"),
                    ("help", "encode")]  # fmt: skip
        helps = run_all(commands)
        for result in helps:
            self.assert_done(result)
            self.assertIn(b"Examples:", result.stdout)
        self.assertEqual(len({result.stdout for result in helps[:3]}), 1)
        self.assertEqual(helps[5].stdout, helps[3].stdout)
        self.assert_refused(run("help", "inpsect"), 2, "unknown command 'inpsect'", "did you mean inspect?")
        versions = run_all([("--version",), ("-V",), ("version",)])
        for version in versions:
            self.assertEqual((version.returncode, version.stdout[:10]), (0, b"tersewire "))
        self.assertEqual(len({version.stdout for version in versions}), 1)

    def test_codecs(self):
        result = run("codecs", "--json")
        self.assert_done(result)
        codecs = {codec["name"]: codec for codec in json.loads(result.stdout)}
        self.assertLessEqual({"fp32", "3lc"}, set(codecs))
        parameters = {p["key"]: p for p in codecs["3lc"]["parameters"]}
        self.assertEqual((parameters["s"]["default"], parameters["s"]["range"]),
                         ("1.25; paper: 1", "[1, 16); paper: [1, 2)"))

    def test_bench(self):
        options = "--elems 5000 --rounds 2 --warm-up 3 --target best --threads 1,2 --json".split()
        result = run("bench", "codecs", "--codec", "fp32", "3lc:s=1.75", *options)
        self.assert_done(result)
        rows = json.loads(result.stdout)
        self.assertEqual(
            [(row["codec"], row["threads"]) for row in rows],
            [("fp32", 1), ("fp32", 2), ("3lc:s=1.75", 1), ("3lc:s=1.75", 2)],
        )
        for row in rows:
            self.assertEqual(row["elems"], 5000)
            for key in ("memcpy_gb_per_s", "encode_ratio", "decode_ratio", "decode_add_ratio"):
                self.assertGreater(row[key], 0)
            self.assertGreater(row["floor_ratio"], 0)
        self.assertEqual(rows[0]["bits_per_value"], 32)

    def test_bench_of_one_value_is_as_short_as_of_a_few_hundred(self):
        options = "--codec fp32 --rounds 1 --warm-up 0 --target best --threads 1".split()
        result = run("bench", "codecs", "--elems", "1", *options)
        self.assert_done(result)
        self.assertIn(b"1 value, three inputs in rotation; medians of 1 round;", result.stdout)

    def test_bench_in_parts(self):
        options = ("--codec 3lc:mode=paper,zre=off --elems 5000 --rounds 1 --warm-up 0 --target best --threads 2 "
                   "--json").split()
        bits = {}
        for part_values in ("whole", "5000", "1000", "1"):
            result = run("bench", "codecs", *options, "--part-values", part_values)
            self.assert_done(result)
            (row,) = json.loads(result.stdout)
            self.assertEqual(str(row["part_values"]), part_values)
            bits[part_values] = row["bits_per_value"]
        # As jobs cut by default.
        result = run("bench", "codecs", *options)
        self.assertEqual(json.loads(result.stdout)[0]["part_values"], 1 << 20)
        result = run("bench", "codecs", *options, "--part-values", "0")
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"--part-values is 0;", result.stderr)
        # A head of 9 bytes for each part, and a byte for each five values.
        self.assertAlmostEqual(bits["whole"], 8 * (9 + 1000) / 5000)
        self.assertEqual(bits["5000"], bits["whole"])
        self.assertAlmostEqual(bits["1000"], 8 * (5 * 9 + 1000) / 5000)
        self.assertAlmostEqual(bits["1"], 80)


class Defaults(ProgramTest):
    def setUp(self):
        super().setUp()
        self.source = self.write("in.npy", npy([1.0, -2.0, 3.0], (3,)))

    def codec_of(self, *arguments, **variables):
        """That of what is encoded."""
        self.assert_done(run("encode", "--force", *arguments, self.source, self.path("m.tw"), **variables))
        return json.loads(run("inspect", "--json", self.path("m.tw")).stdout)["codec"]

    def test_the_command_line_then_the_environment_then_the_file(self):
        file = self.write("config.json", b'{"codec": "int8", "threads": 2}')
        self.assertEqual(self.codec_of(), "3lc")
        self.assertEqual(self.codec_of(TERSEWIRE_CONFIG=file), "int8")
        variables = {"TERSEWIRE_CONFIG": file, "TERSEWIRE_CODEC": "fp16"}
        self.assertEqual(self.codec_of(**variables), "fp16")
        self.assertEqual(self.codec_of("--codec", "bf16", **variables), "bf16")

    def test_the_file_is_where_others_are(self):
        os.makedirs(self.path("home/.config/tersewire"))
        os.makedirs(self.path("xdg/tersewire"))
        self.write("home/.config/tersewire/config.json", b'{"codec": "int8"}')
        self.write("xdg/tersewire/config.json", b'{"codec": "fp16"}')
        variables = {name: value for name, value in program.ENVIRONMENT.items()
                     if name not in ("TERSEWIRE_CONFIG", "XDG_CONFIG_HOME")}  # fmt: skip
        for more, codec in (({}, "int8"), ({"XDG_CONFIG_HOME": self.path("xdg")}, "fp16"),
                            ({"XDG_CONFIG_HOME": self.path("none")}, "3lc"),
                            ({"HOME": "/dev/null"}, "3lc")):  # fmt: skip
            with self.subTest(codec=codec):
                command = [program.PATH, "encode", "--force", self.source, self.path("m.tw")]
                environment = {**variables, "HOME": self.path("home"), **more}
                subprocess.run(command, env=environment, check=True)
                described = json.loads(run("inspect", "--json", self.path("m.tw")).stdout)
                self.assertEqual(described["codec"], codec)

    def test_quiet(self):
        encode = ("encode", "--force", "--verbose", self.source, self.path("m.tw"))
        self.assertIn(b"3 values", run(*encode).stderr)
        result = run("encode", "--force", self.source, self.path("m.tw"), TERSEWIRE_VERBOSE="true")
        self.assertIn(b"3 values", result.stderr)
        refused = run("codecs", TERSEWIRE_QUIET="perhaps")
        self.assert_refused(refused, 2, "TERSEWIRE_QUIET", "perhaps")
        self.assert_done(run("codecs", TERSEWIRE_QUIET="true"))

    def test_config_says_where_each_comes_from(self):
        file = self.write("config.json", b'{"deadline": 60, "verbose": true}')
        variables = {"TERSEWIRE_CONFIG": file, "TERSEWIRE_THREADS": "3"}
        result = run("config", "--json", **variables)
        self.assert_done(result)
        found = {(row["option"], row["command"]): (row["value"], row["from"])
                 for row in json.loads(result.stdout)}  # fmt: skip
        expected = {
            ("quiet", "every command"): ("false", "built in"),
            ("verbose", "decode"): ("true", file),
            ("threads", "encode"): ("3", "TERSEWIRE_THREADS"),
            ("codec", "encode"): ("3lc", "built in"),
        }
        if b"  train " in run("--help").stdout:
            expected |= {
                ("deadline", "train"): ("60", file),
                ("progress-limit", "train"): ("3600", "built in"),
                ("threads", "train"): ("3", "TERSEWIRE_THREADS"),
            }
        self.assertEqual({key: found.get(key) for key in expected}, expected)
        lines = run("config", **variables).stdout.decode().splitlines()
        self.assertEqual(len(lines), len(found))
        self.assertTrue(any("--threads" in line and "TERSEWIRE_THREADS" in line for line in lines))

    def test_refused(self):
        out = self.path("m.tw")
        cases = [
            ({"TERSEWIRE_THREADS": "010"}, "TERSEWIRE_THREADS", "octal"),
            ({"TERSEWIRE_THREADS": ""}, "TERSEWIRE_THREADS"),
            ({"TERSEWIRE_CODEC": "4lc"}, "TERSEWIRE_CODEC: unknown codec '4lc'"),
            ({"TERSEWIRE_CODEC": "auto"}, "TERSEWIRE_CODEC: unknown codec 'auto'"),
            (b'{"codec": 5}', "'codec': unknown codec '5'"),
            (b"{", "JSON object"),
            (b"[1]", "JSON object"),
            (b'{"thread": 4}', "'thread'", "did you mean 'threads'"),
            (b'{"threads": [4]}', "'threads'", "a number"),
            (b'{"threads": -4}', "'threads'", "-4"),
            (b'{"seed": 4}', "unknown setting 'seed'; use quiet, verbose, codec, threads"),
            (b'{"threads": 4, "threads": 4}', "'threads' is given twice"),
            (b'{"codec": "int8\\u0000"}', "'codec'", "NUL"),
            (b" " * 70000, "64 KiB"),
        ]
        for given, *words in cases:
            with self.subTest(given=given):
                if isinstance(given, bytes):
                    given = {"TERSEWIRE_CONFIG": self.write("bad.json", given)}
                    words.append("bad.json")
                self.assert_refused(run("encode", self.source, out, **given), 2, *words)
        missing = {"TERSEWIRE_CONFIG": self.path("missing.json")}
        self.assert_refused(run("codecs", **missing), 2, "missing.json", "have TERSEWIRE_CONFIG name another")
        self.assert_refused(run("codecs", TERSEWIRE_CONFIG="/dev/null/x"), 1, "/dev/null/x cannot be read")
        self.assert_refused(run("config", TERSEWIRE_THREADS="abc"), 2, "TERSEWIRE_THREADS", "abc")
        file = self.write("codec.json", b'{"codec": "nope"}')
        self.assert_refused(run("config", TERSEWIRE_CONFIG=file), 2, f"{file}, 'codec': unknown codec 'nope'")
        if b"  train " in run("--help").stdout:
            self.assert_done(run("config", TERSEWIRE_CODEC="auto"))  # which train takes


if __name__ == "__main__":
    program.main(__doc__)
