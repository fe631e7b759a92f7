"""What codecs would make of a training's gradients, found out beside a training that uses none."""

import functools
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import torch

from tersewire import _core

from ._tensors import elems_of, refuse, tensor_infos, trained


class DryRun:
    """What dry_run() returns: it looks at gradients until close()."""

    def __init__(self, model: torch.nn.Module, codecs: Sequence[str], policy: str,
                 seed: int) -> None:
        if isinstance(codecs, str) or not all(isinstance(codec, str) for codec in codecs):
            refuse(f"codecs={codecs!r} is not valid; pass a list of codecs' texts")
        self._infos = tensor_infos(model)
        self._run = _core._DryRun(self._infos, list(codecs), policy, seed)
        self._handles = [parameter.register_hook(functools.partial(self._look, number))
                         for number, parameter in enumerate(trained(model))]

    def _look(self, number: int, gradient: torch.Tensor) -> None:
        if self._run.takes(number):
            self._run.look(number, gradient.detach().to("cpu", torch.float32).flatten())

    def _found(self, rate_bits_per_second: float = 0, latency_seconds: float = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._run.json(rate_bits_per_second, latency_seconds))
        return found

    @property
    def share(self) -> float:
        """Of the time since it began, what it took: 0 to 1."""
        share: float = self._found()["share_of_time"]
        return share

    def codecs(self) -> list[dict[str, Any]]:
        """Of each codec, over all parameters: bits per value, error, residual, seconds per value."""
        codecs: list[dict[str, Any]] = self._found()["codecs"]
        return codecs

    def parameters(self) -> list[dict[str, Any]]:
        """The same of each parameter with each codec."""
        parameters: list[dict[str, Any]] = self._found()["tensors"]
        return parameters

    def table(self) -> str:
        """Both as text: of each codec, then of each parameter bits per value and what was lost."""
        return self._run.table()

    def save(self, folder: str | os.PathLike[str], rate_bits_per_second: float = 1e8,
             latency_seconds: float = 0.0) -> None:
        """Writes dry.json and model.json, for `tersewire predict` to say what pays on which link."""
        path = pathlib.Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        _write(path / "dry.json", self._found(rate_bits_per_second, latency_seconds))
        shapes = [{"name": info.name, "shape": list(info.shape), "kind": info.kind}
                  for info in self._infos if elems_of(info)]
        _write(path / "model.json", shapes)

    def close(self) -> None:
        """Looks at no more gradients; what was found stays."""
        for handle in self._handles:
            handle.remove()
        self._handles = []


def _write(path: pathlib.Path, found: Any) -> None:
    """Replaces the file at once: a reader never sees half of it."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(found, indent=1) + "\n")
    temporary.replace(path)


def dry_run(model: torch.nn.Module, codecs: Sequence[str], *, policy: str = "auto",
            seed: int = 0) -> DryRun:
    """Tries codecs on a training's gradients without changing it.

        found = tersewire.torch.dry_run(model, ["3lc", "adacomp:bin=500"])
        ...                                                # the training, unchanged
        print(found.table())
        found.save("dry")      # tersewire predict --model dry/model.json --probe dry/dry.json ...

    model   on the CPU or a GPU, wrapped or not; gradients are this rank's own, before they are
            averaged
    codecs  by their texts; policy and seed as for register()

    In each backward pass it looks at one parameter's gradient at most, until all have had their
    turn, and then as often as 3 % of the time allow: each codec encodes it, with a residual of its
    own. Parameters and gradients stay what they are, bit for bit. Memory: for each codec with a
    residual as much as the model. Raises Error (kInvalidArgument) for unknown codecs.
    """
    return DryRun(model, codecs, policy, seed)
