#!/usr/bin/python3
"""Tests of the program `tersewire` from outside, and against the reference reader and writer.

    command_line_test.py PATH_TO_TERSEWIRE
"""

import json
import math
import os
import pathlib
import pty
import resource
import signal
import struct
import subprocess
import sys

sys.dont_write_bytecode = True

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "spec")]

import program
import reference_decoder as decoder
import reference_encoder as encoder
from arrays import DESCRS, ArrayTest, floats, heavy_tailed, npy, read_npy
from program import ProgramTest, run, run_all


def resealed(message, position, replacement):
    """The message with bytes exchanged and a checksum that fits."""
    message = message[:position] + replacement + message[position + len(replacement) :]
    return encoder.sealed(message[:20], [message[28:]])


class RoundTrip(ArrayTest):
    SHAPES = [(), (0,), (1,), (7,), (2, 3, 4)]

    def round_trip(self, files, codec):
        """The decoded arrays and the messages of several .npy files."""
        paths = [self.write(f"{i}.npy", content) for i, content in enumerate(files)]
        for result in run_all([("encode", "--codec", codec, p, p + ".tw") for p in paths]):
            self.assert_done(result)
        for result in run_all([("decode", p + ".tw", p + ".back") for p in paths]):
            self.assert_done(result)
        return [(read_npy(self.read(p + ".back")), self.read(p + ".tw")) for p in paths]

    def test_fp32_gives_back_what_it_got(self):
        values = heavy_tailed(self.random, 24)
        files = [npy(values, (2, 3, 4)), npy(floats(struct.pack("<7f", *values[:7])), (7,), "d")]
        for content, (back, _) in zip(files, self.round_trip(files, "fp32")):
            self.assertEqual(back, read_npy(content))

    def test_3lc_gives_back_shape_type_and_the_reference_values(self):
        cases = [("f", shape) for shape in self.SHAPES] + [("d", (2, 0, 4)), ("d", (2, 3, 4))]
        arrays = [heavy_tailed(self.random, math.prod(shape)) for _, shape in cases]
        files = [npy(values, shape, code) for values, (code, shape) in zip(arrays, cases)]
        for (code, shape), (back, message) in zip(cases, self.round_trip(files, "3lc:s=1.75")):
            with self.subTest(code=code, shape=shape):
                _, decoded = decoder.decode_message(message)
                values = floats(decoded[0].values)
                expected = struct.pack(f"<{len(values)}{code}", *values)
                self.assertEqual(back, (DESCRS[code], shape, expected))

    def test_values_that_are_not_finite_come_back_bit_for_bit(self):
        # A quiet NaN with a payload, a signalling one, infinity, -0 and a denormal.
        raw = struct.pack("<6I", 0x7FC12345, 0xFFA00001, 0x7F800000, 0x80000000, 1, 0x3F800000)
        self.write("in.npy", npy(raw, (6,)))
        self.write("one.npy", npy([1.0] * 6, (6,)))
        encode = ("encode", "--codec", "3lc:s=1.5", "--state", self.path("state"))
        self.assert_done(run(*encode, self.path("one.npy"), self.path("one.tw")))
        state = self.read("state")
        self.assert_done(run(*encode, self.path("in.npy"), self.path("m.tw")))
        self.assert_done(run("decode", self.path("m.tw"), self.path("back.npy")))
        self.assertEqual(read_npy(self.read("back.npy")), ("<f4", (6,), raw))
        self.assertEqual(self.read("state"), state)
        described = json.loads(run("inspect", "--json", self.path("m.tw")).stdout)
        self.assertEqual((described["codec"], described["not_finite"]), ("fp32", True))

    def test_other_forms_of_npy(self):
        values = [1.0, -2.0, 3.0]
        forms = [npy(values, (3,), version=2), npy(values, (3,), version=3)]
        forms.append(npy(values, (3,), order="True"))
        for back, _ in self.round_trip(forms, "fp32"):
            self.assertEqual(back, ("<f4", (3,), struct.pack("<3f", *values)))


