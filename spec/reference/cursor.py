"""Reading and writing bytes and varints, and how a reader says no."""

# A few bytes can stand for 2^40 elements. The format allows that, but this
# reader expands every element in memory and has to stop somewhere.
EXPANSION_LIMIT = 2**26

LARGEST_PAYLOAD = 2**35 - 1


class Rejected(Exception):
    """The message breaks a rule of the specification."""

    def __init__(self, offset, reason):
        super().__init__(f"{reason}, at offset {offset}.")
        self.offset = offset
        self.reason = reason


class NeedsMore(Exception):
    """The caller has to say something the message does not hold."""


class TooLarge(Exception):
    """The message is larger than this reader is willing to expand."""


def check_expansion(elements):
    if elements > EXPANSION_LIMIT:
        raise TooLarge(f"The tensor has {elements} elements, more than this reader expands.")


class Cursor:
    """Walks over a part of a message and rejects what would pass its end."""

    def __init__(self, data, base):
        self.data = data
        self.base = base  # where data starts in the message
        self.position = 0

    def offset(self):
        """Where in the message the next byte is."""
        return self.base + self.position

    def left(self):
        return len(self.data) - self.position

    def take(self, count, what):
        if count > self.left():
            raise Rejected(self.offset(), f"The {what} is cut off")
        self.position += count
        return self.data[self.position - count : self.position]

    def take_last(self, count, what):
        """The rest, which must have this many bytes."""
        if count != self.left():
            raise Rejected(self.offset(), f"The {what} has {self.left()} bytes and not {count}")
        return self.take(count, what)

    def byte(self, what):
        return self.take(1, what)[0]

    def varint(self, limit, what):
        start = self.offset()
        value = 0
        shift = 0
        while True:
            byte = self.byte(what)
            value |= (byte & 0x7F) << shift
            shift += 7
            if value > limit:
                raise Rejected(start, f"The {what} is above {limit}")
            if byte < 0x80:
                break
        if byte == 0 and shift > 7:
            raise Rejected(start, f"The {what} is not in its shortest form")
        return value

    def end(self):
        if self.left():
            raise Rejected(self.offset(), f"The payload has {self.left()} bytes left over")


def varint(value):
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
