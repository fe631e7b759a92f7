"""Vectors of encoding: what a writer must make of an input, to the bit.

What they hold is what the reference encoder computes.
"""

import json
import struct

from reference import codecs, levels
from reference.floats import (
    LARGEST_F32,
    LARGEST_SCALE,
    bits_of,
    bytes_of_floats,
    f32,
    float_of,
    floats_of_bytes,
)
from reference.random_numbers import Draws

from .common import M_LARGEST_DENORMAL, M_SMALLEST

LENGTHS = [0, 1, 2, 3, 5, 7, 8, 9, 15, 17, 33, 64, 65, 100, 260]
LONG = 17000  # elements of long.f32, enough for all codecs that sample to do so
ORDINARY = 100
CONTEXT = {"seed": 1, "sender": 0, "tensor": 0, "step": 0, "first": 0}
OTHER_CONTEXTS = [
    {"seed": 2**64 - 1, "sender": 2**24 - 1, "tensor": 2**32 - 1, "step": 2**64 - 1, "first": 0},
    {"seed": 2**32, "sender": 1, "tensor": 0, "step": 0, "first": 0},
    {"seed": 0, "sender": 0, "tensor": 1, "step": 2**32 + 5, "first": 0},
    {"seed": 3, "sender": 2, "tensor": 4, "step": 5, "first": 2**20 + 4},
    {"seed": 3, "sender": 2, "tensor": 4, "step": 5, "first": 2**34},
]

# Codec texts besides the plain name, each for ORDINARY elements.
TEXTS = {
    "fp32": [],
    "3lc": [
        "s=1",
        "s=1.75",
        "s=3.5,lead=1",
        "s=15.9,block=64",
        "block=64",
        "block=64,lead=16",
        "block=4096,lead=1",
        "mode=blocks",
    ],
    "terngrad": [
        "clip=off",
        "clip=1",
        "clip=0.1",
        "pack=2bit",
        "pack=base243",
        "bucket=1",
        "bucket=7,pack=2bit",
        "bucket=32,clip=1.5",
        "bucket=100",
        "bucket=4096",
    ],
    "stoch3": ["clip=off", "clip=1"],
    "qsgd": [
        "levels=1",
        "levels=2",
        "levels=3,bucket=0",
        "levels=8,bucket=16",
        "levels=255",
        "levels=1000,bucket=33",
        "levels=65535",
    ],
    "inceptionn": [
        f"mode={mode},bound=2^-{b}"
        for mode in ("bounded", "paper")
        for b in (1, 2, 6, 7, 8, 9, 15)
    ],
    "adacomp": ["bin=1", "bin=7", "bin=50,factor=1.5", "bin=10,factor=3", "bin=10,factor=2.3"],
    "local-selection": ["bin=1", "bin=7", "bin=100", "bin=500"],
    "dryden": ["fraction=0.0001", "fraction=0.003", "fraction=0.1", "fraction=0.5", "fraction=1"],
    "topk": ["fraction=0.0001", "fraction=0.015", "fraction=0.025", "fraction=0.3", "fraction=1"],
    "int8": [],
    "mqe1bit": [],
    "signsgd": [],
    "oland-raj": ["bits=1", "bits=2", "bits=7", "bits=12", "bits=16", "c=0", "c=0.5", "c=12"],
    "truncate": ["bits=22", "bits=24"],
    "fp16": [],
    "bf16": [],
}
PAPER_TEXTS = ["s=1.75", "s=1.9,layout=partitions", "zre=off", "lead=2.5"]
LEADS = ["lead=1", "lead=1.5625", "lead=2.7", "lead=64"]
# Texts for the first elements of long.f32.
LONG_TEXTS = {
    "3lc": [("ef=off", 9000), ("block=4096,s=1.75", 9000), ("block=64,s=1", LONG)],
    "terngrad": [("ef=off", 9000), ("bucket=5000,clip=2", 12000)],
    "stoch3": [("ef=off", 5000), ("clip=off", 5000)],
    "qsgd": [("bucket=0", 9000), ("bucket=4100,levels=100", 9000)],
    "inceptionn": [("bound=2^-8", 5000)],
    "adacomp": [("ef=off", 9000), ("ef=off,bin=1", 9000), ("ef=off,bin=4097,factor=2.5", 9000)],
    "local-selection": [("ef=off", 9000), ("ef=off,bin=2", 9000)],
    "dryden": [("ef=off", 16384), ("ef=off", LONG), ("ef=off,fraction=0.2", 16385)],
    "topk": [("ef=off", 16384), ("ef=off", LONG), ("ef=off,fraction=0.001", 16385)],
    "mqe1bit": [("ef=off", 9000)],
    "signsgd": [("ef=off", 9000)],
    "oland-raj": [("c=4", 4096), ("c=4", 4097), ("c=1", LONG), ("bits=11", 9000)],
}


