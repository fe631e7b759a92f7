"""The parameters of a model as tensors of a job, and the parts of them that ranks serve."""

from dataclasses import dataclass
from typing import List

import torch

import tersewire
from tersewire import Error, ErrorCode

# A shorter part would cost more in frames than serving it elsewhere gains.
_MIN_PART_ELEMS = 1 << 14

_NORMS = (
    torch.nn.modules.batchnorm._NormBase,
    torch.nn.LayerNorm,
    torch.nn.GroupNorm,
)


def refuse(sentence: str) -> None:
    raise Error(ErrorCode.kInvalidArgument, sentence)


@dataclass(frozen=True)
class Part:
    """Elements begin to end - 1 of a parameter. `owner` is the rank that serves them."""

    number: int
    parameter: int
    begin: int
    end: int
    owner: int

    @property
    def elems(self) -> int:
        return self.end - self.begin


def _kind(module: torch.nn.Module, name: str) -> str:
    if isinstance(module, _NORMS):
        return "norm"
    if "bias" in name:
        return "bias"
    if isinstance(module, torch.nn.modules.conv._ConvNd):
        return "conv"
    if isinstance(module, torch.nn.Linear):
        return "dense"
    if isinstance(module, (torch.nn.RNNBase, torch.nn.RNNCellBase)):
        return "recurrent"
    if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
        return "embedding"
    return "other"


def kind_of(name: str, parameter: torch.Tensor) -> str:
    """By name and shape alone, where the module is not known."""
    if "bias" in name:
        return "bias"
    return {1: "norm", 2: "dense"}.get(parameter.dim(), "conv" if parameter.dim() > 2 else "other")


def tensor_infos(model: torch.nn.Module) -> List[tersewire.TensorInfo]:
    """The parameters that are trained, in the order of named_parameters()."""
    modules = dict(model.named_modules())
    infos = []
    for path, parameter in model.named_parameters():
        if parameter.requires_grad:
            module, _, name = path.rpartition(".")
            kind = _kind(modules[module], name)
            infos.append(tersewire.TensorInfo(path, tuple(parameter.shape), kind))
    return infos


def elems_of(info: tersewire.TensorInfo) -> int:
    return torch.Size(info.shape).numel()


def whole_parts(sizes: List[int]) -> List[Part]:
    """A part for each parameter; nobody serves any."""
    return [Part(number, number, 0, size, 0) for number, size in enumerate(sizes)]


def shards(sizes: List[int], ranks: int) -> List[Part]:
    """Parts of about the same size for each rank: large parameters are cut into as many."""
    parts: List[Part] = []
    load = [0] * ranks
    for parameter, size in enumerate(sizes):
        pieces = max(1, min(ranks, size // _MIN_PART_ELEMS))
        for piece in range(pieces):
            begin, end = size * piece // pieces, size * (piece + 1) // pieces
            owner = min(range(ranks), key=lambda rank: load[rank])
            load[owner] += end - begin
            parts.append(Part(len(parts), parameter, begin, end, owner))
    return parts
