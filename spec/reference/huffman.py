"""Length-limited canonical Huffman codes and their four streams (codec 15)."""

from .bits import BitReader, BitWriter
from .cursor import LARGEST_PAYLOAD, Rejected, varint

LONGEST = 16
STREAMS = 4
LONG_RUN = 7  # in bits 5..7: a varint follows
LONG_RUN_FIRST = 8
LARGEST_LONG_RUN = 2**16


def read_lengths(cursor, symbols):
    """The code length of every symbol, 0 where it is not used."""
    start = cursor.offset()
    lengths = []
    while len(lengths) < symbols:
        offset = cursor.offset()
        length, run = read_item(cursor)
        if len(lengths) + run > symbols:
            raise Rejected(offset, f"There are lengths for more than {symbols} symbols")
        lengths += [length] * run
    # In units of the longest code, so that the sum is exact.
    if sum(1 << LONGEST - length for length in lengths if length) != 1 << LONGEST:
        raise Rejected(start, "The code is not complete: the sum of 2^-length is not 1")
    return lengths


def read_item(cursor):
    """(length, for how many symbols in a row)"""
    offset = cursor.offset()
    byte = cursor.byte("code lengths")
    length, run = byte & 0x1F, byte >> 5
    if length > LONGEST:
        raise Rejected(offset, f"The code length {length} is reserved")
    if run == LONG_RUN:
        return length, LONG_RUN_FIRST + cursor.varint(LARGEST_LONG_RUN, "run of code lengths")
    return length, run + 1


def canonical_codes(lengths):
    """{symbol: (code, length)} of the symbols that are used"""
    codes = {}
    code, before = 0, 0
    for length, symbol in sorted((length, s) for s, length in enumerate(lengths) if length):
        if codes:
            code += 1
        code <<= length - before
        before = length
        codes[symbol] = (code, length)
    return codes


def read_streams(cursor, n, lengths):
    """The symbols of n elements; element e is in stream e mod 4."""
    symbol_of = {code: symbol for symbol, code in canonical_codes(lengths).items()}
    sizes = [cursor.varint(LARGEST_PAYLOAD, "stream length") for _ in range(STREAMS)]
    if sum(sizes) != cursor.left():
        raise Rejected(
            cursor.offset(), f"{cursor.left()} bytes of streams follow and not {sum(sizes)}"
        )
    streams = []
    for stream, size in enumerate(sizes):
        offset = cursor.offset()
        count = len(range(stream, n, STREAMS))
        streams.append(read_stream(cursor.take(size, "stream"), offset, count, symbol_of))
    return [streams[index % STREAMS][index // STREAMS] for index in range(n)]


def read_stream(data, offset, count, symbol_of):
    if count > 8 * len(data):  # a code has one bit at least
        raise Rejected(offset, "A stream is cut off")
    reader = BitReader(data, offset, "stream")
    symbols = [read_symbol(reader, symbol_of) for _ in range(count)]
    reader.end()
    return symbols


def read_symbol(reader, symbol_of):
    code, length = 0, 0
    while (code, length) not in symbol_of:  # the code is complete, so this ends
        code = code << 1 | reader.field(1)
        length += 1
    return symbol_of[code, length]


# --- Writing ---------------------------------------------------------------


def code_lengths(counts, limit):
    """The length of every symbol's code, by package-merge; two symbols must be used."""
    used = sorted((count, symbol) for symbol, count in enumerate(counts) if count)
    lengths = [0] * len(counts)
    by_rank = package_merge([count for count, _ in used], limit)
    for (_, symbol), length in zip(used, by_rank):
        lengths[symbol] = length
    return lengths


def package_merge(weights, limit):
    """Larmore and Hirschberg's algorithm; weights ascend.

    A list of `limit` levels is built: the first holds the symbols, every
    other one the symbols and the packages of neighbours in the one before. The
    2 m - 2 lightest items of the last are the solution: a symbol's length is
    how often it is in them.
    """
    merged, is_symbol = list(weights), [True] * len(weights)
    levels = [is_symbol]
    for _ in range(limit - 1):
        packages = [merged[i] + merged[i + 1] for i in range(0, len(merged) - 1, 2)]
        merged, is_symbol = merge(weights, packages)
        levels.append(is_symbol)
    lengths = [0] * len(weights)
    taken = 2 * len(weights) - 2
    for is_symbol in reversed(levels):
        symbols = is_symbol[:taken].count(True)
        for rank in range(symbols):
            lengths[rank] += 1
        taken = 2 * (taken - symbols)
    return lengths


def merge(symbols, packages):
    """(weights in ascending order, whether each is a symbol's): symbols first where equal"""
    items = [(weight, False) for weight in symbols] + [(weight, True) for weight in packages]
    items.sort()
    return [weight for weight, _ in items], [not package for _, package in items]


def lengths_bytes(lengths):
    encoded = bytearray()
    start = 0
    while start < len(lengths):
        end = start
        while end < len(lengths) and lengths[end] == lengths[start]:
            end += 1
        run = end - start
        if run < LONG_RUN_FIRST:
            encoded.append(lengths[start] | (run - 1) << 5)
        else:
            encoded += bytes([lengths[start] | LONG_RUN << 5]) + varint(run - LONG_RUN_FIRST)
        start = end
    return bytes(encoded)


def streams_bytes(symbols, lengths):
    codes = canonical_codes(lengths)
    streams = [stream_bytes(symbols[first::STREAMS], codes) for first in range(STREAMS)]
    return b"".join(varint(len(stream)) for stream in streams) + b"".join(streams)


def stream_bytes(symbols, codes):
    writer = BitWriter()
    for symbol in symbols:
        code, length = codes[symbol]
        mirrored = int(f"{code:0{length}b}"[::-1], 2)  # most significant bit first
        writer.field(mirrored, length)
    return writer.bytes()