# --- Inputs ----------------------------------------------------------------


def heavy_tailed(n, seed):
    """Values of up to 1 in size, most of them far smaller; nothing is rounded on the way."""
    words = map(Draws(seed).word, range(n))
    return [((w >> 8) - 2**23) * 2.0 ** (-23 - 2 * (w & 0xFF).bit_count()) for w in words]


def powers_of_two():
    return [sign * 2.0**k for k in range(-149, 128, 4) for sign in (1, -1)]


def specials():
    ordinary = heavy_tailed(40, 77)
    halves = [sign * k / 256 for k in range(20) for sign in (1, -1)]
    return {
        "zeros": [0.0, -0.0, 0.0, -0.0, -0.0, 0.0, 0.0],
        "minus-zeros": [-0.0] * 9,
        "constant": [0.3] * 21,
        "minus-constant": [-0.3] * 21,
        "one-value": [0.0] * 30 + [0.7] + [0.0] * 30,
        "one-sign": [abs(value) for value in ordinary],
        "two-values": [0.5, -0.5] * 8 + [0.5],
        "zero-and-one": [-0.0, 1.0, 0.0, 1.0, -0.0],
        "zero-and-minus-one": [0.0, -1.0, -0.0, -1.0],
        "denormals": [k * M_SMALLEST for k in range(-9, 10)] + [M_LARGEST_DENORMAL],
        "halves": halves,
        "one-huge": ordinary + [1e30],
        "sizes": powers_of_two(),
        "around-one": [1 - 2.0**-24, 1.0, -1.0, 1 + 2.0**-23, 2.0**-24 - 1, -1 - 2.0**-23, 100.0],
        "largest": [LARGEST_F32, 1.0, -LARGEST_F32, LARGEST_F32 / 2, 1e-10, M_SMALLEST],
    }


# One quiet and one signalling NaN, and both infinities.
NOT_FINITE_BITS = [0x7FC12345, 0xFFA00001, 0x7F800000, 0xFF800000]


# --- Cases -----------------------------------------------------------------


