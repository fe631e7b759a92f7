"""What a writer is given."""

from dataclasses import dataclass, field
from typing import List, Optional

from .random_numbers import Draws


@dataclass
class Task:
    total: List[float]  # T
    values: List[float]  # the input, as often as its lead counts it
    draws: Draws = field(default_factory=Draws)
    gradient: Optional[List[float]] = None  # for oland-raj:bits-from=gradient
    agreed: Optional[List[float]] = None  # terngrad's scalers, where senders share them
    f64: bool = False  # the values are f64 (oland-raj only)
