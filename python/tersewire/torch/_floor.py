"""Refuses to be imported where there is no torch that this package is for."""

import re

_OLDEST = 2, 6

try:
    import torch
except ModuleNotFoundError as missing:
    if missing.name != "torch":
        raise
    raise ImportError(f"tersewire.torch needs PyTorch {_OLDEST[0]}.{_OLDEST[1]} or later, and this Python has "
                      "none; install it: pip install torch") from None

_found = re.match(r"(\d+)\.(\d+)", torch.__version__)
if _found and (int(_found[1]), int(_found[2])) < _OLDEST:
    raise ImportError(f"tersewire.torch needs PyTorch {_OLDEST[0]}.{_OLDEST[1]} or later, and this is "
                      f"{torch.__version__}; update it: pip install --upgrade torch")
