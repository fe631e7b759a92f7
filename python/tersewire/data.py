"""Images and text that are built in, so that a first training run needs no download.

They are the sets `embedded` and `embedded-text` of `tersewire train` (docs/data.md): the same for
the same seed, on every machine.
"""


import numpy
import numpy.typing

from ._core import _digits, _text
from ._error import Error, ErrorCode

__all__ = ["digits", "text"]

_SIDE = 28


def digits(train: bool = True, seed: int = 1) -> tuple[
        numpy.typing.NDArray[numpy.uint8], numpy.typing.NDArray[numpy.int64]]:
    """Drawn digits, like MNIST's: images of shape (n, 28, 28) and the digit that each shows.

    train  20,000 images to learn from; otherwise the 4,000 of the test
    seed   names the set

    The arrays are the caller's own. Cost: 10 microseconds an image.
    """
    pixels, labels = _digits(_checked(seed), train)
    return (numpy.frombuffer(pixels, numpy.uint8).reshape(-1, _SIDE, _SIDE).copy(),
            numpy.frombuffer(labels, numpy.uint16).astype(numpy.int64))


def text(seed: int = 1) -> str:
    """200,000 characters of talk that a small grammar makes up; the last tenth is the test.

    seed  names the text
    """
    return _text(_checked(seed))


def _checked(seed: int) -> int:
    if not 0 <= seed < 2**64:
        raise Error(ErrorCode.kInvalidArgument, f"the seed is {seed}; use one from 0 to 2^64 - 1")
    return seed
