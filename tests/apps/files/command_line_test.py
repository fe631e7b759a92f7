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
        "3lc:mode=paper,s=1.9,layout=partitions":
            "--mode paper --s 1.9 --layout partitions".split(),
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
        self.refuse_all(cut + longer, "; use another copy of it")
        self.assert_refused(run("inspect", self.path("3.tw")), 1, "; use another copy of it")
        self.refuse_all(flipped)

    def test_foreign_files(self):
        message = self.encoded([1.0], (1,))
        self.refuse_all([message[:2] + b"\x03" + message[3:]], "version 3", "use the release of tersewire that made it")
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
        nothing_sent = struct.pack("<f", 0) + bytes(2)
        frame = encoder.frame(
            0, encoder.codecs.ADACOMP, nothing_sent, encoder.description(encoder.TYPE_F32, [2**40])
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

    def test_too_many_open_files(self):
        def allow_few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))

        source = self.write("in.npy", npy([1.0, 2.0], (2,)))
        result = run("encode", source, self.path("m.tw"), preexec_fn=allow_few)
        self.assert_refused(result, 1, "m.tw", "raise the limit of open files")

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
            (self.state([1.0, 2.0])[:-1], "or remove it to begin without a residual"),
            (b"", "it has 0 bytes, and the shortest message has 28; use another copy of it"),
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


if __name__ == "__main__":
    program.main(__doc__)
