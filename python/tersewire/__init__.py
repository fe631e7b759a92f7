"""Tersewire: cheap distributed training on slow networks.

Codecs turn the state changes of training (gradients, model deltas) into few bytes and back, in
place in numpy arrays and torch CPU tensors:

    codec = tersewire.Codec("3lc:s=1.75")
    encoder = codec.encoder(gradient.shape)       # keeps what is still to be sent
    payload = encoder.encode(gradient, step)      # bytes that know their codec
    tersewire.decode_add(payload, 1.0, total)

docs/python.md has more.
"""

import sys

if sys.version_info < (3, 10):  # noqa: UP036  # pip was not asked
    raise ImportError("tersewire needs Python 3.10 or later, and this is "
                      f"{sys.version_info[0]}.{sys.version_info[1]}; run it with a newer one")

from ._core import (
    Codec,
    CodecDescription,
    CodecParameter,
    Encoder,
    Frame,
    Message,
    Payload,
    TensorInfo,
    ThreadPool,
    __version__,
    check_payload,
    choose_codecs,
    codecs,
    decode,
    decode_add,
    decode_levels_add,
    encode_levels,
    inspect,
    pack,
    parse,
    payload_parameters,
    payload_scalers,
)
from ._error import Error, ErrorCode

__all__ = [
    "Codec",
    "CodecDescription",
    "CodecParameter",
    "Encoder",
    "Error",
    "ErrorCode",
    "Frame",
    "Message",
    "Payload",
    "TensorInfo",
    "ThreadPool",
    "__version__",
    "check_payload",
    "choose_codecs",
    "codecs",
    "decode",
    "decode_add",
    "decode_levels_add",
    "encode_levels",
    "inspect",
    "pack",
    "parse",
    "payload_parameters",
    "payload_scalers",
]
