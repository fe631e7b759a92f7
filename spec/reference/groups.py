"""Five digits of 0 to 2 in a byte, and runs of zeros (codecs 2 to 4)."""

from .cursor import Rejected, check_expansion

ZERO_GROUP = 121  # five digits of 1


def read_digits(cursor, n, partitions=False, zero_runs=False):
    """The n digits in the rest of a payload, as bytes."""
    group_count = (n + 4) // 5
    offset = cursor.offset()
    if zero_runs:
        items = read_zero_runs(cursor, group_count)
        check_expansion(n)
        groups = b"".join(bytes([value]) * count for value, count in items)
    else:
        groups = read_plain_groups(cursor, group_count)
        check_expansion(n)
    digits = digits_of_groups(groups, partitions)
    if digits.count(1, n) != len(digits) - n:
        raise Rejected(offset, "The body has a padding digit other than 1")
    return bytes(digits[:n])


def read_plain_groups(cursor, group_count):
    start = cursor.offset()
    groups = cursor.take_last(group_count, "body")
    for index, value in enumerate(groups):
        if value > 242:
            raise Rejected(start + index, f"The byte {value} is not a group")
    return groups


def read_zero_runs(cursor, group_count):
    """The body as (group, repetitions) pairs; nothing large is allocated."""
    items = []
    total = 0
    while cursor.left():
        start = cursor.offset()
        byte = cursor.byte("body")
        if byte <= 242:
            items.append((byte, 1))
        else:
            items.append((ZERO_GROUP, byte - 241))
        total += items[-1][1]
        if total > group_count:
            raise Rejected(start, f"The body stands for more than {group_count} groups")
    if total < group_count:
        raise Rejected(cursor.offset(), f"The body stands for {total} groups and not {group_count}")
    return items


# DIGIT_TABLES[k][group] is digit d_k; translate() wants tables of 256 entries.
DIGIT_TABLES = [
    bytes(group // 3 ** (4 - k) % 3 for group in range(243)) + bytes(13) for k in range(5)
]


def digits_of_groups(groups, partitions):
    """All 5 G digits, those of the padding last."""
    count = len(groups)
    digits = bytearray(5 * count)
    for k in range(5):
        if partitions:
            digits[k * count : (k + 1) * count] = groups.translate(DIGIT_TABLES[k])
        else:
            digits[k::5] = groups.translate(DIGIT_TABLES[k])
    return digits


def groups_of_digits(digits, partitions=False):
    count = (len(digits) + 4) // 5
    padded = list(digits) + [1] * (5 * count - len(digits))
    groups = bytearray()
    for g in range(count):
        group = 0
        for k in range(5):
            group = 3 * group + padded[k * count + g if partitions else 5 * g + k]
        groups.append(group)
    return bytes(groups)


def zero_run_encoded(groups):
    body = bytearray()
    run = 0
    for group in groups:
        if group == ZERO_GROUP:
            run += 1
            continue
        body += encoded_run(run)
        body.append(group)
        run = 0
    return bytes(body + encoded_run(run))


def encoded_run(length):
    body = b"\xff" * (length // 14)
    rest = length % 14
    if rest == 1:
        body += bytes([ZERO_GROUP])
    elif rest > 1:
        body += bytes([rest + 241])
    return body
