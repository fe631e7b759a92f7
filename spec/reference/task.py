"""What a writer is given."""

from dataclasses import dataclass, field

from .random_numbers import Draws


@dataclass
class Task:
    total: list[float]  # T
    values: list[float]  # the input, as often as its lead counts it
    draws: Draws = field(default_factory=Draws)
    gradient: list[float] | None = None  # for oland-raj:bits-from=gradient
    agreed: list[float] | None = None  # terngrad's scalers, where senders share them
    f64: bool = False  # the values are f64 (oland-raj only)
