#!/usr/bin/python3
"""Tests of the program `tersewire` from outside, and against the reference reader and writer.

    command_line_test.py PATH_TO_TERSEWIRE PATH_TO_SOURCE_DIR

Arrays are written by hand, so that nothing but Python is needed.
"""

import json
import math
import os
import pty
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

sys.dont_write_bytecode = True

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import mpi_launcher

PROGRAM = None
decoder = None  # spec/reference_decoder.py
encoder = None  # spec/reference_encoder.py

SEED = 20191
SIZES = {"f": 4, "d": 8}
DESCRS = {"f": "<f4", "d": "<f8"}


def npy(values, shape, code="f", descr=None, order="False", version=1):
    """An .npy file; code is struct's letter for the values."""
    descr = descr or DESCRS[code]
    dims = "".join(f"{dim}," for dim in shape)
    header = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({dims}), }}".encode()
    head = 10 if version == 1 else 12
    header += b" " * (-(head + len(header) + 1) % 64) + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    data = values if isinstance(values, bytes) else struct.pack(f"<{len(values)}{code}", *values)
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + data


def read_npy(data):
    """(descr, shape, raw values) of a file of version 1.0."""
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    (length,) = struct.unpack_from("<H", data, 8)
    assert (10 + length) % 64 == 0 and data[9 + length : 10 + length] == b"\n"
    header = eval(data[10 : 10 + length], {"__builtins__": {}})
    assert header["fortran_order"] is False
    return header["descr"], header["shape"], data[10 + length :]


# Without defaults of whoever runs the tests.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith("TERSEWIRE_")} | {"TERSEWIRE_CONFIG": ""}  # fmt: skip


def run(*arguments, stdin=b"", stdout=subprocess.PIPE, preexec_fn=None, **variables):
    return subprocess.run(
        [PROGRAM, *map(str, arguments)],
        input=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        timeout=120,
        preexec_fn=preexec_fn,
        env={**ENVIRONMENT, **variables},
        check=False,
    )


def run_all(commands):
    with ThreadPoolExecutor(max_workers=2) as pool:
        return list(pool.map(lambda command: run(*command), commands))


def heavy_tailed(random_numbers, n):
    return [random_numbers.gauss(0, 1) ** 3 * 1e-3 for _ in range(n)]


def floats(raw):
    return struct.unpack(f"<{len(raw) // 4}f", raw)


def resealed(message, position, replacement):
    """The message with bytes exchanged and a checksum that fits."""
    message = message[:position] + replacement + message[position + len(replacement) :]
    return encoder.sealed(message[:20], [message[28:]])


class CommandLineTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        self.random = random.Random(SEED)

    def path(self, name):
        return os.path.join(self.directory, name)

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content)
        return self.path(name)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def assert_done(self, result):
        self.assertEqual((result.returncode, result.stderr), (0, b""), result)

    def assert_refused(self, result, code, *words):
        """One sentence on stderr that holds all words, and nothing on stdout."""
        lines = result.stderr.decode().splitlines()
        self.assertEqual(result.returncode, code, result)
        self.assertEqual(len(lines), 1, result)
        self.assertTrue(lines[0].startswith("tersewire: "), result)
        self.assertFalse(result.stdout, result)
        for word in words:
            self.assertIn(word, lines[0])

    def assert_files(self, *names):
        """Nothing else was left behind, temporary files in particular."""
        self.assertEqual(sorted(os.listdir(self.directory)), sorted(names))

    def encoded(self, values, shape, code="f", codec="3lc", name="m.tw"):
        self.write("in.npy", npy(values, shape, code))
        encode = ("encode", "--force", "--codec", codec)
        self.assert_done(run(*encode, self.path("in.npy"), self.path(name)))
        return self.read(name)


class RoundTrip(CommandLineTest):
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


class Reference(CommandLineTest):
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


class Inspect(CommandLineTest):
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


