"""The parameters of a model as tensors of a job."""

import functools
import gc
import logging
import multiprocessing
import multiprocessing.util
import os
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar, cast

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tersewire
from tersewire import Error, ErrorCode

Call = TypeVar("Call", bound=Callable[..., Any])

_log = logging.getLogger("tersewire")
_KINDS = (
    ((nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm), "norm"),
    (nn.modules.conv._ConvNd, "conv"),
    (nn.Linear, "dense"),
    ((nn.RNNBase, nn.RNNCellBase), "recurrent"),
    ((nn.Embedding, nn.EmbeddingBag), "embedding"),
)


def refuse(sentence: str) -> NoReturn:
    raise Error(ErrorCode.kInvalidArgument, sentence)


@functools.lru_cache(None)
def say_once(sentence: str) -> None:
    """A warning, the first time."""
    _log.warning(sentence)


def at_end(owner: Any, call: Callable[..., None], *args: Any) -> Any:
    """weakref.finalize(), except in processes that were forked, in which there are no threads."""
    end = weakref.finalize(owner, _call_in, os.getpid(), call, *args)
    if multiprocessing.parent_process() is not None:  # these end without what atexit has
        multiprocessing.util.Finalize(None, end, exitpriority=0)
    return end


def _call_in(process: int, call: Callable[..., None], *args: Any) -> None:
    if os.getpid() == process:
        call(*args)


def without_grad(call: Call) -> Call:
    """torch.no_grad(), also where what is made here must outlive an inference mode."""

    @functools.wraps(call)
    def called(*args: Any, **kwargs: Any) -> Any:
        with torch.inference_mode(False), torch.no_grad():
            return call(*args, **kwargs)

    return cast(Call, called)


def check_optimizer(optimizer: Any) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        refuse(f"a {type(optimizer).__name__} is not an optimizer; pass one of torch.optim")


