"""Keeps spikes of gradients out of residuals, which would send them on for many steps."""

import math
from typing import Optional

import torch

# A spike is compared with the median of as many norms; what stays for half of them is none.
_WINDOW = 9
# Times that median: the default under Adam.
USUAL_LIMIT = 4.0


class Norms:
    """The last norms of each parameter's gradient on this rank."""

    def __init__(self, parameters: int) -> None:
        self._last = torch.full((parameters, _WINDOW), math.nan)  # newest first

    @property
    def state(self) -> torch.Tensor:
        """A copy."""
        return self._last.clone()

    def load(self, state: Optional[torch.Tensor]) -> None:
        """Continues from a state, or from none."""
        if not torch.is_tensor(state) or state.shape != self._last.shape:
            self._last.fill_(math.nan)
        else:
            self._last.copy_(state)

    def limit(self, number: int, gradient: torch.Tensor, limit: float) -> None:
        """Scales a parameter's next gradient down to `limit` times its usual norm.

        Zeros, which say nothing of what is usual, and what is not finite stay as they are.
        """
        norm = float(torch.linalg.vector_norm(gradient))
        if not 0 < norm < math.inf:
            return
        last = self._last[number]
        most = limit * float(last.nanmedian())  # NaN before the second
        last[1:] = last[:-1].clone()
        last[0] = norm
        if norm > most:
            gradient *= most / norm
