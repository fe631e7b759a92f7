"""Codec 11: topk."""

import struct

from .bits import BitReader, BitWriter
from .cursor import Rejected, check_expansion, varint
from .floats import bytes_of_floats
from .options import error_feedback, positive
from .positions import best_k, gaps_of, read_k, read_position, write_gap

BITMAP, GAPS = 0, 1
SAMPLED_ABOVE = 16384
SAMPLED_PART = 256

PARAMETERS = {"fraction": (positive(1), 0.05)} | error_feedback(True, lead=2.0)


def decode(cursor, n):
    offset = cursor.offset()
    layout = cursor.byte("layout")
    if layout > GAPS:
        raise Rejected(offset, f"The layout {layout} is reserved")
    count = cursor.varint(n, "count")
    values = struct.unpack(f"<{count}I", cursor.take(4 * count, "list of values"))
    positions = (read_gaps if layout == GAPS else read_bitmap)(cursor, n, count)
    check_expansion(n)
    elements = [None] * n
    for position, bits in zip(positions, values):
        elements[position] = bits
    return elements


def read_bitmap(cursor, n, count):
    offset = cursor.offset()
    bitmap = int.from_bytes(cursor.take_last((n + 7) // 8, "bitmap"), "little")
    if bitmap >> n:
        raise Rejected(offset + n // 8, "The bitmap sets a bit past the last element")
    if bitmap.bit_count() != count:
        raise Rejected(offset, f"The bitmap names {bitmap.bit_count()} elements and not {count}")
    return [index for index, bit in enumerate(reversed(f"{bitmap:b}")) if bit == "1"]


def read_gaps(cursor, n, count):
    k = read_k(cursor)
    offset = cursor.offset()
    reader = BitReader(cursor.take(cursor.left(), "positions"), offset, "positions")
    positions = []
    for _ in range(count):
        positions.append(read_position(reader, k, positions[-1] if positions else -1, n))
    reader.end()
    return positions


# --- Writing ---------------------------------------------------------------


def encode(task, settings):
    sent = positions_reaching_threshold(task, settings["fraction"])
    values = [task.total[position] for position in sent]
    bitmap = bitmap_bytes(sent, len(task.total))
    gaps = gap_bytes(sent)
    layout, positions = (GAPS, gaps) if len(gaps) < len(bitmap) else (BITMAP, bitmap)
    return payload(layout, values, positions)


def positions_reaching_threshold(task, fraction):
    threshold = threshold_of(task, fraction)
    return [i for i, value in enumerate(task.total) if value != 0 and abs(value) >= threshold]


def threshold_of(task, fraction):
    n = len(task.total)
    if n == 0:
        return 0.0
    magnitudes = [abs(value) for value in task.total]
    if n > SAMPLED_ABOVE:
        magnitudes = task.draws.sample(magnitudes, max(SAMPLED_ABOVE, n // SAMPLED_PART))
    rank = max(1, round(fraction * len(magnitudes)))
    return sorted(magnitudes, reverse=True)[rank - 1]


def payload(layout, values, positions):
    return bytes([layout]) + varint(len(values)) + bytes_of_floats(values) + positions


def bitmap_bytes(sent, n):
    bitmap = bytearray((n + 7) // 8)
    for position in sent:
        bitmap[position // 8] |= 1 << position % 8
    return bytes(bitmap)


def gap_bytes(sent):
    gaps = gaps_of(sent)
    k = best_k(gaps)
    writer = BitWriter()
    for gap in gaps:
        write_gap(writer, gap, k)
    return bytes([k]) + writer.bytes()
