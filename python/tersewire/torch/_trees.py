"""Dictionaries of tensors and numbers as bytes for another rank, which unpickles nothing."""

import json
import math
from typing import Any

import torch

from tersewire import Error, ErrorCode

from ._groups import packed, unpack
from ._tensors import refuse

_LENGTH_BYTES = 4


def _name_of(kind: torch.dtype) -> str:
    return str(kind).rpartition(".")[2]


_TYPES: dict[str, torch.dtype] = {
    _name_of(kind): kind
    for kind in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64,
                 torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)}


def tree_bytes(tree: Any, what: str) -> torch.Tensor:
    """Its structure as JSON behind its length, then the tensors, one behind the other.

    Raises Error (kInvalidArgument), which names `what`, for anything but dictionaries, lists,
    tuples, tensors, numbers, texts and None.
    """
    tensors: list[torch.Tensor] = []

    def told(value: Any, name: Any = None) -> Any:
        if torch.is_tensor(value) and _name_of(value.dtype) in _TYPES:
            tensors.append(value)
            return {"tensor": _name_of(value.dtype), "shape": list(value.shape)}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if type(value) in (list, tuple):
            return {type(value).__name__: [told(item) for item in value]}
        if isinstance(value, dict):
            return {"dict": [[told(key), told(item, key)] for key, item in value.items()]}
        called = "" if name is None else f" as '{name}'"
        refuse(f"{what} holds a {type(value).__name__}{called}, which a rank that joins cannot be "
               "given; convert it to float, int or a tensor, remove it, or use ranks that stay")

    head = json.dumps(told(tree)).encode()
    length = len(head).to_bytes(_LENGTH_BYTES, "little")
    return torch.cat([torch.frombuffer(bytearray(length + head), dtype=torch.uint8),
                      packed(tensors)])


def tree_of(data: torch.Tensor) -> Any:
    """The inverse of tree_bytes(); bytes behind it are ignored. Raises Error (kDataLoss)."""
    raw = data.numpy().tobytes()
    end = _LENGTH_BYTES + int.from_bytes(raw[:_LENGTH_BYTES], "little")
    at = end

    def meant(value: Any) -> Any:
        nonlocal at
        if not isinstance(value, dict):
            if isinstance(value, list):
                raise ValueError("a list of unknown kind")
            return value
        if set(value) == {"tensor", "shape"}:
            kind, shape = _TYPES[value["tensor"]], value["shape"]
            if not all(type(length) is int and length >= 0 for length in shape):
                raise ValueError("no shape")
            begin, at = at, at + math.prod(shape) * kind.itemsize
            if at > len(raw):
                raise ValueError("a tensor is cut off")
            tensor = torch.empty(shape, dtype=kind, device="cpu")
            unpack(data[begin:at], [tensor])
            return tensor
        (kind_name, items), = value.items()
        if kind_name == "dict":
            return {meant(key): meant(item) for key, item in items}
        return {"list": list, "tuple": tuple}[kind_name](meant(item) for item in items)

    try:
        if end > len(raw):
            raise ValueError("it is cut off")
        return meant(json.loads(raw[_LENGTH_BYTES:end]))
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise Error(ErrorCode.kDataLoss,
                    f"the optimizer's state that was handed over is malformed ({error}); run one "
                    "script and one version everywhere") from None
