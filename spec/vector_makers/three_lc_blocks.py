"""Vectors of codec 2 (3lc) in blocks."""

from reference import three_lc
from reference.codecs import THREE_LC
from reference.cursor import varint
from reference.floats import LARGEST_F32, f32, float_of
from reference.three_lc import LAYOUT_BLOCKS
from reference.three_lc_blocks import EIGHTHS
from reference_decoder import FILE, TYPE_F64

from .common import (
    FEW_BAD_MAGNITUDES,
    M_LARGEST_DENORMAL,
    M_SMALLEST,
    Part,
    accepted_message,
    accepted_push,
    signed,
)
from .sparse import named, rejected_sparse, sparse_body

S = 1.75
S_LARGEST = 16 - 2.0**-20

# (n, b, k, elements sent)
BLOCKS = [
    (0, 64, 0, []),
    (1, 64, 0, []),
    (1, 4096, 0, [0]),
    (63, 64, 39, [0, 62]),
    (64, 64, 0, [0, 1, 2, 63]),
    (65, 64, 5, [63, 64]),
    (65, 128, 5, [63, 64]),
    (300, 64, 4, [0, 17, 63, 64, 127, 128, 191, 192, 299]),
    (300, 256, 2, [255, 256]),
    (300, 320, 0, [299]),
    (700, 64, 0, list(range(700))),
    (4200, 64, 6, list(range(0, 4200, 41))),
    (8200, 4096, 10, [0, 4095, 4096, 8191, 8192, 8199]),
]


def blocks_case(n, block, k, positions, m=1.5, s=S, scale=lambda j: (37 * j) % 256):
    """(payload, elements)"""
    scales = [scale(j) for j in range(-(-n // block))]
    negative = [position % 3 == 1 for position in positions]
    payload = blocks_head(block, scales, m, s) + sparse_body(k, positions, negative)
    bits = [
        signed(decoded_magnitude(m, scales[position // block]), -1 if minus else 1)
        for position, minus in zip(positions, negative)
    ]
    return payload, named(n, positions, bits)


def blocks_head(block, scales, m=1.5, s=S, layout=LAYOUT_BLOCKS):
    return three_lc.header(m, s, layout) + varint(block) + bytes(scales)


def decoded_magnitude(m, q):
    return f32(f32(m * EIGHTHS[q % 8]) / 2.0 ** (q // 8))


def accepted():
    files = accepted_push("blocks", THREE_LC, [blocks_case(*case) for case in BLOCKS])
    # Scales of all kinds at the ends of m and of s.
    edges = [0, 1, 2, 3, 4, 5, 6, 7, 8, 15, 16, 63, 64, 127, 128, 200, 248, 254, 255]
    each = (64 * len(edges), 64, 5, [64 * j + 3 * j for j in range(len(edges))])
    cases = [
        blocks_case(*each, f32(m), s, lambda j: edges[j])
        for m, s in [
            (0.0, 1.0),
            (M_SMALLEST, 2.0),
            (M_LARGEST_DENORMAL, 15.0),
            (2.0**-100 / 3, S),
            (0.1, S),
            (LARGEST_F32, S_LARGEST),
        ]
    ]
    files |= accepted_push("blocks-scales", THREE_LC, cases)
    payload, elements = blocks_case(300, 64, 5, [31, 64, 65, 299], 0.75)
    part = Part(0, THREE_LC, payload, elements, (TYPE_F64, [30, 10]))
    return files | accepted_message("blocks-file-f64", FILE, [part])


# --- Rejected --------------------------------------------------------------


def rejected(out):
    def add(name, payload, reason, elems):
        out.add_payload(f"blocks-{name}", THREE_LC, payload, reason, elems)

    one = sparse_body(0, [0], [0])
    nine = sparse_body(0, list(range(9)), [0] * 9)
    rejected_sparse(out, "blocks", THREE_LC, lambda n: blocks_head(64, bytes(-(-n // 64))))
    for layout in range(LAYOUT_BLOCKS + 1, 2 * LAYOUT_BLOCKS):
        payload = blocks_head(64, [0], layout=layout) + one
        reason = "The layout is one of groups and of blocks."
        if layout & three_lc.LAYOUT_RESERVED:
            reason = "Bit 2 of the layout is reserved."
        add(f"layout-{layout}", payload, reason, 1)
    for bit in range(4, 8):
        payload = blocks_head(64, [0], layout=LAYOUT_BLOCKS | 1 << bit) + one
        add(f"layout-bit-{bit}", payload, f"Bit {bit} of the layout is reserved.", 1)
    for name, bits, what in [
        ("sixteen", 0x41800000, "s is 16"),
        ("below", 0x3F7FFFFF, "s is the f32 below 1"),
        ("infinite", 0x7F800000, "s is infinite"),
        ("nan", 0x7FC00000, "s is NaN"),
    ]:
        payload = blocks_head(64, [0], s=float_of(bits)) + one
        add(f"s-{name}", payload, f"{what}.", 1)
    for name, bits, what in FEW_BAD_MAGNITUDES:
        payload = blocks_head(64, [0], m=float_of(bits)) + one
        add(f"m-{name}", payload, f"m {what}.", 1)
    for block in (0, 1, 32, 63, 65, 96, 4095, 4097, 4160, 2**32 + 64, 2**64 + 64):
        payload = blocks_head(block, [0]) + one
        add(f"length-of-{block}", payload, f"The blocks are of {block} elements.", 1)
    header = three_lc.header(1.5, S, LAYOUT_BLOCKS)
    add("length-missing", header, "The length of the blocks is missing.", 0)
    add("length-cut", header + b"\x80", "The length of the blocks is cut off.", 0)
    reason = "The length of the blocks is not in its shortest form."
    add("length-overlong", header + b"\xc0\x00" + bytes([0]) + one, reason, 1)
    # Each of these would be right with one scale more or less.
    add("scale-missing", blocks_head(64, [0]), "The second scale is missing.", 65)
    add("scale-left-out", blocks_head(64, [9]) + nine, "The body has no second scale.", 65)
    add("scale-too-many", blocks_head(64, [9, 9]) + one, "The body has two scales for a block.", 64)
    add("scale-without-elements", blocks_head(64, [0]) + sparse_body(0, [], []), "No blocks.", 0)
    payload = blocks_head(4096, bytes(9)) + one
    out.add_huge("blocks-huge", THREE_LC, payload, "2^28 scales are due, and most are missing.")