class DamagedMessages(CommandLineTest):
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
                    result = subprocess.run([PROGRAM, *command], cwd=self.directory, check=False,
                                            capture_output=True, env=ENVIRONMENT)  # fmt: skip
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


class BadArrays(CommandLineTest):
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


class Files(CommandLineTest):
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
            (("encode", "--out-dir", out), "name one IN.npy"),
            (("encode", "--out-dir", out, "-"), "standard input"),
            (("encode", *paths), "not 5"),
            (("encode", "--force", "--state", self.path("s"), "--out-dir", out, *paths), "one at a"),
        ]
        for (_, word), result in zip(usage, run_all([command for command, _ in usage])):
            with self.subTest(word=word):
                self.assert_refused(result, 2, word)


class States(CommandLineTest):
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


class Usage(CommandLineTest):
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
            (("encode", "--gradient", source, source, out), "leave --gradient out"),
            (("encode", "--codec", "oland-raj:bits-from=gradient", "--gradient", "-", "-", out),
             "both be standard input"),
            (("encode", "--state", "-", source, out), "a state is read and written"),
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


class Defaults(CommandLineTest):
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
        variables = {name: value for name, value in ENVIRONMENT.items()
                     if name not in ("TERSEWIRE_CONFIG", "XDG_CONFIG_HOME")}  # fmt: skip
        for more, codec in (({}, "int8"), ({"XDG_CONFIG_HOME": self.path("xdg")}, "fp16"),
                            ({"XDG_CONFIG_HOME": self.path("none")}, "3lc")):  # fmt: skip
            with self.subTest(codec=codec):
                command = [PROGRAM, "encode", "--force", self.source, self.path("m.tw")]
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
            (b'{"threads": 4, "threads": 4}', "'threads' is there twice"),
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


