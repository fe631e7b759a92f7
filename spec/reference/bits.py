"""Bit streams: bit i is bit (i mod 8) of byte floor(i / 8)."""

from .cursor import Rejected


class BitReader:
    def __init__(self, data, offset, what="body"):
        self.data = data
        self.base = offset  # of data in the message
        self.what = what
        self.position = 0  # in bits

    def offset(self):
        return self.base + self.position // 8

    def field(self, width):
        """An unsigned number of `width` bits, the least significant first."""
        start, end = self.position, self.position + width
        if end > 8 * len(self.data):
            raise Rejected(self.base + len(self.data), f"The {self.what} is cut off")
        self.position = end
        touched = int.from_bytes(self.data[start // 8 : (end + 7) // 8], "little")
        return touched >> start % 8 & (1 << width) - 1

    def zeros(self):
        """How many zero bits come before the next one bit; reads that as well."""
        start = self.position
        while self.position < 8 * len(self.data):
            rest = self.data[self.position // 8] >> self.position % 8
            if rest:
                zeros = self.position - start + (rest & -rest).bit_length() - 1
                self.position = start + zeros + 1
                return zeros
            self.position += 8 - self.position % 8
        raise Rejected(self.base + len(self.data), f"The {self.what} is cut off")

    def end(self):
        """Everything must be used up: what is left are zero bits in the last byte."""
        left = 8 * len(self.data) - self.position
        if left >= 8:
            raise Rejected(self.base + (self.position + 7) // 8, f"The {self.what} is too long")
        if self.field(left):
            raise Rejected(self.base + len(self.data) - 1, "A bit that is left over is set")


def read_fields(cursor, width, count, what):
    """The rest of the cursor's bytes as `count` fields, used up exactly."""
    offset = cursor.offset()
    data = cursor.take_last((width * count + 7) // 8, what)
    reader = BitReader(data, offset, what)
    fields = [reader.field(width) for _ in range(count)]
    reader.end()
    return fields


class BitWriter:
    def __init__(self):
        self.done = bytearray()
        self.open = 0
        self.width = 0

    def field(self, value, width):
        self.open |= value << self.width
        self.width += width
        whole = self.width // 8
        if whole:
            self.done += (self.open & (1 << 8 * whole) - 1).to_bytes(whole, "little")
            self.open >>= 8 * whole
            self.width -= 8 * whole

    def bytes(self):
        return bytes(self.done) + (bytes([self.open]) if self.width else b"")


def fields_as_bytes(values, width):
    writer = BitWriter()
    for value in values:
        writer.field(value, width)
    return writer.bytes()
