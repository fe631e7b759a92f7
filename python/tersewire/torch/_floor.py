"""Refuses to be imported where there is no torch that this package is for."""

import re

_OLDEST = 2, 6
_NEEDS = "tersewire.torch needs PyTorch {}.{} or later".format(*_OLDEST)

try:
    import torch
except ModuleNotFoundError as missing:
    if missing.name != "torch":
        raise
    raise ImportError(f"{_NEEDS}, and this Python has none; install it: pip install torch") from None

_found = re.match(r"(\d+)\.(\d+)", torch.__version__)
if _found and (int(_found[1]), int(_found[2])) < _OLDEST:
    raise ImportError(f"{_NEEDS}, and this is {torch.__version__}; update it: pip install --upgrade torch")
