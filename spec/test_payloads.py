#!/usr/bin/python3
"""Tests of the reference payloads: numbers worked out elsewhere or by hand, and properties.

    python3 spec/test_payloads.py
"""

import heapq
import math
import os
import random
import struct
import sys
import tempfile
import unittest
from fractions import Fraction

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import reference_decoder as decoder
import reference_encoder as encoder
from reference import (
    codecs,
    huffman,
    oland_raj,
    positions,
    sums,
    ternary,
    three_lc_blocks,
    topk,
)
from reference.cursor import Rejected
from reference.floats import (
    LARGEST_F32,
    LARGEST_SCALE,
    bytes_of_floats,
    f32,
    float_of,
    floats_of_bytes,
    scaling,
)
from reference.options import BadCodecText, Refused
from reference.random_numbers import Draws, philox
from reference.task import Task

SEED = 20260801
WRITERS = [codec for codec in codecs.CODECS if codec.encode]


def heavy_tailed(generator, n):
    return [f32(generator.gauss(0, 1) ** 3 * 0.1) for _ in range(n)]


def made(text, values, residual=None, **more):
    codec, settings = codecs.parse_codec(text)
    return codecs.encode(codec, settings, bytes_of_floats(values), residual, **more)


def decoded(encoded, n):
    return floats_of_bytes(codecs.decode(encoded.codec, encoded.payload, n))