class Reference(ArrayTest):
    """Both writers write the same bytes, over several steps, and nothing is lost on the way."""

    CODECS = {
        "3lc": [],
        "3lc:s=1.75,block=64": ["--s", "1.75", "--block", "64"],
        "3lc:lead=1": ["--lead", "1"],
        "3lc:mode=paper,s=1.75": ["--mode", "paper", "--s", "1.75"],
        "3lc:mode=paper,s=1.9,layout=partitions,long-runs=on":
            "--mode paper --s 1.9 --layout partitions --long-runs on".split(),
        "3lc:mode=paper,zre=off": ["--mode", "paper", "--zre", "off"],
        "adacomp:lead=3": ["--codec", "adacomp:lead=3"],
    }
    STEPS = 3
    ELEMS = 2003

    def take_step(self, values):
        """The values that each codec sent; both writers wrote the same messages and states."""
        array = self.write("in.npy", npy(values, (self.ELEMS,)))
        self.write("in.f32", struct.pack(f"<{self.ELEMS}f", *values))
        commands = [
            ("encode", "--force", "--threads", 2, "--codec", codec,
             "--state", self.path(f"{i}.state"))
            + (array, self.path(f"{i}.tw"))
            for i, codec in enumerate(self.CODECS)
        ]
        for result in run_all(commands):
            self.assert_done(result)
        return [self.same_sent(i, options) for i, options in enumerate(self.CODECS.values())]

    def same_sent(self, i, options):
        state, out = self.path("reference.state") + str(i), self.path("reference.tw")
        arguments = ["--state", state, "--dims", str(self.ELEMS), self.path("in.f32"), out]
        self.assertEqual(encoder.main(options + arguments), 0)
        self.assertEqual(self.read(f"{i}.tw"), self.read("reference.tw"))
        self.assertEqual(self.read(f"{i}.state"), self.read(state))
        return floats(decoder.decode_message(self.read(f"{i}.tw"))[1][0].values)

    def test_same_bytes_and_nothing_lost(self):
        wanted = [0.0] * self.ELEMS
        sent = [[0.0] * self.ELEMS for _ in self.CODECS]
        for _ in range(self.STEPS):
            values = heavy_tailed(self.random, self.ELEMS)
            wanted = [a + b for a, b in zip(wanted, values)]
            step = self.take_step(values)
            sent = [[a + b for a, b in zip(*pair)] for pair in zip(sent, step)]
        for i, codec in enumerate(self.CODECS):
            with self.subTest(codec=codec):
                residual = decoder.decode_message(self.read(f"{i}.state"))[1][0].values
                for s, r, w in zip(sent[i], floats(residual), wanted):
                    self.assertAlmostEqual(s + r, w, delta=1e-6)

    def test_one_array_alone_has_no_lead(self):
        for codec in ("3lc", "3lc:s=1.75", "topk", "adacomp", "dryden", "local-selection", "mqe1bit",
                      "signsgd"):  # fmt: skip
            with self.subTest(codec=codec):
                message = self.encoded([1.5], (1,), codec=codec)
                self.assertEqual(floats(decoder.decode_message(message)[1][0].values), (1.5,))
        twice = self.encoded([1.5], (1,), codec="topk:lead=2")
        self.assertEqual(floats(decoder.decode_message(twice)[1][0].values), (3.0,))

    def test_f64_and_more_dimensions(self):
        values = floats(struct.pack("<12f", *heavy_tailed(self.random, 12)))
        message = self.encoded(values, (3, 1, 4), "d")
        self.write("in.f32", struct.pack("<12f", *values))
        arguments = ["--dims", "3,1,4", "--dtype", "f64", self.path("in.f32"), self.path("r.tw")]
        self.assertEqual(encoder.main(arguments), 0)
        self.assertEqual(message, self.read("r.tw"))

    def test_bits_from_a_gradient(self):
        values = heavy_tailed(self.random, 700)
        gradient = self.write("g.npy", npy([6.0] * 700, (700,)))
        source = self.write("in.npy", npy(values, (700,), "d"))
        codec = ("--codec", "oland-raj:bits-from=gradient")
        self.assert_done(run("encode", *codec, "--gradient", gradient, source, self.path("m.tw")))
        self.write("in.f64", struct.pack("<700d", *values))
        self.write("g.f32", struct.pack("<700f", *[6.0] * 700))
        arguments = [*codec, "--gradient", self.path("g.f32"), "--dims", "700", "--dtype", "f64"]
        self.assertEqual(encoder.main([*arguments, self.path("in.f64"), self.path("r.tw")]), 0)
        self.assertEqual(self.read("m.tw"), self.read("r.tw"))
        shorter = self.write("g.npy", npy([6.0] * 699, (699,)))
        result = run("encode", "--force", *codec, "--gradient", shorter, source, self.path("m.tw"))
        self.assert_refused(result, 1, "g.npy", "699")