def rates_of(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Its groups' settings."""
    return [{name: value for name, value in group.items() if name != "params"}
            for group in optimizer.param_groups]


def through_host(tree: Any) -> Any:
    """With the tensors in dictionaries, lists and tuples on the CPU."""
    if torch.is_tensor(tree):
        return tree.cpu()
    if isinstance(tree, dict):
        return {name: through_host(value) for name, value in tree.items()}
    return type(tree)(map(through_host, tree)) if type(tree) in (list, tuple) else tree


def are_same(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Whether they are the same objects, in the same order."""
    return len(some) == len(others) and all(a is b for a, b in zip(some, others))


def places(parameters: Sequence[torch.Tensor],
           *buffers: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Each parameter with its place, in its shape, in buffers that hold all of them concatenated."""
    sizes = [parameter.numel() for parameter in parameters]
    for parameter, *found in zip(parameters, *(buffer.split(sizes) for buffer in buffers)):
        yield (parameter, *(place.view(parameter.shape) for place in found))


def _kind(module: nn.Module, name: str) -> str:
    kind = next((kind for types, kind in _KINDS if isinstance(module, types)), "other")
    return "bias" if "bias" in name and kind != "norm" else kind


def norms_in(named: Iterable[tuple[str, torch.Tensor]]) -> dict[str, str]:
    """The kind "norm" of each parameter that scales or shifts channels, whatever its module's class.

    It has one dimension, and is no bias of a module that has others.
    """
    of_module: dict[str, dict[str, torch.Tensor]] = {}
    for path, value in named:
        refuse_unfilled(path, value)
        of_module.setdefault(path.rpartition(".")[0], {})[path] = value
    found = {}
    for values in of_module.values():
        scales = [path for path, value in values.items()
                  if value.dim() == 1 and "bias" not in path.rpartition(".")[2]]
        if scales and all(value.dim() < 2 for value in values.values()):
            scales = [path for path, value in values.items() if value.dim() == 1]
        found.update(dict.fromkeys(scales, "norm"))
    return found


def uncompiled(model: Any) -> Any:
    """What torch.compile() was passed, or the model itself."""
    return getattr(model, "_orig_mod", model)


def own_name(path: str) -> str:
    """A parameter's name, whether or not modules on the path to it are compiled or checkpointed."""
    return path.replace("_orig_mod.", "").replace("_checkpoint_wrapped_module.", "")


def kinds_of(model: nn.Module) -> dict[str, str]:
    """Of its parameters, by their names."""
    modules = dict(model.named_modules())
    norms = norms_in(model.named_parameters())
    paths = ((path, *path.rpartition(".")) for path, _ in model.named_parameters())
    return {own_name(path): norms.get(path) or _kind(modules[module], name)
            for path, module, _, name in paths}


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def refuse_unfilled(name: str, value: torch.Tensor) -> None:
    """A lazy parameter or buffer, or one on the device meta."""
    if nn.parameter.is_lazy(value):
        refuse(f"'{name}' is lazy and has no shape yet; pass the model a batch first, on every rank")
    if value.is_meta:
        refuse(f"'{name}' is on the device meta, where it has no values; give it some first, as "
               "model.to_empty(device=...) and the model's initialization do")


def tensor_info(name: str, parameter: torch.Tensor, kind: Any) -> tersewire.TensorInfo:
    refuse_unfilled(name, parameter)
    if parameter.layout is not torch.strided:
        refuse(f"parameter '{name}' is sparse ({parameter.layout}), and codecs take dense ones; keep "
               "its values in a parameter of their own")
    if parameter.is_complex():
        refuse(f"parameter '{name}' is complex, and codecs take real numbers; keep its real and "
               "imaginary parts as two parameters")
    refuse_sharded(name, parameter)
    return tersewire.TensorInfo(name, tuple(parameter.shape), kind)


def refuse_sharded(name: str, value: torch.Tensor) -> None:
    """A DTensor, or a parameter of FullyShardedDataParallel."""
    if hasattr(value, "placements") or "_fsdp_wrapped_module." in name or "_flat_param" in name:
        refuse(f"'{name}' is sharded (by FSDP, replicate() or tensor parallelism), which is not "
               "supported yet; train the model in DistributedDataParallel, or unwrapped with "
               "DistributedOptimizer or LocalUpdates")


def tensor_infos(model: nn.Module, ignored: Container[str] = ()) -> list[tersewire.TensorInfo]:
    """The parameters that are trained, in the order of named_parameters().

    ignored  "MODULE.NAME" of those to leave out, ".NAME" if they are the model's own
    """
    for path, module in model.named_modules():
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.sparse and trained(module):
            refuse(f"module '{path or type(module).__name__}' has sparse gradients, which no codec takes; make it with "
                   "sparse=False")
    kinds = kinds_of(model)
    return [tensor_info(own_name(path), parameter, kinds[own_name(path)])
            for path, parameter in model.named_parameters() if parameter.requires_grad
            and (path if "." in path else f".{path}") not in ignored]


def ddps_of(parameter: torch.Tensor) -> list[DistributedDataParallel]:
    """Those that contain it; only a search finds them."""
    return [model for model in _instances(DistributedDataParallel)
            if any(parameter is own for own in model.parameters())]


def optimizers_of(parameters: Iterable[torch.Tensor]) -> list[torch.optim.Optimizer]:
    """Those that train any of them, wrappers too; only a search finds them."""
    ids = set(map(id, parameters))
    return [optimizer for optimizer in _instances(torch.optim.Optimizer)
            if any(id(own) in ids for group in getattr(optimizer, "param_groups", [])
                   for own in group["params"])]


def _instances(kind: type) -> Iterator[Any]:
    gc.collect()  # one that nobody has any more is none
    # An instance refers to its class. A list of all objects would keep tensors that Gloo's threads
    # free meanwhile, of which torch warns.
    return (found for found in gc.get_referrers(*_with_subclasses(kind))
            if issubclass(type(found), kind))


def _with_subclasses(kind: type) -> list[type]:
    subclasses: list[type] = kind.__subclasses__()
    return [kind, *(other for sub in subclasses for other in _with_subclasses(sub))]


def elems_of(info: tersewire.TensorInfo) -> int:
    return torch.Size(info.shape).numel()
