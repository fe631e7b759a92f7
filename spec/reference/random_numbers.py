"""Counter-based random numbers ("Random numbers"): Philox4x32 with 10 rounds."""

MASK = 2**32 - 1
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


def philox(counter, key):
    """The block of four words for a counter of four and a key of two words."""
    a, b, c, d = counter
    first_key, second_key = key
    for _ in range(ROUNDS):
        first, second = MULTIPLIERS[0] * a, MULTIPLIERS[1] * c
        a, b, c, d = (
            (second >> 32) ^ b ^ first_key,
            second & MASK,
            (first >> 32) ^ d ^ second_key,
            first & MASK,
        )
        first_key = (first_key + KEY_STEPS[0]) & MASK
        second_key = (second_key + KEY_STEPS[1]) & MASK
    return a, b, c, d


class Draws:
    """The random numbers for one part of a tensor in one step."""

    def __init__(self, seed=0, sender=0, tensor=0, step=0, first=0):
        """first is the place in the tensor of the part's first element."""
        self.key = (seed & MASK, seed >> 32)
        self.sender = sender
        self.tensor = tensor
        self.step = step
        self.first = first
        self.blocks = {}

    def block(self, j):
        if j not in self.blocks:
            counter = (j & MASK, (j >> 32) + 256 * self.sender, self.tensor, self.step & MASK)
            self.blocks[j] = philox(counter, self.key)
        return self.blocks[j]

    def word(self, draw):
        draw += self.first
        return self.block(draw // 4)[draw % 4]

    def uniform(self, draw):
        """u(draw), a multiple of 2^-24 in 0 <= u < 1"""
        return (self.word(draw) >> 8) * 2.0**-24

    def sample(self, values, size):
        """`size` of the values, with repetition."""
        return [values[self.word(i) * len(values) >> 32] for i in range(size)]