class Train(CommandLineTest):
    JOB = "--model mlp --workers 2 --batch 8 --codec 3lc:s=1.5".split()
    RING = "--model mlp --workers 3 --batch 8 --codec int8 --exchange ring".split()
    KEYS = """test_accuracy final_loss steps exchange workers servers push_bits_per_value pull_bits_per_value
        push_bytes pull_bytes compression_ratio step_seconds waited
        parameters_checksum""".split()

    def setUp(self):
        super().setUp()
        if b"train" not in run("--help").stdout:
            self.skipTest("this build has no trainer")

    def train(self, name, *arguments, job=None, **variables):
        return run("train", *(job or self.JOB), "--out", self.path(name), "--json", *arguments,
                   **variables)  # fmt: skip

    def test_defaults_stand_behind_a_recipe_and_change_no_run_that_goes_on(self):
        job = "--model mlp --workers 1 --batch 8 --steps 4 --quiet".split()
        variables = {"TERSEWIRE_CODEC": "int8", "TERSEWIRE_CHECKPOINT_STEPS": "2"}

        def config(name):
            return json.loads(self.read(name + "/config.json"))

        self.assertEqual(self.train("plain", job=job, **variables).returncode, 0)
        self.assertEqual((config("plain")["push_codec"], config("plain")["checkpoint_steps"]),
                         ("int8", 2))  # fmt: skip
        recipe = self.write("own.ini", b"push-codec = fp16\n")
        result = self.train("recipe", "--recipe", recipe, job=job, **variables)
        self.assertEqual(result.returncode, 0, result)
        self.assertEqual(config("recipe")["push_codec"], "fp16")
        os.remove(self.path("plain/summary.json"))
        again = run("train", "--resume", self.path("plain"), "--quiet", TERSEWIRE_CODEC="fp16")
        self.assertEqual(again.returncode, 0, again)
        self.assertEqual(config("plain")["push_codec"], "int8")
        compared = run("compare", "--designs", "fp32", "--steps", "1", "--set", "model=mlp", "--set",
                       "workers=1", "--set", "batch=1", "--out", self.path("compared"), **variables)
        self.assertEqual(compared.returncode, 0, compared)
        (cell,) = os.listdir(self.path("compared/cells"))
        self.assertEqual(config(f"compared/cells/{cell}")["checkpoint_steps"], 0)

    def test_libtorch_is_loaded_by_what_trains_alone(self):
        def libraries(program):
            return subprocess.run(["ldd", program], capture_output=True, check=True).stdout

        self.assertNotIn(b"libtorch", libraries(PROGRAM))
        self.assertIn(b"libtorch", libraries(PROGRAM + "-train"))

    def test_what_trains_must_lie_beside_the_program(self):
        alone = self.path("tersewire")
        shutil.copy(PROGRAM, alone)
        result = subprocess.run([alone, "train", "--steps", "1"], capture_output=True, check=False)
        self.assert_refused(result, 1, self.path("tersewire-train"), "No such file")

    def test_quiet_says_the_result_alone(self):
        result = self.train("run", "--steps", "12", "--quiet")
        self.assert_done(result)
        self.assertEqual(json.loads(result.stdout)["steps"], 12)
        result = run("train", "--quiet", "--model", "none")
        self.assert_refused(result, 2, "none")

    def test_json_is_the_summary_alone(self):
        result = self.train("run", "--steps", "12")
        self.assertEqual(result.returncode, 0, result)
        summary = json.loads(result.stdout)
        self.assertLessEqual(set(self.KEYS), set(summary))
        self.assertEqual((summary["steps"], summary["workers"]), (12, 2))
        self.assertGreater(summary["compression_ratio"], 10)
        self.assertTrue(0 <= summary["waited"] <= 1, summary)
        # Plain lines where there is no terminal.
        self.assertIn(b"step 12/12", result.stderr)
        self.assertFalse([c for c in result.stderr if c < 32 and c != 10], result.stderr)

    def test_a_run_leaves_its_record(self):
        summary = json.loads(self.train("run", "--steps", "12").stdout)
        self.assertEqual(
            sorted(os.listdir(self.path("run"))),
            ["config.json", "metrics.jsonl", "model.safetensors", "summary.json"],
        )
        self.assertEqual(json.loads(self.read("run/config.json"))["push_codec"], "3lc:s=1.5")
        lines = self.read("run/metrics.jsonl").splitlines()
        self.assertEqual([json.loads(line)["step"] for line in lines], list(range(1, 13)))
        self.assertEqual(json.loads(self.read("run/summary.json")), summary)
        again = json.loads(self.train("again", "--steps", "12").stdout)
        self.assertEqual(again["parameters_checksum"], summary["parameters_checksum"])

    def assert_kept_its_record(self, name):
        self.assertEqual(
            sorted(os.listdir(self.path(name))),
            ["config.json", "metrics.jsonl", "model.safetensors", "summary.json"],
        )
        self.assertEqual(json.loads(self.read(name + "/summary.json"))["steps"], 12)

    def test_a_run_whose_output_fails_keeps_its_record(self):
        command = ("train", *self.JOB, "--steps", "12", "--out")
        with open("/dev/full", "wb") as full:
            result = run(*command, self.path("full"), "--json", stdout=full)
        self.assertEqual(result.returncode, 1, result)
        self.assertIn(b"tersewire: standard output", result.stderr.splitlines()[-1])
        self.assert_kept_its_record("full")
        # As `train 2>&1 | head -1`: both streams go to a reader that leaves after a line.
        reader, writer = os.pipe()
        with subprocess.Popen([PROGRAM, *command, self.path("pipe")], stdin=subprocess.DEVNULL,
                              stdout=writer, stderr=writer) as process:
            os.close(writer)
            with open(reader, "rb", buffering=0) as lines:
                lines.readline()
            self.assertEqual(process.wait(timeout=120), -signal.SIGPIPE)
        self.assert_kept_its_record("pipe")

    def test_a_run_that_diverges_says_so_and_fails(self):
        arguments = ("--steps", "20", "--lr", "1e30")
        result = self.train("run", *arguments)
        self.assertEqual(result.returncode, 1, result)
        summary = json.loads(result.stdout)
        self.assertEqual(json.loads(self.read("run/summary.json")), summary)
        step = summary["diverged_step"]
        self.assertTrue(1 <= step <= summary["steps"] < 20, summary)
        self.assertIn(f"not a finite number in step {step}:".encode(), result.stderr)
        self.assertIn(b"--keep-going", result.stderr.splitlines()[-1])
        result = run("train", *self.JOB, *arguments, "--keep-going", "--out", self.path("on"))
        self.assertEqual(result.returncode, 0, result)
        summary = json.loads(self.read("on/summary.json"))
        self.assertEqual((summary["diverged_step"], summary["steps"]), (step, 20))
        self.assertIn(f"Diverged at step {step}: the loss is not a finite number.".encode(),
                      result.stdout)
        self.assertNotIn(b"saved", result.stdout.replace(b"was saved", b""))

    def test_raw_from_all(self):
        plain = json.loads(self.train("plain", "--steps", "6").stdout)
        raw = json.loads(self.train("raw", "--steps", "6", "--raw-from-all").stdout)
        self.assertEqual(raw["parameters_checksum"], plain["parameters_checksum"])
        self.assertGreater(raw["push_bytes"], plain["push_bytes"])  # what workers tell each other
        self.assertTrue(json.loads(self.read("raw/config.json"))["raw_from_all"])
        refused = self.train("none", "--raw-from-all", "--backup-workers", "1")
        self.assert_refused(refused, 2, "use 0 backup workers")

    def test_local_updates(self):
        summary = json.loads(self.train("plain", "--steps", "12", "--local-updates", "5").stdout)
        self.assertEqual(summary["validation_loss"], summary["test_loss"])
        config = json.loads(self.read("plain/config.json"))
        self.assertEqual([config["local_updates"], config["outer"]],
                         [5, "sgd:lr=1"])
        other = json.loads(self.train("other", "--steps", "12", "--local-updates", "5", "--outer",
                                      "nesterov").stdout)
        self.assertNotEqual(other["parameters_checksum"], summary["parameters_checksum"])
        self.assertEqual(json.loads(self.read("other/config.json"))["outer"], "nesterov")
        self.train("rare", "--steps", "10", "--local-updates", "10")
        self.assertEqual(json.loads(self.read("rare/config.json"))["outer"],
                         "nesterov:lr=1,momentum=0.5")
        for arguments, word in [
            (["--local-updates", "5", "--local-steps", "2"], "use one of the two"),
            (["--outer", "sgd:lr=1"], "give it local updates"),
            (["--local-updates", "5", "--outer", "adam"], "'adam'"),
            (["--local-updates", "5", "--outer", "sgd:lr=none"], "'none'"),
            (["--local-updates", "-1"], "--local-updates"),
            (["--fragments", "2"], "this job makes none"),
            (["--local-updates", "5", "--fragments", "2"], "fragments divide"),
            (["--local-updates", "6", "--fragments", "2", "--delay", "3"], "a turn has 3"),
            (["--local-updates", "6", "--mix", "1"], "a mix of 1"),
            (["--local-updates", "2000", "--fragments", "2000"], "no more than"),
            (["--local-updates", "5", "--exchange", "weight-average"], "every=5"),
        ]:
            with self.subTest(arguments=arguments):
                self.assert_refused(self.train("none", *arguments), 2, word)

    def test_fragments_take_turns(self):
        turns = ["--steps", "12", "--local-updates", "6", "--fragments", "3", "--delay", "1"]
        summary = json.loads(self.train("turns", *turns, "--mix", "0").stdout)
        config = json.loads(self.read("turns/config.json"))
        self.assertEqual([config["fragments"], config["delay"], config["mix"]], [3, 1, 0])
        whole = json.loads(self.train("whole", "--steps", "12", "--local-updates", "6").stdout)
        self.assertNotEqual(whole["parameters_checksum"], summary["parameters_checksum"])
        self.assert_refused(self.train("none", *turns), 2, "codec 3lc keeps in a residual")

    def test_a_dry_run_changes_nothing_and_says_what_codecs_would_save(self):
        job = ["--model", "mlp", "--workers", "2", "--batch", "8"]
        twelve = ["train", *job, "--steps", "12", "--json"]
        plain = json.loads(run(*twelve, "--codec", "fp32", "--out", self.path("plain")).stdout)
        dry = run(*twelve, "--dry", "3lc,adacomp:bin=50,lead=1,int8", "--link", "20mbit,5ms", "--out",
                  self.path("dry"))
        summary = json.loads(dry.stdout)
        self.assertEqual(summary["parameters_checksum"], plain["parameters_checksum"])
        self.assertEqual(summary["push_bytes"], plain["push_bytes"])
        found = json.loads(self.read("dry/dry.json"))
        self.assertEqual((found["rate_bits_per_second"], found["latency_seconds"]), (2e7, 0.005))
        codecs = {row["codec"]: row for row in found["codecs"]}
        self.assertEqual(list(codecs), ["3lc", "adacomp:bin=50,lead=1", "int8"])
        self.assertTrue(0.5 < codecs["3lc"]["bits_per_value"] < 2, codecs)
        self.assertTrue(8 <= codecs["int8"]["bits_per_value"] < 9, codecs)
        self.assertTrue(0 < codecs["int8"]["error"] < 0.1 < codecs["3lc"]["error"], codecs)
        self.assertEqual(len(found["tensors"]), 3 * len({row["tensor"] for row in found["tensors"]}))
        self.assertTrue(all(row["looks"] >= 1 for row in found["tensors"]), found)
        # Unless a codec is asked for, the run sends fp32.
        shown = run("train", *job, "--steps", "6", "--dry", "3lc", "--out", self.path("shown"))
        self.assertEqual(json.loads(self.read("shown/config.json"))["push_codec"], "fp32")
        self.assertRegex(shown.stdout.decode(), r"(?s)Dry run, [\d.]+ % of the time:\ncodec .*\n3lc .*"
                         r"With parameter-server at 100mbit: (Take|Nothing)")
        few = run("train", *job, "--steps", "1", "--dry", "3lc", "--out", self.path("few"))
        self.assertRegex(few.stdout, rb"Tensor \S+ was not looked at: take \d+ steps or more\.")
        weights = run("train", *job, "--dry", "3lc", "--exchange", "weight-average", "--out",
                      self.path("none"))
        self.assert_refused(weights, 2, "a dry run looks at gradients")
        for arguments, word in [
            (["--dry", "3lc,nope"], "unknown codec 'nope'"),
            (["--dry", "3lc", "--local-updates", "5"], "a dry run looks at gradients"),
            (["--dry", "3lc", "--link", "fast"], "'fast' is not a rate"),
        ]:
            with self.subTest(arguments=arguments):
                self.assert_refused(self.train("none", *arguments), 2, word)

    def test_staleness(self):
        plain = json.loads(self.train("plain", "--steps", "12").stdout)
        # Where states are saved workers meet, and so this is lock-step.
        met = json.loads(self.train("met", "--steps", "12", "--staleness", "2",
                                    "--checkpoint-steps", "1").stdout)
        self.assertEqual(met["parameters_checksum"], plain["parameters_checksum"])
        config = json.loads(self.read("met/config.json"))
        self.assertEqual([config[key] for key in ("staleness", "asynchronous", "stale_weight")],
                         [2, False, "none"])
        free = json.loads(self.train("free", "--steps", "12", "--asynchronous", "--stale-weight",
                                     "inverse", "--compute-ms", "5", "--slowest", "3").stdout)
        self.assertEqual(free["steps"], 12)
        spared = json.loads(self.train("spared", "--steps", "12", "--staleness", "3",
                                       "--backup-workers", "1", "--checkpoint-steps", "1").stdout)
        self.assertEqual(spared["parameters_checksum"], plain["parameters_checksum"])
        self.assertEqual(json.loads(self.read("free/config.json"))["stale_weight"], "inverse")
        for arguments, word in [
            (["--staleness", "2", "--asynchronous"], "use one of the two"),
            (["--staleness", "2", "--backup-workers", "9"], "cannot be backups"),
            (["--staleness", "2", "--local-updates", "5"], "use one of the two"),
            (["--asynchronous", "--exchange", "all-gather"], "waits for every worker"),
            (["--asynchronous", "--raw-from-all"], "use staleness 0"),
            (["--stale-weight", "inverse"], "no gradient is stale"),
            (["--stale-weight", "half", "--asynchronous"], "half"),
            (["--staleness", "-1"], "--staleness"),
            (["--slowest", "3"], "use --compute-ms"),
        ]:
            with self.subTest(arguments=arguments):
                self.assert_refused(self.train("none", *arguments), 2, word)

    def test_the_moving_average_is_what_was_tested(self):
        result = run("train", *self.JOB, "--steps", "12", "--ema", "0.9", "--out", self.path("run"))
        self.assertIn(b"moving average of the parameters (decay 0.9)", result.stdout)
        self.assertEqual(json.loads(self.read("run/config.json"))["ema"], 0.9)
        averaged = json.loads(self.read("run/summary.json"))
        self.assertEqual(averaged["measured_values"], "their moving average")
        plain = json.loads(self.train("plain", "--steps", "12").stdout)
        self.assertEqual(plain["measured_values"], "the last")
        self.assertEqual(plain["parameters_checksum"], averaged["parameters_checksum"])

    def test_an_interrupt_ends_with_what_was_measured(self):
        command = [PROGRAM, "train", *self.JOB, "--steps", "1000000", "--json", "--out"]
        with subprocess.Popen(
            [*command, self.path("run")], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            metrics = self.path("run/metrics.jsonl")
            while process.poll() is None and not (
                os.path.exists(metrics) and os.path.getsize(metrics) > 0
            ):
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=60)
        summary = json.loads(output)
        self.assertEqual((process.returncode, summary["interrupted"]), (130, True))
        (sentence,) = [line for line in errors.splitlines() if line.startswith(b"tersewire: ")]
        self.assertIn(b"SIGINT ended the run after step", sentence)
        self.assertIn(b"--checkpoint-steps", sentence)
        self.assertEqual(len(self.read("run/metrics.jsonl").splitlines()), summary["steps"])

    def over_mpi(self, ranks, *arguments, job=None):
        """The same over processes."""
        alone = self.train("alone", "--transport", "mpi")
        if b"unknown transport 'mpi'" in alone.stderr:
            self.skipTest("this build has no MPI")
        self.assert_refused(alone, 1, "mpirun -n NODES")
        if not mpi_launcher.launcher():
            self.skipTest("there is no mpirun here")
        command = mpi_launcher.command(
            ranks, PROGRAM, "train", *(job or self.JOB), "--transport", "mpi", "--json", *arguments
        )
        with mpi_launcher.environment() as variables:
            return subprocess.run(
                command,
                env=variables,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=120,
                check=False,
            )

    def test_processes_come_to_the_same_as_threads(self):
        cases = [
            (4, [*self.JOB, "--servers", "2", "--optimizer", "adam", "--ema", "0.9"]),
            (3, [*self.JOB, "--exchange", "gradient-server"]),
            (3, self.RING),
            (2, [*self.JOB, "--servers", "colocated", "--local-steps", "4"]),
            (3, [*self.JOB, "--local-updates", "4", "--outer", "sgd:lr=1", "--fragments", "2",
                 "--delay", "1", "--mix", "0"]),
        ]
        for i, (ranks, job) in enumerate(cases):
            with self.subTest(job=job):
                name = f"mpi{i}"
                steps = ("--steps", "12")
                over_mpi = self.over_mpi(ranks, "--out", self.path(name), *steps, job=job)
                self.assertEqual(over_mpi.returncode, 0, over_mpi)
                self.assertEqual(over_mpi.stderr.count(b"step 12/12"), 1, over_mpi)
                threads = json.loads(self.train(f"threads{i}", *steps, job=job).stdout)
                summary = json.loads(over_mpi.stdout)
                for key in ["parameters_checksum", "final_loss", "test_accuracy", "push_bytes"]:
                    self.assertEqual(summary[key], threads[key], key)
                self.assertEqual(json.loads(self.read(f"{name}/summary.json")), summary)
                self.assertEqual(os.listdir(self.directory).count(name), 1)

    def test_a_job_without_servers(self):
        result = run("train", *self.RING, "--steps", "5", "--out", self.path("run"))
        self.assertEqual(result.returncode, 0, result)
        self.assertIn(b"5 steps of 3 workers, ring:", result.stdout)
        self.assertIn(b"replica of worker 0", result.stdout)
        self.assertNotIn(b"server", result.stdout)
        summary = json.loads(self.read("run/summary.json"))
        found = [summary[key] for key in ["exchange", "servers", "push_codec", "pull_codec"]]
        self.assertEqual(found, ["ring", 0, "int8", None])
        self.assertEqual(json.loads(self.read("run/config.json"))["servers"], 0)

    def test_what_all_processes_refuse_is_said_once(self):
        os.mkdir(self.path("full"))
        self.write("full/file", b"")
        cases = [
            (2, 2, "2 workers and 1 servers need 3 processes, and 2 were started", self.JOB),
            (2, 2, "3 workers need 3 processes, and 2 were started", self.RING),
            (3, 1, "full exists and is not an empty directory", self.JOB),
        ]
        for ranks, code, sentence, job in cases:
            with self.subTest(sentence=sentence):
                refused = self.over_mpi(ranks, "--out", self.path("full"), job=job)
                self.assertEqual(refused.returncode, code, refused)
                self.assertEqual(refused.stderr.count(b"tersewire: "), 1, refused)
                self.assertIn(sentence.encode(), refused.stderr)
                self.assertNotIn(b"tersewire", refused.stdout)

    def test_what_cannot_fit_into_memory_is_refused(self):
        def limit_memory():
            resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))

        # LeNet-300-100's kin of 0.4 million values: parameters, gradients, residuals, Adam's two.
        job = "--model mlp --workers 1024 --batch 1 --exchange all-gather --optimizer adam".split()
        result = run("train", *job, "--out", self.path("run"), preexec_fn=limit_memory)
        self.assert_refused(result, 1, "1024 workers with mlp and all-gather take", "GB")
        self.assert_files()

    def test_what_is_said_to_fit_takes_about_what_is_said(self):
        job = "--model hdc --batch 1 --steps 2 --exchange all-gather".split()

        def peak(workers):
            """Of a run's memory, in bytes."""
            command = [PROGRAM, "train", *job, "--workers", str(workers), "--threads", "1"]
            out = self.path(f"run{workers}")
            with subprocess.Popen([*command, "--out", out], stdout=subprocess.DEVNULL,
                                  env=ENVIRONMENT) as process:
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 0)
            return usage.ru_maxrss * 1024

        def limit_memory():
            resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))

        refused = run("train", *job, "--workers", "1024", "--out", self.path("none"),
                      preexec_fn=limit_memory)
        self.assert_refused(refused, 1, "1024 workers with hdc and all-gather take")
        said = float(re.search(rb"take ([0-9.]+) GB", refused.stderr)[1]) * 1e9 / 1024
        each = (peak(36) - peak(4)) / 32
        self.assertGreater(each, 0.8 * said)
        self.assertLess(each, 1.5 * said)

    def test_more_workers_than_cores_take_turns(self):
        job = "--model mlp --workers 330 --batch 1 --steps 2 --codec int8".split()
        result = self.train("run", job=job)
        self.assertEqual(result.returncode, 0, result)
        self.assertNotIn(b"OpenBLAS", result.stderr)

    def test_a_launcher_without_its_transport_is_noticed(self):
        self.over_mpi(1, "--out", self.path("none"))  # whether there is one at all
        command = [PROGRAM, "train", *self.JOB, "--steps", "2"]
        with mpi_launcher.environment() as variables:
            refused = subprocess.run(
                [*mpi_launcher.command(3), *command, "--out", self.path("run")],
                env=variables, stdin=subprocess.DEVNULL, capture_output=True, timeout=120,
                check=False,
            )  # fmt: skip
        self.assertEqual(refused.returncode, 2, refused)
        self.assertEqual(refused.stderr.count(b"tersewire: "), 1, refused)
        self.assertIn(b"3 processes were started", refused.stderr)
        self.assertIn(b"--transport mpi", refused.stderr)
        self.assertFalse(os.path.exists(self.path("run")))
        alone = subprocess.run(
            [*command, "--transport", "in-process", "--out", self.path("meant")],
            env={**os.environ, "PMI_SIZE": "3", "PMI_RANK": "1"}, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        self.assertEqual(alone.returncode, 0, alone)

    def test_processes_that_were_started_differently_are_refused(self):
        server = [PROGRAM, "train", *self.JOB, "--transport", "mpi", "--seed", "2"]
        refused = self.over_mpi(2, "--out", self.path("run"), ":", "-n", "1", *server)
        self.assertEqual(refused.returncode, 1, refused)
        self.assertIn(b"rank 2 was started with other arguments", refused.stderr)
        self.assertFalse(os.path.exists(self.path("run")), "it stands in the way of the next")

    def test_refused(self):
        os.mkdir(self.path("full"))
        self.write("full/file", b"")
        os.mkdir(self.path("empty"))
        cases = [
            (2, "3lc:s=16", ("--codec", "3lc:s=16")),
            (2, "matches none", ("--policy", "kind=norm:fp32")),
            (2, "unknown model", ("--model", "vgg")),
            (2, "9 servers", ("--servers", "9", "--part-values", "whole")),
            (2, "epochs", ("--epochs", "nan")),
            (2, "parameter-server, gradient-server", ("--exchange", "relay")),
            (2, "3lc does not fit", ("--exchange", "ring")),
            (2, "no servers", ("--exchange", "all-gather", "--servers", "1")),
            (2, "negative", ("--seed", "-1")),
            (2, "octal", ("--workers", "010")),
            (2, "octal", ("--part-values", "010")),
            (2, "too large", ("--seed", "1" * 26)),
            (2, "not a finite number", ("--lr", "1e999")),
            (2, "unknown recipe 'nope'; 'tersewire", ("--recipe", "nope")),
            (2, "momentum", ("--momentum", "nan")),
            (2, "use constant, cosine", ("--schedule", "linear")),
            (2, "sgd, nesterov, adam or adamw", ("--optimizer", "rmsprop")),
            (2, "warm-up of 2 steps", ("--warm-up", "2")),
            (2, "unknown augmentation", ("--augment", "sideways")),
            (2, "is text", ("--augment", "crop-flip", "--data", "embedded-text")),
            (2, "takes samples of", ("--data", "embedded-text")),
            (1, "embedded", ("--data", self.path("empty"))),
            (1, "full", ("--out", self.path("full"))),
            (1, "in.npy", ("--out", self.write("in.npy", b""))),
            (1, "in.npy", ("--out", self.path("new"), "--tensorboard", self.path("in.npy"))),
        ]
        commands = [("train", "--steps", "1", *arguments) for _, _, arguments in cases]
        commands[4] = ("train", *cases[4][2])
        for (code, word, _), result in zip(cases, run_all(commands)):
            with self.subTest(word=word):
                self.assert_refused(result, code, word)
        self.assert_files("empty", "full", "in.npy")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    sys.path.insert(0, os.path.join(sys.argv.pop(1), "spec"))
    import reference_decoder as decoder
    import reference_encoder as encoder

    unittest.main()