class RandomNumbers(unittest.TestCase):
    def test_known_answers(self):
        """Random123's kat_vectors for philox4x32, 10 rounds."""
        ones = 2**32 - 1
        pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
        for counter, key, answer in [
            ((0,) * 4, (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
            ((ones,) * 4, (ones, ones), "408f276d 41c83b0e a20bc7c6 6d5451fd"),
            (pi, (0xA4093822, 0x299F31D0), "d16cfe09 94fdcceb 5001e420 24126ea1"),
        ]:
            self.assertEqual(" ".join(f"{word:08x}" for word in philox(counter, key)), answer)

    def test_counter_and_key(self):
        draws = Draws(seed=5 + 7 * 2**32, sender=3, tensor=11, step=2**32 + 13)
        for draw, j in [(0, 0), (4 * 9 + 2, 9), (4 * (2**39 + 1) + 3, 2**39 + 1)]:
            counter = (j % 2**32, j // 2**32 + 256 * 3, 11, 13)
            self.assertEqual(draws.word(draw), philox(counter, (5, 7))[draw % 4])

    def test_uniform_numbers_are_below_one(self):
        draws = Draws(1)
        numbers = [draws.uniform(i) for i in range(4000)]
        self.assertTrue(all(0 <= u < 1 and f32(u) == u for u in numbers))
        self.assertLess(abs(sum(numbers) / 4000 - 0.5), 0.02)


class Arithmetic(unittest.TestCase):
    def test_order_of_sums(self):
        """Values for which any other order gives another sum."""
        generator = random.Random(SEED)
        for n in (0, 1, 15, 16, 17, 4095, 4096, 4097, 9000):
            values = [generator.gauss(0, 1) * 10.0 ** generator.randrange(20) for _ in range(n)]
            self.assertEqual(sums.total(values), slow_total(values))
            exact = float(sum(map(Fraction, values)))
            self.assertLessEqual(abs(sums.total(values) - exact), 1e20 * 1e-12)

    def test_means_leave_places(self):
        self.assertEqual(sums.mean_where([1.0, -5.0, 2.0], lambda v: v >= 0), 1.5)
        self.assertEqual(sums.mean_where([-1.0], lambda v: v >= 0), 0.0)

    def test_scaling(self):
        generator = random.Random(SEED)
        for _ in range(2000):
            m = f32(math.ldexp(generator.uniform(1, 2), generator.randrange(-126, 128)))
            if math.isinf(m):
                continue
            product = m * scaling(m)
            self.assertEqual(f32(product), product)
            self.assertTrue(1 <= product < 4)
        self.assertEqual(scaling(2.0**-149), 2.0**127)
        self.assertEqual(scaling(LARGEST_F32), 2.0**-126)


def slow_total(values):
    """ "Sums", word by word"""
    total = 0.0
    for start in range(0, len(values), 4096):
        lanes = [0.0] * 16
        for i, value in enumerate(values[start : start + 4096]):
            lanes[i % 16] += value
        lanes = [lanes[j] + lanes[j + 8] for j in range(8)]
        lanes = [lanes[j] + lanes[j + 4] for j in range(4)]
        total += (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
    return total


class Scales(unittest.TestCase):
    def test_what_the_largest_scale_is_for(self):
        for most in range(1, 65536):
            self.assertTrue(math.isfinite(f32(most * f32(LARGEST_SCALE / most))), most)
        self.assertTrue(math.isinf(f32(127 * f32(LARGEST_F32 / 127))))


class WorkedByHand(unittest.TestCase):
    def check(self, text, values, payload, **more):
        self.assertEqual(made(text, values, **more).payload.hex(" "), payload)

    def test_ternary(self):
        # All values are the largest, so every u is below: + 0 -, padding 1.
        self.check("terngrad:clip=off,pack=2bit", [2.0, 0.0, -2.0], "00 00 00 00 40 31")
        self.check("terngrad:clip=off,pack=base243", [2.0, 0.0, -2.0], "01 00 00 00 40 c1")
        self.check("stoch3:clip=off", [2.0, 0.0, -2.0], "01 00 00 00 40 c1")
        self.check("terngrad", [0.0] * 10, "02 00 00 00 00 f3")
        self.check("terngrad:bucket=2,pack=2bit", [], "04 02")

    def test_qsgd(self):
        # A single value's norm is its size: level -1 of 1, field 0.
        self.check("qsgd:levels=1,bucket=0", [-3.0], "00 01 00 00 40 40 00")
        self.check("qsgd:levels=7", [3.0], "02 07 80 04 00 00 40 40 0e")
        # For B = 5, D is 27: all digits are 2 but the first, which is 4.
        word = 4 + sum(2 * 5**k for k in range(1, 27))
        payload = "01 02 00 00 40 40 " + word.to_bytes(8, "little").hex(" ")
        self.check("qsgd:levels=2,bucket=0", [3.0] + [0.0] * 26, payload)
        # 21 elements of three bits have 8 bytes as well, so they are not dense; 22 have 9.
        for n, layout in [(21, 0), (22, 1), (27, 1), (28, 0)]:
            self.assertEqual(made("qsgd:levels=2,bucket=0", [1.0] * n).payload[0], layout)

    def test_inceptionn(self):
        # Bound 2^-10: 0.25 is 128 units of 2^-9, so two bytes; 0.125 is 64.
        values = [1.5, 0.25, -0.125, 2.0**-11]
        self.check("inceptionn", values, "1a 1b 00 00 00 c0 3f 00 20 c0")
        # Paper, b = 8: two bytes from 2^-4 on, one down to 2^-8, where v is 0.
        values = [-(2.0**-4), 2.0**-5, 2.0**-8, 2.0**-9]
        self.check("inceptionn:mode=paper,bound=2^-8", values, "08 16 00 00 88 04 00")

    def test_sparse(self):
        # Bins [4, 1] and [-2]: the scale is 3, and 1 is too small for either codec.
        self.check("adacomp:bin=2", [4.0, 1.0, -2.0], "00 00 40 40 02 00 19")
        self.check("local-selection:bin=2", [4.0, 1.0, -2.0], "00 00 40 40 02 00 19")
        # Three of four: means 2.5 and -1.
        values = [4.0, -1.0, 0.5, 1.0]
        self.check("dryden:fraction=0.75", values, "00 00 20 40 00 00 80 bf 03 00 2d")

    def test_3lc_in_blocks(self):
        # Mean 2 and limit 8/3: 4 alone is sent.
        text = "3lc:s=1,block=64"
        head = "00 00 80 40 00 00 80 3f 08 40"
        self.check(text, [4.0, -2.0, 1.0, 1.0], f"{head} 00 01 00 01")
        # Means of what is sent 8 and 1, scales 0 and 24; gaps 3 and 60 with k = 4.
        values = [0.0] * 3 + [-8.0] + [0.0] * 60 + [1.0, 0.0]
        self.check(text, values, "00 00 00 41 00 00 80 3f 08 40 00 18 02 04 27 32")
        self.check("3lc", [], "00 00 00 00 00 00 a0 3f 08 80 02 00 00")

    def test_lead(self):
        # T = 0.5 + 2 * 1.75 = 4, and 4 - 4 - 1.75 is left.
        encoded = made("3lc:s=1,block=64,lead=2", [1.75, -1.0, 0.5, 0.5], [0.5, 0.0, 0.0, 0.0])
        self.assertEqual(encoded.payload.hex(" "), "00 00 80 40 00 00 80 3f 08 40 00 01 00 01")
        self.assertEqual(encoded.residual, [-1.75, -1.0, 0.5, 0.5])
        # adacomp compares T = 2 * input + residual, and 2 * input more: 4 reaches 4, 3 does not.
        encoded = made("adacomp:lead=2", [1.0, 0.75, 0.0], [0.0, 0.0, 4.0])
        self.assertEqual(encoded.payload.hex(" "), "00 00 80 40 02 00 09")
        self.assertEqual(encoded.residual, [2.0 - 4.0 - 1.0, 1.5 - 0.75, 0.0])

    def test_topk(self):
        values = [0.0] * 40 + [1.0] + [0.0] * 59
        payload = "01 01 00 00 80 3f 04 44"  # k = 4: two zeros, a one, and 8
        self.check("topk:fraction=0.01", values, payload)
        self.check("topk:fraction=0.5", [1.0, 2.0], "00 01 00 00 00 40 02")

    def test_fixed_widths(self):
        self.check("int8", [127.0, -1.0, 0.5, -1.5], "00 00 fe 42 7f ff 00 fe")
        self.check("mqe1bit", [3.0, -1.0, 1.0], "00 00 00 40 00 00 80 bf 02")
        self.check("signsgd", [3.0, -1.0, -2.0], "00 00 00 40 06")
        self.check("truncate", [1.0, -2.0], "10 80 3f 00 c0")
        self.check("truncate:bits=24", [1.0, -2.0], "18 3f c0")
        self.check("truncate:bits=22", [1.0], "16 fe 00")
        self.check("fp16", [1.0, -65520.0, 2.0**-25], "00 3c ff fb 00 00")
        self.check("bf16", [1.0, LARGEST_F32, 1 + 2.0**-8], "80 3f 7f 7f 80 3f")

    def test_oland_raj(self):
        self.check("oland-raj", [0.5] * 3, "00 00 00 00 3f")
        self.check("oland-raj", [], "00 00 00 00 00")
        self.check("oland-raj:bits=2", [0.0, 3.0, 1.0], "01 00 00 00 00 00 00 40 40 02 1c")
        # Symbols 0 and 65535 have one bit each; 65534 = 8 + 65526 between them have none.
        payload = "02 00 00 00 00 00 00 40 40 10 01 e0 f6 ff 03 01"
        streams = "02 02 02 02 00 00 ff 03 00 00 ff 03"
        self.check("oland-raj:bits=16", [0.0, 3.0] * 20, f"{payload} {streams}")

    def test_decoding_of_oland_raj(self):
        payload = made("oland-raj:bits=2", [0.0, 3.0, 1.0]).payload
        values = floats_of_bytes(codecs.decode(codecs.OLAND_RAJ, payload, 3))
        self.assertEqual(values, [0.375, 2.625, 1.125])


class RoundTrips(unittest.TestCase):
    def test_nothing_is_lost(self):
        """x + residual is T, up to the rounding of T - x."""
        generator = random.Random(SEED)
        for codec in WRITERS:
            if codec.name == "fp32":
                continue
            for n in (0, 1, 2, 7, 8, 9, 63, 200, 700):
                values, residual = heavy_tailed(generator, n), heavy_tailed(generator, n)
                encoded = made(f"{codec.name}:ef=on", values, residual, draws=Draws(n))
                self.assertEqual(encoded.codec, codec.number)
                lead = codecs.parse_codec(codec.name)[1].get("lead", 1.0)
                sent = decoded(encoded, n)
                for r, v, x, rest in zip(residual, values, sent, encoded.residual):
                    exact = Fraction(r) + Fraction(v) - Fraction(x) - Fraction(rest)
                    largest = max(map(abs, (r, lead * v, x)))
                    self.assertLessEqual(abs(exact), 4 * largest * 2.0**-24)
                    if lead == 1:
                        self.assertEqual(f32(f32(r + v) - x), rest)

    def test_not_finite_travels_as_it_is(self):
        raw = b"\x01\0\xa0\x7f" + bytes_of_floats([-math.inf, 1.0])
        for codec, settings in [codecs.parse_codec(codec.name) for codec in WRITERS]:
            encoded = codecs.encode(codec, settings, raw, [1.0, 2.0, 3.0])
            self.assertEqual((encoded.codec, encoded.not_finite), (codecs.FP32, True))
            self.assertEqual((encoded.payload, encoded.residual), (raw, [1.0, 2.0, 3.0]))

    def test_not_finite_may_be_refused(self):
        with self.assertRaises(Refused):
            made("int8:non-finite=reject", [math.nan])

    def test_error_bounds(self):
        generator = random.Random(SEED)
        values = heavy_tailed(generator, 2000)
        largest = max(map(abs, values))
        low, high = min(values), max(values)
        for text, bound in [
            ("int8", largest / 127 * 0.501),
            ("inceptionn", 2.0**-10),
            ("inceptionn:bound=2^-15", 2.0**-15),
            ("oland-raj:bits=8", (high - low) / 512 * 1.001),
            ("bf16", largest * 2.0**-8),
            ("fp16", largest * 2.0**-11),
            ("truncate", largest * 2.0**-7),
            ("topk:fraction=1", 0.0),
        ]:
            small = [v for v in values if abs(v) < 1] if "inceptionn" in text else values
            sent = decoded(made(text, small), len(small))
            self.assertLessEqual(max(abs(v - x) for v, x in zip(small, sent)), bound, text)

    def test_stochastic_codecs_are_unbiased(self):
        """Each mean of 400 draws of one of 50 values lies within 5 deviations."""
        generator = random.Random(SEED)
        values = [f32(generator.uniform(-1, 1)) for _ in range(50)]
        for text in ("terngrad:clip=off", "stoch3:clip=off", "qsgd:levels=3,bucket=16"):
            draws = [made(text, values, draws=Draws(9, step=step)) for step in range(400)]
            columns = zip(*[decoded(encoded, 50) for encoded in draws])
            for value, column in zip(values, columns):
                self.assertLess(abs(sum(column) / 400 - value), 5 * 1.0 / math.sqrt(400), text)

    def test_agreed_scalers(self):
        values = [0.5, -0.25, 0.0]
        encoded = made("terngrad:pack=2bit,bucket=2", values, agreed=[4.0, 8.0])
        self.assertEqual(floats_of_bytes(encoded.payload[2:10]), [4.0, 8.0])
        self.assertTrue(set(decoded(encoded, 3)) <= {0.0, 4.0, -4.0})

    def test_oland_raj_in_f64(self):
        generator = random.Random(SEED)
        values = [generator.gauss(0, 1) for _ in range(300)]
        _, settings = codecs.parse_codec("oland-raj:bits=12")
        payload = codecs.encode_f64(settings, values).payload
        sent = codecs.decode_f64(codecs.OLAND_RAJ, payload, 300)
        step = (max(values) - min(values)) / 2**12
        self.assertLessEqual(max(abs(v - x) for v, x in zip(values, sent)), step * 0.5001)
        as_f32 = floats_of_bytes(codecs.decode(codecs.OLAND_RAJ, payload, 300))
        self.assertEqual(as_f32, [f32(x) for x in sent])


    def test_residual_of_f64(self):
        values = [0.1, 0.7, 2.0]
        _, settings = codecs.parse_codec("oland-raj:bits=1,ef=on")
        encoded = codecs.encode_f64(settings, values, [0.5, 0.0, -0.25])
        sent = codecs.decode_f64(codecs.OLAND_RAJ, encoded.payload, 3)
        total = [0.6, 0.7, 1.75]
        self.assertEqual(encoded.residual, [f32(t - x) for t, x in zip(total, sent)])
        for text, values in [("ef=off", [-1.5e308, 1.5e308]), ("ef=on", [0.0, 1e40])]:
            _, settings = codecs.parse_codec(f"oland-raj:bits=1,{text}")
            with self.assertRaises(Refused):
                codecs.encode_f64(settings, values, [0.0, 0.0])


class Details(unittest.TestCase):
    def test_scales_of_blocks(self):
        for i in range(8):
            eighth, half = three_lc_blocks.EIGHTHS[i], three_lc_blocks.BETWEEN_EIGHTHS[i]
            ulp = 2.0**-24 if i else 2.0**-23
            for value, half_ulp, root, exact in [
                (eighth, ulp / 2, 8, Fraction(1, 2**i)),
                (half, 2.0**-53, 16, Fraction(2 ** (2 * i + 1))),
            ]:
                low, high = Fraction(value) - Fraction(half_ulp), Fraction(value) + Fraction(half_ulp)
                self.assertTrue(low**root <= exact <= high**root, (i, root))
        for i, half in enumerate(three_lc_blocks.BETWEEN_EIGHTHS):
            self.assertEqual(three_lc_blocks.scale_of(1 / half / (1 - 2.0**-40), 1.0), i)
            self.assertEqual(three_lc_blocks.scale_of(1 / half / (1 + 2.0**-40), 1.0), i + 1)
        self.assertEqual(three_lc_blocks.scale_of(2.0**-31, 1.0), 248)
        self.assertEqual(three_lc_blocks.scale_of(2.0**-100, 1.0), 255)

    def test_rice_parameter_is_the_best(self):
        generator = random.Random(SEED)
        for _ in range(50):
            n = generator.randrange(1, 2000)
            sent = sorted(generator.sample(range(n), generator.randrange(1, n + 1)))
            gaps = positions.gaps_of(sent)
            lengths = [positions.stream_bits(gaps, k) for k in range(40)]
            self.assertEqual(positions.best_k(gaps), lengths.index(min(lengths)))
        self.assertEqual(positions.best_k([]), 0)

    def test_package_merge_is_optimal(self):
        generator = random.Random(SEED)
        for _ in range(60):
            weights = sorted(generator.randrange(1, 200) for _ in range(generator.randrange(2, 40)))
            lengths = huffman.package_merge(weights, 40)
            cost = sum(w * length for w, length in zip(weights, lengths))
            self.assertEqual(cost, huffman_cost(weights))
            self.assertEqual(sum(Fraction(1, 2**length) for length in lengths), 1)

    def test_package_merge_keeps_the_limit(self):
        fibonacci = [1, 1]
        while len(fibonacci) < 30:
            fibonacci.append(fibonacci[-1] + fibonacci[-2])
        lengths = huffman.package_merge(fibonacci, 12)
        self.assertEqual(max(lengths), 12)
        self.assertEqual(sum(Fraction(1, 2**length) for length in lengths), 1)
        self.assertEqual(lengths, sorted(lengths, reverse=True))

    def test_canonical_codes(self):
        codes = huffman.canonical_codes([2, 1, 0, 3, 3])
        self.assertEqual(codes, {1: (0b0, 1), 0: (0b10, 2), 3: (0b110, 3), 4: (0b111, 3)})

    def test_threshold_of_a_sample(self):
        values = [float(index) for index in range(17000)]
        task = Task(values, values, Draws(3))
        sample = [values[task.draws.word(i) * 17000 >> 32] for i in range(16384)]
        expected = sorted(sample)[-819]  # 0.05 * 16384 = 819.2
        self.assertEqual(topk.threshold_of(task, 0.05), expected)

    def test_clipping_limit(self):
        self.assertEqual(ternary.clipping_limit([1.0, 3.0], 2.0), 2.0)
        for values, clip in [([1.0, 1.0], 2.0), ([1.0], 2.0), ([], 2.0), ([1.0, 3.0], None)]:
            self.assertEqual(ternary.clipping_limit(values, clip), math.inf)

    def test_bits_of_oland_raj(self):
        quarter = [0.0] * 4 + [1.0] * 4 + [2.0] * 4 + [3.0] * 4  # an entropy of 2 bits
        _, settings = codecs.parse_codec("oland-raj")
        for c, bits in [(6.0, 8), (0.0, 2), (0.1, 3), (-5.0, 1), (60.0, 16)]:
            settings["c"] = c
            task = Task(quarter, quarter)
            self.assertEqual(oland_raj.number_of_bits(task, settings, 0.0, 3.0), bits)
        _, settings = codecs.parse_codec("oland-raj:c=2,bits-from=gradient")
        task = Task(quarter, quarter, gradient=[7.0, -7.0])
        self.assertEqual(oland_raj.number_of_bits(task, settings, 0.0, 3.0), 5)

    def test_every_half(self):
        for half in range(2**16):
            payload = struct.pack("<H", half)
            for number in (codecs.FP16, codecs.BF16):
                raw = codecs.decode(number, payload, 1)
                (value,) = floats_of_bytes(raw)
                if math.isfinite(value):
                    name = codecs.BY_NUMBER[number].name
                    self.assertEqual(made(name, [value]).payload, payload)

    def test_bf16_rounds_to_nearest_even(self):
        generator = random.Random(SEED)
        for _ in range(3000):
            value = float_of(generator.randrange(0x7F7F8000))
            (half,) = struct.unpack("<H", made("bf16", [value]).payload)
            neighbours = [half - 1, half, half + 1]
            errors = [
                (abs(Fraction(float_of(near << 16)) - Fraction(value)), near & 1)
                for near in neighbours
                if 0 <= near < 0x7F80
            ]
            self.assertEqual(min(errors)[0], abs(Fraction(float_of(half << 16)) - Fraction(value)))
            self.assertEqual(min(errors)[1], half & 1)

    def test_codec_texts(self):
        for text in ["", "levels", "nothing", "terngrad:clip", "terngrad:clip=-1", "qsgd:levels=0"]:
            with self.assertRaises(BadCodecText):
                codecs.parse_codec(text)
        for text in ["3lc:zre=on", "3lc:mode=paper,block=64", "3lc:block=96", "3lc:s=16"]:
            with self.assertRaises(BadCodecText):
                codecs.parse_codec(text)
        for text in ["3lc:mode=paper,s=2", "topk:lead=2,ef=off", "topk:lead=0.5", "int8:lead=1"]:
            with self.assertRaises(BadCodecText):
                codecs.parse_codec(text)
        for text in ["topk:fraction=2", "dryden:fraction=0", "truncate:bits=8", "int8:ef=maybe"]:
            with self.assertRaises(BadCodecText):
                codecs.parse_codec(text)
        _, settings = codecs.parse_codec("terngrad:clip=off,pack=2bit,bucket=3,ef=on")
        expected = {"clip": None, "pack": ternary.TWO_BITS, "bucket": 3, "ef": True}
        expected["non-finite"] = True
        self.assertEqual(settings, expected)


def huffman_cost(weights):
    heap = list(weights)
    heapq.heapify(heap)
    cost = 0
    while len(heap) > 1:
        pair = heapq.heappop(heap) + heapq.heappop(heap)
        cost += pair
        heapq.heappush(heap, pair)
    return cost


class Damage(unittest.TestCase):
    """Whatever is done to a payload, it decodes or is rejected; every cut is rejected."""

    def test_damaged_payloads(self):
        generator = random.Random(SEED)
        for codec in WRITERS:
            self.damage(generator, codec, codec.name)
        self.damage(generator, codecs.BY_NAME["3lc"], "3lc:mode=paper")

    def damage(self, generator, codec, text):
        n = generator.randrange(30, 90)
        encoded = made(text, heavy_tailed(generator, n))
        for length in range(len(encoded.payload)):
            with self.assertRaises(Rejected):
                codecs.decode(codec.number, encoded.payload[:length], n)
        with self.assertRaises(Rejected):
            codecs.decode(codec.number, encoded.payload + b"\0", n)
        for _ in range(200):
            damaged = bytearray(encoded.payload)
            damaged[generator.randrange(len(damaged))] ^= 1 << generator.randrange(8)
            self.decode_or_reject(codec.number, bytes(damaged), n)

    def test_noise(self):
        generator = random.Random(SEED)
        for codec in codecs.CODECS:
            for _ in range(300):
                payload = generator.randbytes(generator.randrange(40))
                self.decode_or_reject(codec.number, payload, generator.randrange(20))

    def decode_or_reject(self, number, payload, n):
        try:
            self.assertEqual(len(codecs.decode(number, payload, n)), 4 * n)
        except Rejected:
            pass


class CommandLines(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)

    def encode(self, *options):
        arguments = [*options, self.path("in"), self.path("out.tw")]
        self.assertEqual(encoder.main(arguments), 0)
        with open(self.path("out.tw"), "rb") as file:
            return decoder.decode_message(file.read())

    def test_every_codec(self):
        values = heavy_tailed(random.Random(SEED), 60)
        self.write("in", bytes_of_floats(values))
        for codec in WRITERS:
            options = ["--codec", codec.name, "--seed", "7", "--step", "9", "--dims", "3,20"]
            with_residual = codecs.parse_codec(codec.name)[1].get("ef")
            state = ["--state", self.path(f"{codec.name}.state")] if with_residual else []
            message, results = self.encode(*options, *state)
            residual = [0.0] * 60 if with_residual else None
            encoded = made(codec.name, values, residual, draws=Draws(7, step=9))
            self.assertEqual(message.frames[0].payload, encoded.payload, codec.name)
            self.assertEqual(message.frames[0].codec, codec.number)
            self.assertEqual(results[0].elements, 60)

    def test_state_and_gradient(self):
        values = heavy_tailed(random.Random(SEED), 60)
        self.write("in", bytes_of_floats(values))
        state = ["--codec", "signsgd", "--state", self.path("state.tw"), "--dims", "60"]
        first, second = self.encode(*state), self.encode(*state)
        self.assertNotEqual(first[1][0].values, second[1][0].values)
        self.write("gradient", bytes_of_floats([7.0] * 5))
        codec = ["--codec", "oland-raj:bits-from=gradient,c=1", "--dims", "60"]
        message, _ = self.encode(*codec, "--gradient", self.path("gradient"))
        self.assertEqual(message.frames[0].payload[9], 4)

    def test_f64(self):
        values = [0.1, 0.2, 0.7, 1e300]
        self.write("in", struct.pack("<4d", *values))
        message, results = self.encode(
            "--codec", "oland-raj:bits=2", "--dtype", "f64", "--dims", "4"
        )
        self.assertEqual(message.frames[0].payload[0] & oland_raj.LAYOUT_F64, oland_raj.LAYOUT_F64)
        self.assertEqual(struct.unpack("<4d", results[0].values_f64)[3], 0.1 + 1e300 * 3.5 / 4)
        self.assertEqual(floats_of_bytes(results[0].values)[3], LARGEST_F32)


if __name__ == "__main__":
    unittest.main()
