"""Sums in double, the same on every machine ("Sums")."""

from .floats import f32, in_order

BLOCK = 4096
LANES = 16


def total(values):
    """S(values)"""
    return in_order(
        block_total(values[start : start + BLOCK]) for start in range(0, len(values), BLOCK)
    )


def block_total(block):
    lanes = [in_order(block[lane::LANES]) for lane in range(LANES)]
    for half in (8, 4, 2, 1):
        for lane in range(half):
            lanes[lane] += lanes[lane + half]
    return lanes[0]


def mean_where(values, condition):
    """S(value where the condition holds) / their number, rounded to f32; 0 for none."""
    kept = [condition(value) for value in values]
    if True not in kept:
        return 0.0
    return f32(total([v if keep else 0.0 for v, keep in zip(values, kept)]) / kept.count(True))


def total_of_squares(values):
    return total([value * value for value in values])
