"""Codecs 8 (adacomp), 9 (local-selection) and 10 (dryden): "sparse ternary payload"."""

import struct

from . import sums
from .bits import BitReader, BitWriter
from .cursor import check_expansion, varint
from .floats import SIGN_BIT, bits_of, f32, largest_magnitude
from .options import error_feedback, f32_within, positive, whole
from .positions import best_k, gaps_of, read_k, read_position, write_gap
from .scalars import in_buckets, read_finite, read_magnitude
from .topk import positions_reaching_threshold

BIN = 500  # where no layer kind says another


def read_bin(text):
    return BIN if text == "kind" else whole(1)(text)


LOCAL_SELECTION_PARAMETERS = {"bin": (read_bin, 50)} | error_feedback(True, lead=4.0)
ADACOMP_PARAMETERS = {
    "bin": (read_bin, BIN),
    "factor": (f32_within(1, 10), 2.0),
} | error_feedback(True, lead=2.0)
DRYDEN_PARAMETERS = {"fraction": (positive(1), 0.01)} | error_feedback(True, lead=2.0)


def decode_one_scale(cursor, n):
    plus = bits_of(read_magnitude(cursor, "scale"))
    return read_elements(cursor, n, plus, plus | SIGN_BIT)


def decode_two_means(cursor, n):
    plus = bits_of(read_finite(cursor, "mean of the positive elements"))
    minus = bits_of(read_finite(cursor, "mean of the negative elements"))
    return read_elements(cursor, n, plus, minus)


def read_elements(cursor, n, plus, minus):
    sent = read_sent(cursor, n)
    check_expansion(n)
    elements = [None] * n
    for position, negative in sent:
        elements[position] = minus if negative else plus
    return elements


def read_sent(cursor, n):
    """[(element sent, whether it is negative)] from the rest of a payload."""
    count = cursor.varint(n, "count")
    k = read_k(cursor)
    offset = cursor.offset()
    reader = BitReader(cursor.take(cursor.left(), "body"), offset)
    sent = []
    position = -1
    for _ in range(count):
        position = read_position(reader, k, position, n)
        sent.append((position, bool(reader.field(1))))
    reader.end()
    return sent


# --- Writing ---------------------------------------------------------------


def encode_adacomp(task, settings):
    # The factor less one is exact in f64, and rounded to f32 as every operation is.
    extra = f32(settings["factor"] - 1)
    pushed = [f32(t + f32(extra * v)) for t, v in zip(task.total, task.values)]
    return encode_bins(task.total, pushed, settings["bin"])


def encode_local_selection(task, settings):
    return encode_bins(task.total, task.total, settings["bin"])


def encode_bins(total, compared, length):
    """compared is H"""
    largest = [largest_magnitude(values) for values in in_buckets(total, length)]
    scale = f32(sums.total(largest) / len(largest)) if largest else 0.0
    sent = [
        index
        for index, (t, h) in enumerate(zip(total, compared))
        if t != 0 and abs(h) >= largest[index // length]
    ]
    return struct.pack("<f", scale) + sent_bytes(total, sent)


def encode_dryden(task, settings):
    total = task.total
    sent = positions_reaching_threshold(task, settings["fraction"])
    named = set(sent)
    kept = [t if index in named else 0.0 for index, t in enumerate(total)]
    means = [sums.mean_where(kept, lambda t: t > 0), sums.mean_where(kept, lambda t: t < 0)]
    return struct.pack("<ff", *means) + sent_bytes(total, sent)


def sent_bytes(total, sent):
    gaps = gaps_of(sent)
    k = best_k(gaps)
    writer = BitWriter()
    for position, gap in zip(sent, gaps):
        write_gap(writer, gap, k)
        writer.field(total[position] < 0, 1)
    return varint(len(sent)) + bytes([k]) + writer.bytes()
