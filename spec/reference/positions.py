"""Which elements a sparse payload names ("Positions"): gaps as Rice codes."""

from .cursor import Rejected

LARGEST_K = 39


def read_k(cursor):
    offset = cursor.offset()
    k = cursor.byte("k")
    if k > LARGEST_K:
        raise Rejected(offset, f"k is {k} and not at most {LARGEST_K}")
    return k


def read_position(reader, k, previous, n):
    """The next named element after `previous`, which is -1 before the first."""
    offset = reader.offset()
    gap = (reader.zeros() << k) + reader.field(k)
    if previous + 1 + gap >= n:
        raise Rejected(offset, f"The element {previous + 1 + gap} is past the last one")
    return previous + 1 + gap


def gaps_of(positions):
    return [now - before - 1 for before, now in zip([-1, *positions], positions)]


def stream_bits(gaps, k):
    return sum((gap >> k) + 1 + k for gap in gaps)


def best_k(gaps):
    """The smallest k that makes the stream shortest, in bits."""
    return min(range(LARGEST_K + 1), key=lambda k: (stream_bits(gaps, k), k))


def write_gap(writer, gap, k):
    # The one bit comes after the zeros and before the gap's lower k bits.
    writer.field(1 << (gap >> k), (gap >> k) + 1)
    writer.field(gap & (1 << k) - 1, k)
