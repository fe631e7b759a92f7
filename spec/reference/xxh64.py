"""XXH64, the checksum of a message."""

import struct

PRIME_1 = 0x9E3779B185EBCA87
PRIME_2 = 0xC2B2AE3D27D4EB4F
PRIME_3 = 0x165667B19E3779F9
PRIME_4 = 0x85EBCA77C2B2AE63
PRIME_5 = 0x27D4EB2F165667C5
MASK = 2**64 - 1


def rotate_left(value, bits):
    return ((value << bits) | (value >> (64 - bits))) & MASK


def xxh64_round(lane, word):
    return rotate_left((lane + word * PRIME_2) & MASK, 31) * PRIME_1 & MASK


def xxh64_stripes(data, seed):
    """The hash state after all whole 32-byte stripes."""
    a = (seed + PRIME_1 + PRIME_2) & MASK
    b = (seed + PRIME_2) & MASK
    c = seed
    d = (seed - PRIME_1) & MASK
    whole = len(data) - len(data) % 32
    for w, x, y, z in struct.iter_unpack("<4Q", data[:whole]):
        a = xxh64_round(a, w)
        b = xxh64_round(b, x)
        c = xxh64_round(c, y)
        d = xxh64_round(d, z)
    state = rotate_left(a, 1) + rotate_left(b, 7) + rotate_left(c, 12) + rotate_left(d, 18)
    for lane in (a, b, c, d):
        state = ((state ^ xxh64_round(0, lane)) * PRIME_1 + PRIME_4) & MASK
    return state


def xxh64_tail(state, tail):
    """Mixes in the last 0 to 31 bytes: eight at a time, then four, then one."""
    position = 0
    while len(tail) - position >= 8:
        (word,) = struct.unpack_from("<Q", tail, position)
        state = rotate_left(state ^ xxh64_round(0, word), 27) * PRIME_1 + PRIME_4 & MASK
        position += 8
    if len(tail) - position >= 4:
        (word,) = struct.unpack_from("<I", tail, position)
        state = rotate_left(state ^ (word * PRIME_1 & MASK), 23) * PRIME_2 + PRIME_3 & MASK
        position += 4
    for byte in tail[position:]:
        state = rotate_left(state ^ (byte * PRIME_5 & MASK), 11) * PRIME_1 & MASK
    return state


def xxh64(data, seed=0):
    state = xxh64_stripes(data, seed) if len(data) >= 32 else (seed + PRIME_5) & MASK
    state = (state + len(data)) & MASK
    state = xxh64_tail(state, data[len(data) - len(data) % 32 :])
    state = (state ^ (state >> 33)) * PRIME_2 & MASK
    state = (state ^ (state >> 29)) * PRIME_3 & MASK
    return state ^ (state >> 32)
