#!/usr/bin/python3
"""Tests of the reference reader and writer, of messages and 3lc, and of the vectors.
test_payloads.py has the tests of the other payloads.

    python3 spec/test_reference.py
"""

import contextlib
import io
import json
import math
import os
import random
import struct
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import make_vectors
import reference_decoder as decoder
import reference_encoder as encoder
from reference import three_lc
from reference.codecs import ADACOMP, BF16, FP16, THREE_LC
from reference.cursor import EXPANSION_LIMIT
from reference.floats import LARGEST_F32 as LARGEST
from reference.floats import f32
from reference.groups import ZERO_GROUP

PAPER = ["--mode", "paper"]  # 3lc as published
SETTINGS = [
    ("neighbours", "off"),
    ("neighbours", "on"),
    ("partitions", "off"),
    ("partitions", "on"),
]


def stored_message(name):
    return bytes.fromhex(make_vectors.stored_vectors("accepted")[name]["hex"])


def with_one_nan(values):
    """Values in hex, every NaN as the same one."""
    return "".join(
        struct.pack("<f", math.nan if math.isnan(value) else value).hex()
        for value in unpacked(bytes.fromhex(values))
    )


def unpacked(raw):
    return struct.unpack(f"<{len(raw) // 4}f", raw)


def run_quietly(main, arguments):
    """(exit status, stdout, stderr) of one of the two command lines."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(arguments)
        except SystemExit as exit_request:
            status = exit_request.code
    return status, out.getvalue(), err.getvalue()


class Xxh64(unittest.TestCase):
    def test_known_answers(self):
        self.assertEqual(decoder.xxh64(b""), 0xEF46DB3751D8E999)
        self.assertEqual(decoder.xxh64(b"a"), 0xD24EC4F1A98C6E5B)
        self.assertEqual(decoder.xxh64(b"abc"), 0x44BC2CF5AD770999)

    def test_known_answers_with_stripes(self):
        # Computed with xxHash's own library; 32 bytes and more take stripes.
        data = bytes(range(101))
        for length, seed, answer in STRIPE_ANSWERS:
            self.assertEqual(decoder.xxh64(data[:length], seed), answer)


STRIPE_ANSWERS = [
    (4, 0, 0xFFCED8604453CC1E),
    (8, 0, 0x884A173614B81B8D),
    (31, 0, 0xC346D2B59B4D8EE1),
    (32, 0, 0xCBF59C5116FF32B4),
    (33, 0, 0x0C535D1ACAFB8EAD),
    (63, 1, 0x5264EC0719E10595),
    (64, 0, 0xF7C67301DB6713F0),
    (101, 0, 0xE99038495F85381E),
    (101, 2**64 - 1, 0x49B1A7087BCDB7BE),
]


def f32_with_struct(value):
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


class Rounding(unittest.TestCase):
    def test_both_ways_of_rounding_agree(self):
        generator = random.Random(1)
        values = [0.0, -0.0, math.inf, -math.inf, LARGEST, 2.0 * LARGEST, -2.0 * LARGEST]
        values += [2.0**-149, 2.0**-150, 1.5 * 2.0**-150, 1.5 * 2.0**-149, 1 + 2.0**-24]
        values += [LARGEST * (1 + 2.0**-25), LARGEST * (1 + 2.0**-26)]
        for _ in range(2000):
            values.append(math.ldexp(generator.uniform(-1, 1), generator.randrange(-152, 130)))
        for value in values:
            other = f32_with_struct(value)
            self.assertEqual(struct.pack("<d", f32(value)), struct.pack("<d", other))


class Vectors(unittest.TestCase):
    def test_regenerating_gives_the_same_bytes(self):
        stored, made = make_vectors.stored_files(), make_vectors.all_vectors()
        self.assertEqual(sorted(stored), sorted(made))
        for path, data in made.items():
            self.assertEqual(stored[path], data, path)

    def test_accepted(self):
        vectors = make_vectors.stored_vectors("accepted")
        self.assertGreater(len(vectors), 50)
        for name, vector in vectors.items():
            with self.subTest(name):
                self.check_accepted(vector)

    def check_accepted(self, vector):
        expected = {key: value for key, value in vector.items() if key not in ("name", "hex")}
        elems = {f["tensor"]: f["elems"] for f in expected["frames"] if f["elems"] is not None}
        workers = expected["workers"]
        message, decoded = decoder.decode_message(bytes.fromhex(vector["hex"]), elems, workers)
        adds = [frame.pop("add") for frame in expected["frames"]]
        made = decoder.as_json(message, decoded, workers)
        for described in made["frames"] + expected["frames"]:
            if described["codec"] in (FP16, BF16):
                described["values"] = with_one_nan(described["values"])
        self.assertEqual(made, expected)
        for frame, add in zip(message.frames, adds):
            if add is not None:
                self.check_add(frame, elems, add)

    def check_add(self, frame, elems, add):
        (weight,) = unpacked(bytes.fromhex(add["weight"]))
        result = decoder.decode_add(bytes.fromhex(add["into"]), frame, weight, elems)
        self.assertEqual(result.hex(), add["result"])

    def test_rejected(self):
        vectors = make_vectors.stored_vectors("rejected")
        self.assertGreater(len(vectors), 500)
        for name, vector in vectors.items():
            with self.subTest(name):
                data = bytes.fromhex(vector["hex"])
                with self.assertRaises(decoder.Rejected) as caught:
                    decoder.decode_message(data, vector["elems"], vector["workers"])
                self.assertRegex(str(caught.exception), r"at offset \d+\.$")

    def test_only_what_is_named_wrong_is_wrong(self):
        """Magic, version and checksum are right unless the vector is about them."""
        accepted = make_vectors.stored_vectors("accepted")
        rejected = make_vectors.stored_vectors("rejected")
        for name, vector in [*accepted.items(), *rejected.items()]:
            # Files of several messages have several checksums.
            if name.startswith(("header-", "magic-", "version-", "parts-", "file-twice")):
                continue
            data = bytes.fromhex(vector["hex"])
            right = decoder.xxh64(data[:20] + data[28:]) == int.from_bytes(data[20:28], "little")
            self.assertEqual(right, not name.startswith("checksum-"), name)

    def test_every_cut_is_rejected(self):
        """Also with the checksum put right."""
        data = stored_message("contributors-3-workers")
        elems = {0: 2, 1: 2, 300: 6}
        decoder.decode_message(data, elems, 3)
        for length in range(len(data)):
            with self.assertRaises(decoder.Rejected):
                decoder.decode_message(data[:length], elems, 3)
            if length >= 28:
                cut = encoder.sealed(data[:20], [data[28:length]])
                with self.assertRaises(decoder.Rejected):
                    decoder.decode_message(cut, elems, 3)

    def test_every_flipped_bit_is_rejected(self):
        data = stored_message("file-partitions-zre")
        for bit in range(8 * len(data)):
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            with self.assertRaises(decoder.Rejected):
                decoder.decode_message(bytes(flipped))


class RoundTrip(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def encode(self, raw, dims, *options):
        self.write("in.f32", raw)
        arguments = [*options, f"--dims={dims}", self.path("in.f32"), self.path("out.tw")]
        return run_quietly(encoder.main, arguments)

    def encoded(self, raw, dims, *options):
        status, _, errors = self.encode(raw, dims, *options)
        self.assertEqual((status, errors), (0, ""))
        return decoder.decode_message(self.read("out.tw"))

    def random_raw(self, generator, count):
        exponent = generator.choice([-149, -126, -20, 0, 100])
        zeros = generator.random()
        values = [
            0.0 if generator.random() < zeros else generator.gauss(0, 1) * 2.0**exponent
            for _ in range(count)
        ]
        return struct.pack(f"<{count}f", *values)

    def test_random_steps(self):
        generator = random.Random(20190331)
        for _ in range(150):
            layout, zre = generator.choice(SETTINGS)
            count = generator.choice([0, 1, 4, 5, 6, 70, 71, generator.randrange(400)])
            s = generator.choice(["1", "1.3", "1.75", "1.99"])
            self.check_steps(generator, count, s, layout, zre)

    def check_steps(self, generator, count, s, layout, zre):
        state = self.path("state.tw")
        if os.path.exists(state):
            os.remove(state)
        options = [*PAPER, "--s", s, "--layout", layout, "--zre", zre]
        residual = bytes(4 * count)
        for _ in range(2):
            raw = self.random_raw(generator, count)
            _, decoded = self.encoded(raw, count, *options, "--state", state)
            after = self.state_values(count)
            self.check_step(raw, residual, decoded[0].values, after, f32(float(s)))
            residual = after

    def state_values(self, count):
        message, decoded = decoder.decode_message(self.read("state.tw"))
        self.assertEqual((message.kind, message.sender, message.step), (decoder.STATE, 0, 0))
        self.assertEqual(message.frames[0].description.dims, [count])
        return decoded[0].values

    def check_step(self, raw, before, values, after, s):
        """Nothing is lost, and every value is the nearest of -m, 0 and m."""
        total = [f32(r + v) for r, v in zip(unpacked(before), unpacked(raw))]
        m = min(f32(max(map(abs, total), default=0) * s), LARGEST)
        for t, value, rest in zip(total, unpacked(values), unpacked(after)):
            self.assertEqual(value + rest, t)  # exact, although it is summed in f64
            self.assertIn(abs(value), (0.0, m))
            self.assertLessEqual(2 * abs(rest), m)

    def test_overflowing_m_is_the_largest_f32(self):
        raw = encoder.fp32_payload([LARGEST, -LARGEST / 4, -LARGEST])
        _, decoded = self.encoded(raw, 3, *PAPER, "--s", "1.75", "--state", self.path("state.tw"))
        self.assertEqual(unpacked(decoded[0].values), (LARGEST, 0.0, -LARGEST))
        self.assertEqual(unpacked(self.state_values(3)), (0.0, -LARGEST / 4, 0.0))

    def test_all_zero_digits_are_one(self):
        self.encoded(encoder.fp32_payload([0.0, -0.0]), 2, *PAPER, "--zre", "off")
        self.assertEqual(self.read("out.tw")[-1], ZERO_GROUP)

    def test_exactly_half_of_m_is_not_zero(self):
        _, decoded = self.encoded(encoder.fp32_payload([1.0, -0.5, 0.25]), 3, *PAPER, "--s", "1")
        self.assertEqual(unpacked(decoded[0].values), (1.0, -1.0, 0.0))

    def test_not_finite_leaves_the_residual(self):
        state = self.path("state.tw")
        self.encoded(encoder.fp32_payload([1.0, 0.25]), 2, *PAPER, "--s", "1.5", "--state", state)
        before = self.read("state.tw")
        raw = b"\x01\0\xa0\x7f" + encoder.fp32_payload([-math.inf])
        message, decoded = self.encoded(raw, 2, *PAPER, "--s", "1.5", "--state", state)
        self.assertEqual(message.frames[0].codec, decoder.FP32)
        self.assertEqual(message.frames[0].flags, 3)
        self.assertEqual(decoded[0].values, raw)
        self.assertEqual(self.read("state.tw"), before)

    def test_overflowing_sum_is_not_finite(self):
        # The second value becomes 0 and so stays in the residual.
        raw = encoder.fp32_payload([LARGEST, -0.49 * LARGEST])
        self.encoded(raw, 2, *PAPER, "--s", "1", "--state", self.path("state.tw"))
        before = self.read("state.tw")
        raw = encoder.fp32_payload([0.0, -LARGEST])
        message, decoded = self.encoded(raw, 2, *PAPER, "--s", "1", "--state", self.path("state.tw"))
        self.assertEqual(message.frames[0].flags, 3)
        self.assertEqual(decoded[0].values, raw)
        self.assertEqual(self.read("state.tw"), before)

    def test_fp32_and_f64(self):
        raw = encoder.fp32_payload([0.5])
        message, decoded = self.encoded(raw, "", "--codec", "fp32", "--dtype", "f64")
        self.assertEqual(message.frames[0].description, decoder.Description(2, []))
        self.assertEqual(decoded[0].values, raw)

    def test_parts_are_arrays_of_their_own(self):
        raw = self.random_raw(random.Random(7), 22)
        state = self.path("state.tw")
        options = [*PAPER, "--s", "1.5", "--part-values", "8", "--state", state]
        for step in range(2):
            message, decoded = self.encoded(raw, "2,11", *options)
            self.assertEqual([frame.part for frame in message.frames], [0, 1, 2])
            for part, values in enumerate(decoded):
                piece = raw[32 * part : 32 * part + 32]
                alone_state = self.path(f"{part}.state")
                alone = [*PAPER, "--s", "1.5", "--state", alone_state]
                _, expected = self.encoded(piece, len(piece) // 4, *alone)
                self.assertEqual(values.values, expected[0].values, (step, part))
        whole = b"".join(part.values for part in decoder.decode_message(self.read("state.tw"))[1])
        alone = b"".join(
            decoder.decode_message(self.read(f"{part}.state"))[1][0].values for part in range(3)
        )
        self.assertEqual(whole, alone)

    def test_an_array_of_one_part_is_not_cut(self):
        raw = encoder.fp32_payload([1.0, -1.0, 0.5, 2.0])
        self.encoded(raw, 4)
        whole = self.read("out.tw")
        for part_values in ("4", "8"):
            self.encoded(raw, 4, "--part-values", part_values)
            self.assertEqual(self.read("out.tw"), whole)

    def test_wrong_usage_of_the_encoder(self):
        raw = encoder.fp32_payload([0.5, 1.0])
        self.assertEqual(self.encode(raw, 3)[0], 2)
        self.assertEqual(self.encode(raw, 2, *PAPER, "--s", "2")[0], 2)
        self.assertEqual(self.encode(raw, "-2")[0], 2)
        for part_values in ("0", "2", "-4", "whole"):
            self.assertEqual(self.encode(raw, 2, "--part-values", part_values)[0], 2)
        self.write("state.tw", raw)
        self.assertEqual(self.encode(raw, 2, "--state", self.path("state.tw"))[0], 2)

    def test_command_line_of_the_decoder(self):
        self.encoded(encoder.fp32_payload([1.0, -1.0]), 2, *PAPER, "--s", "1")
        status, output, _ = run_quietly(decoder.main, [self.path("out.tw"), "--json"])
        self.assertEqual(status, 0)
        frame = json.loads(output)["frames"][0]
        self.assertEqual(frame["values"], "0000803f000080bf")
        self.assertEqual(frame["description"], {"type": 1, "dims": [2]})
        self.assertEqual(run_quietly(decoder.main, [self.path("out.tw")])[0], 0)

        self.write("bad.tw", self.read("out.tw") + b"\0")
        status, output, errors = run_quietly(decoder.main, [self.path("bad.tw")])
        self.assertEqual((status, output), (1, ""))
        length = len(self.read("out.tw"))
        self.assertEqual(errors, f"There are 1 bytes after the last part, at offset {length}.\n")
        self.assertEqual(run_quietly(decoder.main, [self.path("missing.tw")])[0], 2)

    def test_elems_and_workers_on_the_command_line(self):
        self.write("in.tw", stored_message("contributors-3-workers"))
        for options, status in [
            (["--elems", "2", "--elems", "300=6", "--workers", "3"], 0),
            (["--elems", "2", "--elems", "300=6"], 2),
            (["--elems", "300=6", "--workers", "3"], 2),
            (["--elems", "2", "--workers", "3"], 1),
            (["--elems", "many"], 2),
        ]:
            self.assertEqual(run_quietly(decoder.main, [self.path("in.tw"), *options])[0], status, options)


class Speed(unittest.TestCase):
    def test_100000_elements_of_3lc(self):
        digits = [(index * index) % 3 for index in range(100_000)]
        payload = three_lc.payload(1.5, 1.75, digits, three_lc.LAYOUT_ZERO_RUNS)
        data = encoder.message(decoder.PUSH, 0, 0, [encoder.frame(0, THREE_LC, payload)])
        start = time.process_time()
        _, decoded = decoder.decode_message(data, 100_000)
        self.assertLess(time.process_time() - start, 5)  # about 0.1 s of the processor's
        expected = struct.pack("<100000f", *[1.5 * (digit - 1) for digit in digits])
        self.assertEqual(decoded[0].values, expected)


class Limits(unittest.TestCase):
    def check_too_large(self, codec, payload, elems):
        frame = encoder.frame(0, codec, payload, encoder.description(1, [elems]))
        with self.assertRaises(decoder.TooLarge):
            decoder.decode_message(encoder.message(decoder.PUSH, 0, 0, [frame]))

    def test_a_huge_tensor_is_not_expanded(self):
        nothing_sent = encoder.fp32_payload([0.0]) + bytes(2)
        self.check_too_large(ADACOMP, nothing_sent, 2**40)

    def test_zero_runs_of_a_huge_tensor_are_not_expanded(self):
        runs = EXPANSION_LIMIT // 70 + 1
        header = three_lc.header(0.0, 1.0, three_lc.LAYOUT_ZERO_RUNS)
        self.check_too_large(THREE_LC, header + b"\xff" * runs, 70 * runs)


if __name__ == "__main__":
    unittest.main()
