"""Keeps spikes of gradients out of residuals, which would send them on for many steps."""

import math
from collections.abc import Sequence

import torch

# A spike is compared with the median of as many norms; what stays for half of them is none.
_WINDOW = 9
# Times that median: the default under Adam.
USUAL_LIMIT = 4.0


class Norms:
    """The last norms of each parameter's gradient on this rank."""

    def __init__(self, parameters: int) -> None:
        # Newest first.
        self._last = torch.full((parameters, _WINDOW), math.nan, dtype=torch.float32, device="cpu")

    @property
    def state(self) -> torch.Tensor:
        """A copy."""
        return self._last.clone()

    def load(self, state: torch.Tensor | None) -> None:
        """Continues from a state, or from none."""
        if not torch.is_tensor(state) or state.shape != self._last.shape:
            self._last.fill_(math.nan)
        else:
            self._last.copy_(state)

    def limit(self, gradients: Sequence[tuple[int, torch.Tensor]], limits: torch.Tensor) -> None:
        """Scales next gradients, by their parameters' numbers, down to that parameter's limit
        times its usual norm.

        Zeros, which say nothing of what is usual, and what is not finite stay as they are.
        """
        numbers = [number for number, _ in gradients]
        norms = torch.stack([torch.linalg.vector_norm(gradient) for _, gradient in gradients])
        last = self._last[numbers]
        most = limits[numbers] * last.nanmedian(dim=1).values  # NaN before the second
        counts = (norms > 0) & (norms < math.inf)
        newest_first = torch.cat([norms.unsqueeze(1), last[:, :-1]], dim=1)
        self._last[numbers] = torch.where(counts.unsqueeze(1), newest_first, last)
        for i in (counts & (norms > most)).nonzero().flatten().tolist():
            gradients[i][1].mul_(most[i] / norms[i])