class Inspect(ArrayTest):
    def inspect(self, content):
        result = run("inspect", "--json", self.write("m.tw", content))
        self.assert_done(result)
        return json.loads(result.stdout)

    def test_a_file(self):
        message = self.encoded(heavy_tailed(self.random, 700), (7, 100), "d", "3lc:s=1.75")
        described = self.inspect(message)
        expected = {
            "kind": "file",
            "sender": 0,
            "step": 0,
            "codec": "3lc",
            "elems": 700,
            "shape": [7, 100],
            "dtype": "float64",
            "wire_bytes": len(message),
            "bits_per_value": len(message) * 8 / 700,
            "compression_ratio": 2800 / len(message),
            "not_finite": False,
            "payload_bytes": len(decoder.parse_message(message).frames[0].payload),
        }
        self.assertEqual({key: described[key] for key in expected}, expected)
        parameters = described["parameters"]
        (m,) = struct.unpack_from("<f", decoder.parse_message(message).frames[0].payload)
        self.assertEqual(struct.pack("<f", parameters.pop("m")), struct.pack("<f", m))
        self.assertEqual(
            parameters, {"mode": "blocks", "s": 1.75}
        )
        self.assertEqual(len(described["frames"]), 1)

    def test_an_empty_array(self):
        described = self.inspect(self.encoded([], (0, 3)))
        self.assertEqual((described["elems"], described["bits_per_value"]), (0, None))

    def test_other_messages(self):
        three_lc = encoder.three_lc
        payload = three_lc.payload(0.5, 1.0, [0, 1, 2], three_lc.LAYOUT_ZERO_RUNS)
        bitmap = encoder.contributors_payload([0, 2], 3)
        frames = [encoder.frame(4, encoder.codecs.THREE_LC, payload)]
        frames.append(encoder.frame(5, 0, bitmap))
        frames.append(encoder.frame(5, encoder.FP32, encoder.fp32_payload([1.0, 2.0])))
        described = self.inspect(encoder.message(decoder.PULL, 3, 17, frames))
        self.assertEqual([described[k] for k in ("kind", "sender", "step")], ["pull", 3, 17])
        first, second, third = described["frames"]
        self.assertEqual((first["codec"], first["elems"], first["tensor"]), ("3lc", None, 4))
        self.assertEqual(second["contributors"], [0, 2])
        self.assertEqual((third["codec"], third["elems"]), ("fp32", 2))

    def test_plain_text(self):
        self.encoded([1.0, 2.0], (2,))
        result = run("inspect", self.path("m.tw"))
        self.assert_done(result)
        self.assertIn(b"3lc", result.stdout)


class DamagedMessages(ArrayTest):
    def refuse_all(self, messages, *words):
        """Decoding each of them fails and leaves an older output alone."""
        commands = []
        for i, message in enumerate(messages):
            self.write(f"{i}.npy", b"older")
            commands.append(
                ("decode", "--force", self.write(f"{i}.tw", message), self.path(f"{i}.npy"))
            )
        for i, result in enumerate(run_all(commands)):
            with self.subTest(i=i, message=messages[i][:64].hex()):
                self.assert_refused(result, 1, f"{i}.tw", *words)
                self.assertEqual(self.read(f"{i}.npy"), b"older")

    def test_damage(self):
        message = self.encoded(heavy_tailed(self.random, 500), (500,))
        cut = [message[:n] for n in (0, 27, 28, len(message) - 1)]
        longer = [message + b"\0", message + message]
        flipped = []
        for position in (0, 3, 9, 17, 20, 28, 33, 40, len(message) - 1):
            bit = 1 << self.random.randrange(8)
            flipped.append(
                message[:position] + bytes([message[position] ^ bit]) + message[position + 1 :]
            )
        self.refuse_all(cut + longer + flipped)

    def test_foreign_files(self):
        message = self.encoded([1.0], (1,))
        self.refuse_all([message[:2] + b"\x03" + message[3:]], "version 3")
        self.refuse_all([b"\x89PNG" + bytes(100), self.read("in.npy")], "TW")

    def test_a_file_is_named_once(self):
        # One that is opened and cannot be read, and one whose name begins the sentence.
        self.write("it", b"\x89PNG" + bytes(100))
        for file, sentence in (("/proc/self/mem", "/proc/self/mem cannot be read"),
                               ("it", "it: it does not begin with")):  # fmt: skip
            for command in (["decode", file, "out.npy"], ["inspect", file]):
                with self.subTest(command=command):
                    result = run(*command, cwd=self.directory)
                    self.assert_refused(result, 1, f"tersewire: {sentence}")

    def test_damage_under_a_fitting_checksum(self):
        message = self.encoded(heavy_tailed(self.random, 500), (500,), codec="3lc:mode=paper,zre=off")
        # The last group, and the byte of the layout.
        payload = len(message) - 109
        damaged = [
            resealed(message, len(message) - 1, b"\xf3"),
            resealed(message, payload + 8, b"\xff"),
        ]
        self.refuse_all(damaged)
        self.assert_refused(run("inspect", self.write("bad.tw", damaged[0])), 1, "bad.tw")

    def test_a_few_bytes_that_stand_for_too_much(self):
        elems = 2**40
        groups = (elems + 4) // 5
        payload = struct.pack("<ffB", 1, 1, 6) + b"\xff" + encoder.varint(groups - 14)
        frame = encoder.frame(
            0, encoder.codecs.THREE_LC, payload, encoder.description(encoder.TYPE_F32, [elems])
        )
        self.refuse_all([encoder.message(decoder.FILE, 0, 0, [frame])], "memory")

    def test_a_state_is_no_array(self):
        frame = encoder.frame(
            0, encoder.FP32, bytes(4), encoder.description(encoder.TYPE_F32, [1])
        )
        self.refuse_all([encoder.message(decoder.STATE, 0, 0, [frame])], "inspect")