def case(name, text, raw, residual=None, agreed=None, context=None, long=None, gradient=None):
    """A case for the f32 bytes of an input.

    residual is what the encoder's is set to, or None for what a new encoder
    has; long says that the input is the start of long.f32.
    """
    context = context or CONTEXT
    codec, settings = codecs.parse_codec(text)
    before = residual
    if before is None and settings.get("ef"):
        before = [0.0] * (len(raw) // 4)
    more = {"draws": Draws(**context), "agreed": agreed, "gradient": gradient}
    made = codecs.encode(codec, settings, raw, before, **more)
    return {
        "name": name,
        "codec": text,
        **context,
        "type": "f32",
        "input": raw.hex() if long is None else None,
        "long": long,
        "residual": hex_of(residual),
        "agreed": hex_of(agreed),
        "gradient": hex_of(gradient),
        "made": made.codec,
        "not_finite": made.not_finite,
        "payload": made.payload.hex(),
        "residual_after": hex_of(made.residual),
    }


def hex_of(floats):
    return None if floats is None else bytes_of_floats(floats).hex()


def f64_case(name, text, values, residual=None):
    _, settings = codecs.parse_codec(text)
    before = residual
    if before is None and settings["ef"]:
        before = [0.0] * len(values)
    made = codecs.encode_f64(settings, values, before, draws=Draws(**CONTEXT))
    return {
        "name": name,
        "codec": text,
        **CONTEXT,
        "type": "f64",
        "input": struct.pack(f"<{len(values)}d", *values).hex(),
        "long": None,
        "residual": hex_of(residual),
        "agreed": None,
        "gradient": None,
        "made": made.codec,
        "not_finite": made.not_finite,
        "payload": made.payload.hex(),
        "residual_after": hex_of(made.residual),
    }


def cases_of(name):
    cases = common_cases(name, TEXTS[name], OTHER_CONTEXTS)
    for text, n in LONG_TEXTS.get(name, []):
        cases.append(case(f"long-{n}-{text}", f"{name}:{text}", long_input()[: 4 * n], long=n))
    return cases


def common_cases(base, texts, contexts=()):
    """base is a codec's name, or that and the parameters that all cases have."""
    cases = [
        case(f"length-{n}", base, bytes_of_floats(heavy_tailed(n, n + 1))) for n in LENGTHS
    ]
    cases += [case(key, base, bytes_of_floats(map_f32(v))) for key, v in specials().items()]
    ordinary = bytes_of_floats(heavy_tailed(ORDINARY, 5))
    cases += [case(f"with-{text}", with_text(base, text), ordinary) for text in texts]
    cases += [case(f"context-{i}", base, ordinary, context=c) for i, c in enumerate(contexts)]
    cases += not_finite_cases(base)
    if base != "fp32":
        cases += residual_cases(base, ordinary)
    if "lead" in codecs.parse_codec(base)[1]:
        cases += lead_cases(base, ordinary)
    return cases


def with_text(base, text):
    return f"{base}{',' if ':' in base else ':'}{text}"


def map_f32(values):
    return [f32(value) for value in values]


def not_finite_cases(name):
    ordinary = bytes_of_floats(heavy_tailed(9, 6))
    return [
        case(f"not-finite-{i}", name, ordinary[:24] + struct.pack("<I", bits) + ordinary[24:])
        for i, bits in enumerate(NOT_FINITE_BITS)
    ]


def residual_cases(base, ordinary):
    residual = [0.25 * value for value in heavy_tailed(ORDINARY, 9)]
    minus = [-value for value in floats_of_bytes(ordinary)]
    huge = bytes_of_floats([LARGEST_F32, 1.0, -0.0])
    return [
        case("residual", with_text(base, "ef=on"), ordinary, residual),
        case("no-residual-yet", with_text(base, "ef=on"), ordinary),
        case("no-residual", with_text(base, "ef=off"), ordinary),
        case("residual-minus-zeros", with_text(base, "ef=on"), bytes(20), [-0.0, 0.0, 0.5, -0.0, 0.0]),
        case("residual-cancels", with_text(base, "ef=on"), ordinary, minus),
        case("sum-overflows", with_text(base, "ef=on"), huge, [LARGEST_F32, 0.5, -0.0]),
        case("not-finite-keeps-residual", with_text(base, "ef=on"), b"\0\0\xc0\x7f" * 3, [0.5, -0.0, 1.0]),
    ]


def lead_cases(base, ordinary):
    residual = [0.25 * value for value in heavy_tailed(ORDINARY, 9)]
    largest = bytes_of_floats([LARGEST_F32 / 2, -1.0, 0.0, -0.0])
    zeros = [0.0, -0.0, -0.0, 0.0]
    denormals = bytes_of_floats([k * M_SMALLEST for k in range(-9, 10)])
    owed, large, small = (f32(share * 2.0**127) for share in (1.99, 0.99, 0.9975))
    mean = bytes_of_floats([small] + [large] * 49 + [0.0])
    equal = bytes_of_floats([owed / 64] * 4 + [1.0])
    cases = [
        case(f"residual-{text}", with_text(base, text), ordinary, residual) for text in LEADS
    ]
    return cases + [
        case("lead-at-the-largest", with_text(base, "lead=2"), largest, zeros),
        case("lead-overflows", with_text(base, "lead=2.5"), largest, zeros),
        # What the first one owes grows by what is sent of it: the mean of all, or the largest.
        case("lead-leaves-too-much", with_text(base, "lead=2"), mean, [-owed] + [0.0] * 50),
        case("lead-64-leaves-too-much", with_text(base, "lead=64"), equal, [-owed / 4] + [0.0] * 4),
        case("lead-denormals", with_text(base, "lead=1.5"), denormals),
        case("lead-minus-zeros", with_text(base, "lead=3"), b"\0\0\0\x80" * 5, [-0.0, 0.0, 0.5, -0.0, 0.0]),
    ]


def paper_cases():
    """3lc as published."""
    cases = common_cases("3lc:mode=paper", PAPER_TEXTS)
    return [made | {"name": f"paper-{made['name']}"} for made in cases]


def alone(value, n=64):
    """A block of one value and zeros."""
    return [value] + [0.0] * (n - 1)


def next_to(value):
    """The value's neighbours and itself."""
    return [float_of(bits_of(value) + step) for step in (-1, 0, 1)]


def blocks_cases():
    """Blocks of 64 of which each shows one rule of 3lc in blocks."""
    lengths = [63, 64, 65, 127, 128, 129, 192]
    cases = [
        case(f"blocks-length-{n}", "3lc:block=64", bytes_of_floats(heavy_tailed(n, n + 3)))
        for n in lengths
    ]
    # The mean of a block that holds 64 v alone is v.
    ratios = [f32(2.0 ** -(k / 16)) for k in range(34)] + [2.0**-k for k in range(28, 36)]
    edges = [near for ratio in ratios for near in next_to(ratio)]
    half = LARGEST_F32 / 2
    blocks = {
        "eighths": [alone(64.0)] + [alone(f32(64 * value)) for value in edges],
        "scales": [[f32(v * 0.93**j) for v in heavy_tailed(64, j)] for j in range(60)],
        "far-apart": [[v * 2.0**-j for v in heavy_tailed(64, j)] for j in range(0, 90, 6)],
        # 2 is the limit of s = 1.5 here.
        "at-the-limit": [[2.0, -(2 - 2.0**-23)] + [1.0] * 60 + [2.0**-23, 0.0], [-2.0] * 32 + [0.0] * 32],
        "mean-rounds-to-zero": [alone(1.0), alone(M_SMALLEST), [0.0] * 64],
        "mean-rounds-to-zero-everywhere": [alone(M_SMALLEST), alone(-2 * M_SMALLEST)],
        "smallest": [[M_SMALLEST] * 64, alone(-40 * M_SMALLEST), alone(33 * M_SMALLEST)],
        "denormal-means": [[f32(k * 0.6) * M_SMALLEST for k in range(64)], [M_SMALLEST] * 64],
        "largest-means": [[LARGEST_F32] * 64, [LARGEST_F32, -LARGEST_F32] * 20, alone(-LARGEST_F32)],
        "m-overflows": [[half] * 64, [LARGEST_F32] * 29 + [0.0] * 35],
        "equal": [[0.5, -0.5] * 32, [0.25] * 40],
        "zero-block-first": [[0.0] * 64, heavy_tailed(64, 2), [-0.0] * 64, heavy_tailed(9, 1)],
    }
    for name, values in blocks.items():
        raw = bytes_of_floats(map_f32(sum(values, [])))
        for s in ("1", "1.5"):
            cases.append(case(f"blocks-{name}-s-{s}", f"3lc:block=64,lead=1,s={s}", raw))
    return cases


def long_input():
    return bytes_of_floats(heavy_tailed(LONG, 3))


def agreed_cases():
    """terngrad under scalers that are larger than the tensor's own."""
    ordinary = bytes_of_floats(heavy_tailed(ORDINARY, 5))
    residual = [0.25 * value for value in heavy_tailed(ORDINARY, 9)]
    zeros = bytes(4 * 12)
    three = [2.0, 1.5, 3.0]
    return [
        case("agreed", "terngrad", ordinary, agreed=[f32(1.7)]),
        case("agreed-off", "terngrad:clip=off", ordinary, agreed=[1.5]),
        case("agreed-huge", "terngrad:clip=1", ordinary, agreed=[f32(1e30)]),
        case("agreed-buckets", "terngrad:bucket=40,pack=2bit", ordinary, agreed=three),
        case("agreed-residual", "terngrad:bucket=40,ef=on", ordinary, residual, three),
        case("agreed-zeros", "terngrad", zeros, agreed=[0.5]),
        case("agreed-zero", "terngrad", zeros, agreed=[0.0]),
    ]


def gradient_cases():
    """oland-raj with as many bits as the gradient's root mean square asks for."""
    ordinary = bytes_of_floats(heavy_tailed(ORDINARY, 5))
    text = "oland-raj:bits-from=gradient"
    gradients = {
        "zeros": [0.0] * ORDINARY,
        "ordinary": heavy_tailed(ORDINARY, 8),
        "sevens": [7.0, -7.0] * (ORDINARY // 2),
        "large": [1000 * value for value in heavy_tailed(ORDINARY, 8)],
        "largest": [LARGEST_F32] * ORDINARY,
    }
    return [
        case(f"gradient-{name}-{c}", f"{text},c={c}", ordinary, gradient=map_f32(gradient))
        for name, gradient in gradients.items()
        for c in (0, 2)
    ]


def oland_raj_f64_cases():
    ordinary = [value * (1 + 2.0**-40) for value in heavy_tailed(ORDINARY, 5)]
    residual = [0.25 * value for value in heavy_tailed(ORDINARY, 9)]
    steps = [1 + k * 2.0**-52 for k in range(9)]
    cases = [f64_case(f"f64-length-{n}", "oland-raj:c=2", ordinary[:n]) for n in (0, 1, 2, 5, 100)]
    return cases + [
        f64_case("f64-constant", "oland-raj", [0.1] * 7),
        f64_case("f64-zeros", "oland-raj", [-0.0, 0.0, -0.0]),
        f64_case("f64-bits", "oland-raj:bits=5", ordinary),
        f64_case("f64-steps", "oland-raj:bits=3", steps),
        f64_case("f64-narrow", "oland-raj:bits=3", [0.0, 2.0**-1000, 2.0**-1001]),
        f64_case("f64-too-narrow", "oland-raj:bits=3", [2.0**-1001, 0.0, 2.0**-1002]),
        f64_case("f64-zeros-and-one", "oland-raj:bits=3", [-0.0, 0.0, 1.0]),
        f64_case("f64-residual", "oland-raj:c=1,ef=on", ordinary, residual),
        f64_case("f64-no-residual-yet", "oland-raj:bits=6,ef=on", ordinary),
        f64_case("f64-residual-rounded", "oland-raj:bits=1,ef=on", [0.1, 0.7, 1e30, -1e33]),
        f64_case("f64-large", "oland-raj:bits=4", [1e300, -1e300, 5e299, 0.0, 1.0]),
    ]


def levels_cases():
    """Averages of workers' digits; their sums, and the scalers that the workers shared."""
    cases = []
    for workers in (1, 2, 7, 16, 255, 65535):
        for n, bucket in [(0, 0), (1, 0), (41, 0), (41, 16), (0, 3), (100, 100)]:
            numbers = [(31 * k + k * k) % (2 * workers + 1) - workers for k in range(n)]
            count = -(-n // bucket) if bucket else 1
            scalers = map_f32([0.7, 0.0, LARGEST_SCALE][:count])
            for dense in (False, True):
                payload = levels.payload(workers, bucket, scalers, numbers, dense)
                cases.append(
                    {
                        "name": f"{workers}-workers-{n}-bucket-{bucket}-dense-{dense}",
                        "workers": workers,
                        "bucket": bucket,
                        "dense": dense,
                        "scalers": hex_of(scalers),
                        "sums": struct.pack(f"<{n}i", *numbers).hex(),
                        "payload": payload.hex(),
                    }
                )
    return cases


# --- Files -----------------------------------------------------------------


def encoded():
    files = {"encoded/long.f32": long_input()}
    for name in TEXTS:
        cases = cases_of(name)
        if name == "3lc":
            cases += blocks_cases() + paper_cases()
        if name == "terngrad":
            cases += agreed_cases()
        if name == "oland-raj":
            cases += gradient_cases() + oland_raj_f64_cases()
        assert len({c["name"] for c in cases}) == len(cases), name
        files[f"encoded/{name}.json"] = (json.dumps(cases, indent=1) + "\n").encode()
    files["encoded/levels.json"] = (json.dumps(levels_cases(), indent=1) + "\n").encode()
    return files