class BadArrays(ProgramTest):
    def test_refused(self):
        good = npy([1.0, 2.0], (2,))
        cases = [
            (b"no array", "numpy.save"),
            (good[:-1], "bytes"),
            (good + b"\0", "bytes"),
            (good[:30], "header"),
            (npy(bytes(8), (2,), descr="<i4"), "astype"),
            (npy(bytes(8), (2,), descr=">f4"), "big-endian"),
            (npy([0.0] * 4, (2, 2), order="True"), "ascontiguousarray"),
            (npy([1e300], (1,), "d"), "1e+300"),
            (npy(b"", (2**40, 2**40)), "2^40"),
        ]
        commands = []
        for i, (content, _) in enumerate(cases):
            commands.append(("encode", self.write(f"{i}.npy", content), self.path("m.tw")))
        for i, result in enumerate(run_all(commands)):
            with self.subTest(i=i):
                self.assert_refused(result, 1, f"{i}.npy", cases[i][1])
        self.assertFalse(os.path.exists(self.path("m.tw")))

    def test_not_finite_where_that_is_to_be_an_error(self):
        source = self.write("in.npy", npy([1.0, math.nan], (2,)))
        result = run("encode", "--codec", "3lc:non-finite=reject", source, self.path("m.tw"))
        self.assert_refused(result, 1, "in.npy", "NaN")
        self.assert_files("in.npy")


class Files(ArrayTest):
    def test_what_cannot_be_read_or_written(self):
        source = self.write("in.npy", npy([1.0, 2.0], (2,)))
        os.mkdir(self.path("folder"))
        out, folder = self.path("m.tw"), self.path("folder")
        cases = [
            (("encode", self.path("missing.npy"), out), "missing.npy"),
            (("encode", folder, out), "folder"),
            (("encode", source, folder), "folder"),
            (("encode", source, self.path("none/m.tw")), "none/m.tw"),
            (("inspect", "/dev/zero"), "/dev/zero"),
            (("encode", "--state", self.path("none/s"), source, out), "none/s"),
            (("encode", "--state", self.path("s"), source, "/dev/full"), "/dev/full"),
        ]
        for (_, word), result in zip(cases, run_all([command for command, _ in cases])):
            with self.subTest(word=word):
                self.assert_refused(result, 1, word)
        self.assert_files("in.npy", "folder")
        with open("/dev/full", "wb") as full:
            result = run("codecs", stdout=full)
        self.assert_refused(result, 1, "standard output", "No space")

    def test_a_closed_pipe_ends_quietly(self):
        reader, writer = os.pipe()
        os.close(reader)
        with open(writer, "wb") as pipe:
            result = run("codecs", stdout=pipe)
        self.assertEqual((result.returncode, result.stderr), (-signal.SIGPIPE, b""))

    def test_an_array_for_a_closed_pipe_ends_quietly(self):
        source = self.write("in.npy", npy([1.0] * 100000, (100000,)))
        self.assert_done(run("encode", source, self.path("m.tw")))
        for command in (("encode", "--codec", "fp32", source, "-"), ("decode", self.path("m.tw"), "-")):
            with self.subTest(command=command[0]):
                reader, writer = os.pipe()
                os.close(reader)
                with open(writer, "wb") as pipe:
                    result = run(*command, stdout=pipe)
                self.assertEqual((result.returncode, result.stderr), (-signal.SIGPIPE, b""))

    def test_no_colours_on_a_terminal(self):
        for variables in ({}, {"NO_COLOR": "1"}):
            with self.subTest(variables=variables):
                terminal, end = pty.openpty()
                self.assertEqual(run("--help", stdout=end, **variables).returncode, 0)
                os.close(end)
                shown = os.read(terminal, 1 << 16)
                os.close(terminal)
                self.assertIn(b"Usage:", shown)
                self.assertNotIn(b"\x1b", shown)

    def test_no_room_for_one_of_two_files(self):
        values = heavy_tailed(self.random, 2000)
        source = self.write("in.npy", npy(values, (2000,)))
        state, out = self.path("s"), self.path("m.tw")
        encode = ("encode", "--force", "--state", state, source, out)
        self.assert_done(run(*encode))
        before = self.read("s"), self.read("m.tw")

        def limit_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

        self.assert_refused(run(*encode, preexec_fn=limit_files), 1, state, "room")
        self.assertEqual((self.read("s"), self.read("m.tw")), before)
        result = run("decode", out, self.path("back.npy"), preexec_fn=limit_files)
        self.assert_refused(result, 1, "back.npy", "room")
        self.assert_files("in.npy", "s", "m.tw")

    def test_a_link_is_followed_and_permissions_stay(self):
        source = self.write("in.npy", npy([1.0, 2.0], (2,)))
        os.chmod(self.write("real.tw", b"older"), 0o640)
        os.symlink("real.tw", self.path("link.tw"))
        self.assert_done(run("encode", "--force", source, self.path("link.tw")))
        self.assertTrue(os.path.islink(self.path("link.tw")))
        self.assertEqual(os.stat(self.path("real.tw")).st_mode & 0o777, 0o640)
        self.assertEqual(self.read("real.tw")[:2], b"TW")
        os.symlink("later.tw", self.path("nowhere.tw"))
        self.assert_done(run("encode", source, self.path("nowhere.tw")))
        self.assertTrue(os.path.islink(self.path("nowhere.tw")))
        self.assertEqual(self.read("later.tw")[:2], b"TW")

    def test_what_exists_is_not_overwritten(self):
        source = self.write("in.npy", npy([1.0, 2.0], (2,)))
        older = self.write("m.tw", b"older")
        self.assert_refused(run("encode", source, older), 1, "m.tw exists", "--force")
        self.assertEqual(self.read("m.tw"), b"older")
        self.assert_done(run("encode", "--force", source, older))
        self.assert_refused(run("decode", older, source), 1, "in.npy exists", "--force")
        self.assert_done(run("encode", source, "/dev/null"))

    def test_streams(self):
        content = npy([1.0, -2.0, 3.0], (3,), "d")
        encoded = run("encode", "--codec", "fp32", "-", "-", stdin=content)
        self.assert_done(encoded)
        self.assertEqual(encoded.stdout[:2], b"TW")
        decoded = run("decode", "-", "-", stdin=encoded.stdout)
        self.assert_done(decoded)
        self.assertEqual(read_npy(decoded.stdout), read_npy(content))
        self.assert_refused(run("encode", "-", "-", stdin=b"no array"), 1, "standard input:")
        self.assert_refused(run("decode", "-", "-", stdin=encoded.stdout[:-1]), 1, "standard input:")
        with open("/dev/full", "wb") as full:
            result = run("encode", "-", "-", stdin=content, stdout=full)
        self.assert_refused(result, 1, "standard output", "room")
        self.assert_files()

    def test_many_files(self):
        paths = [self.write(f"{i}.npy", npy([float(i)] * 9, (9,))) for i in range(5)]
        out, back = self.path("out"), self.path("back")
        result = run("encode", "--codec", "fp32", "--verbose", "--out-dir", out, *paths)
        self.assertEqual((result.returncode, result.stdout), (0, b""), result)
        self.assertEqual(len(result.stderr.splitlines()), 5)
        self.assertEqual(sorted(os.listdir(out)), [f"{i}.tw" for i in range(5)])
        encoded = [os.path.join(out, name) for name in os.listdir(out)]
        self.assert_done(run("decode", "--out-dir", back, *encoded))
        for path in paths:
            self.assertEqual(self.read(os.path.join("back", os.path.basename(path))),
                             self.read(path))
        self.assert_refused(run("encode", "--out-dir", out, *paths), 1, "0.tw exists")
        missing = run("encode", "--out-dir", self.path("none"), paths[0], self.path("missing.npy"))
        self.assert_refused(missing, 1, "missing.npy")
        self.assertFalse(os.path.exists(self.path("none")))
        os.mkdir(self.path("other"))
        twin = self.write("other/0.npy", b"")
        usage = [
            (("encode", "--out-dir", out, paths[0], twin), "would both become"),
            (("encode", "--out-dir", out), "name at least one IN.npy"),
            (("encode", "--out-dir", out, "-"), "standard input"),
            (("encode", *paths), "not 5"),
            (("encode", "--force", "--state", self.path("s"), "--out-dir", out, *paths),
             "one array"),
        ]
        for (_, word), result in zip(usage, run_all([command for command, _ in usage])):
            with self.subTest(word=word):
                self.assert_refused(result, 2, word)


class States(ProgramTest):
    def state(self, values, kind=None):
        described = encoder.description(encoder.TYPE_F32, [len(values)])
        frame = encoder.frame(0, encoder.FP32, encoder.fp32_payload(values), described)
        return encoder.message(kind or decoder.STATE, 0, 0, [frame])

    def test_refused(self):
        source = self.write("in.npy", npy([1.0, 2.0], (2,)))
        states = [
            (self.state([1.0, 2.0, 3.0]), "shape (3)"),
            (self.state([1.0, math.inf]), "finite"),
            (self.state([1.0, 2.0], decoder.FILE), "state"),
            (self.state([1.0, 2.0])[:-1], "checksum"),
        ]
        commands = []
        for i, (content, _) in enumerate(states):
            commands.append(
                ("encode", "--state", self.write(f"{i}.tw", content), source, self.path("m.tw"))
            )
        for i, result in enumerate(run_all(commands)):
            with self.subTest(i=i):
                self.assert_refused(result, 1, f"{i}.tw", states[i][1])
                self.assertEqual(self.read(f"{i}.tw"), states[i][0])
        self.assertFalse(os.path.exists(self.path("m.tw")))

    def test_an_empty_array_has_one(self):
        source = self.write("in.npy", npy([], (0,)))
        for _ in range(2):
            self.assert_done(
                run("encode", "--force", "--state", self.path("s"), source, self.path("m.tw"))
            )
        self.assertEqual(self.read("s"), self.state([]))


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
            (("bench", "exchange", "--workers", "010"), "octal"),
            (("bench", "exchange", "--servers", "01"), "octal"),
            (("encode", "--codec", "3lc:block=-64", source, out), "whole number"),
            (("encode", "--codec", "qsgd:levels=" + "1" * 26, source, out), "whole number"),
            (("encode", "--codec", "3lc:s=1e999", source, out), "'1e999'"),
            (("trian",), "did you mean train?"),
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
        self.assert_refused(run("help", "trian"), 2, "unknown command 'trian'", "did you mean train?")
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

    def test_bench_in_parts(self):
        options = "--codec 3lc:mode=paper,zre=off --elems 5000 --rounds 1 --warm-up 0 --target best --threads 2 --json".split()
        bits = {}
        for part_values in ("whole", "5000", "1000", "1"):
            result = run("bench", "codecs", *options, "--part-values", part_values)
            self.assert_done(result)
            bits[part_values] = json.loads(result.stdout)[0]["bits_per_value"]
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
        if b"train" in run("--help").stdout:
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
            ({"TERSEWIRE_CODEC": "4lc"}, "4lc"),
            (b"{", "JSON object"),
            (b"[1]", "JSON object"),
            (b'{"thread": 4}', "'thread'", "did you mean 'threads'"),
            (b'{"threads": [4]}', "'threads'", "a number"),
            (b'{"threads": -4}', "'threads'", "-4"),
            (b'{"seed": 4}', "'seed'"),
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
        self.assert_refused(run("codecs", **missing), 2, "missing.json", "TERSEWIRE_CONFIG")
        self.assert_refused(run("codecs", TERSEWIRE_CONFIG="/dev/null/x"), 1, "/dev/null/x cannot be read")
        self.assert_refused(run("config", TERSEWIRE_THREADS="abc"), 2, "TERSEWIRE_THREADS", "abc")


if __name__ == "__main__":
    program.main(__doc__)
