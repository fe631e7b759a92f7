"""Runs a training script, as it is, with compressed gradients: python -m tersewire.torch SCRIPT."""

import argparse
import functools
import importlib.machinery
import importlib.util
import io
import json
import os
import sys
import types
import weakref
from typing import Any
from collections.abc import Callable

import torch
from torch.nn.parallel import DistributedDataParallel

import tersewire

from ._averager import Counters, total_of
from ._hook import Hook, register, why_unhookable
from ._settings import Settings
from ._tensors import at_end

_EXAMPLE = """\
example:
  torchrun --nproc_per_node 4 -m tersewire.torch --codec 3lc:s=1.5 train.py --lr 0.003

docs/python.md has more, in "A script that must not change"."""
_OPTIONS = (
    ("codec", str, "of gradients, by default 3lc; auto chooses during training"),
    ("policy", str, "which parameter gets which codec"),
    ("exchange", str, "who sends what to whom, such as gradient-server"),
    ("pull-codec", str, "of the means that servers send"),
    ("rate-gain", float, "what learning rates are multiplied by within steps"),
    ("spike-limit", float, "how many times its median norm a gradient may have, by default 4 for Adam"),
    ("warm-up-steps", int, "number of initial steps without compression"),
    ("budget", str, "with codec auto: the most that a rank may send and receive, such as 2GB/day"),
    ("threads", int, "that encode and decode on this rank"),
    ("seed", int, "for stochastic codecs"))
_LOCAL_RANK = ("--local-rank=", "--local_rank=")  # torch.distributed.launch puts it first
_LAUNCHERS = {"torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate",
              "accelerate.commands.launch", "accelerate.commands.accelerate_cli"}
# In the environment of processes that the script starts: the words before the script's arguments.
_WORDS = "TERSEWIRE_LAUNCHED"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tersewire.torch", allow_abbrev=False, argument_default=argparse.SUPPRESS,
        formatter_class=argparse.RawDescriptionHelpFormatter, epilog=_EXAMPLE,
        description="Runs a training script as it is, with compressed gradients: each\n"
        "DistributedDataParallel that it makes gets the hook of tersewire.torch.register(),\n"
        "which describes the options.")
    for name, kind, what in _OPTIONS:
        parser.add_argument(f"--{name}", type=kind, metavar="TEXT" if kind is str else "N", help=what)
    parser.add_argument("-m", dest="is_module", action="store_true", default=False,
                        help="SCRIPT is the name of a module")
    parser.add_argument("script", metavar="SCRIPT")
    parser.add_argument("own_arguments", metavar="...", nargs=argparse.REMAINDER,
                        help="arguments of the script")
    return parser


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """The words up to the script, and the script's arguments, of which argparse would drop '--'."""
    with_value = {f"--{name}" for name, *_ in _OPTIONS}
    end = 0
    while end < len(words) and words[end].startswith("-"):
        end += 2 if words[end] in with_value else 1
    ours = [word for word in words[:end + 1] if not word.startswith(_LOCAL_RANK)]
    return ours, [word for word in words[:end] if word not in ours] + words[end + 1:]


def _check(settings: dict[str, Any]) -> None:
    """Refuses at once what register() would when the script has loaded its data."""
    checked = Settings(**settings)
    if not checked.is_auto:
        tersewire.choose_codecs(checked.policy, checked.codec_text, [])


def _after_making(kind: Any, call: Callable[[Any], None]) -> None:
    """Has each object of this class passed to `call` once it is made."""
    make = kind.__init__

    @functools.wraps(make)
    def make_and_call(made: Any, *args: Any, **kwargs: Any) -> None:
        make(made, *args, **kwargs)
        call(made)

    kind.__init__ = make_and_call


class _Watch:
    """Hooks each DistributedDataParallel, and remembers what these have counted."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._counted: list[Counters] = []  # of each hook, after its last exchange
        self._hooked: weakref.WeakSet[DistributedDataParallel] = weakref.WeakSet()
        # Lightning's ranks have the latter alone.
        self._is_first = os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0"
        self._scaler: weakref.ref[Any] | None = None
        self._reporter: int | None = None  # the process that report() is due in
        self._keep_hooks()
        _after_making(DistributedDataParallel, self._hook)
        _after_making(torch.amp.GradScaler, self._keep_scaler)

    def _keep_hooks(self) -> None:
        """Has hooked models keep their hook where the script registers one of its own."""
        register_comm_hook = DistributedDataParallel.register_comm_hook

        @functools.wraps(register_comm_hook)
        def keep(model: Any, state: object, hook: Callable[..., Any]) -> None:
            if isinstance(state, Hook) or model not in self._hooked:
                register_comm_hook(model, state, hook)
            else:
                self._say(f"the script's own hook {getattr(hook, '__name__', hook)} is not used")

        DistributedDataParallel.register_comm_hook = keep  # type: ignore[method-assign]

    def _hook(self, model: DistributedDataParallel) -> None:
        reason = _why_left(model)
        if reason:
            self._say(f"a model's gradients stay as they are: {reason}")
            return
        number = len(self._counted)
        self._counted.append(Counters())
        hook = register(model, **self._settings, loss_scale=self._scale,
                        on_step=lambda counters: self._counted.__setitem__(number, counters))
        self._hooked.add(model)
        self._is_first = hook.rank == 0
        self.report_at_end()

    def _keep_scaler(self, scaler: Any) -> None:
        self._scaler = weakref.ref(scaler)

    def _scale(self) -> float:
        """That of the newest GradScaler."""
        scaler = self._scaler() if self._scaler else None
        return 1.0 if scaler is None else scaler.get_scale()

    def report_at_end(self) -> None:
        """Prints what rank 0 has sent when this process ends, once."""
        if self._reporter != os.getpid():  # the first time, or a fork
            self._reporter = os.getpid()
            at_end(self, self._report)

    def _report(self) -> None:
        total = total_of(self._counted)
        if total.steps > 0:
            self._say(f"{total.steps} steps: {total.sent_bytes} bytes sent and "
                      f"{total.received_bytes} received by rank 0, for {total.gradient_bytes} bytes "
                      "of gradients")
        else:
            self._say("nothing was compressed in this process: no DistributedDataParallel of it "
                      "exchanged gradients; unless it started ranks, which report for themselves, "
                      "start this module once for each rank, as torchrun does")

    def _say(self, sentence: str) -> None:
        """On rank 0."""
        if self._is_first:
            print(f"tersewire: {sentence}", file=sys.stderr, flush=True)


def _why_left(model: DistributedDataParallel) -> str | None:
    """Why this launcher leaves the model without a hook, if so."""
    if model.process_group.size() == 1:
        return "its process group has one rank"
    kinds: tuple[Any, ...] = type(model).__mro__
    for kind in kinds[:kinds.index(DistributedDataParallel)]:
        # A model takes one hook, and ours would be there before its own.
        code = getattr(kind.__init__, "__code__", None)
        if "register_comm_hook" in getattr(code, "co_names", ()):
            return f"{kind.__name__} registers a hook of its own"
    return why_unhookable(model)


class _Spec(importlib.machinery.ModuleSpec):
    """The script's: new processes of Lightning and multiprocessing run the module that it names."""

    parent = ""

    def __init__(self, package: str | None) -> None:
        super().__init__(f"{__package__}._again", None)
        self.parent = package or ""  # for relative imports


def _find(script: str, is_module: bool) -> importlib.machinery.ModuleSpec | None:
    """The module to run: the one named, or that of a directory or an archive."""
    if not is_module:
        return importlib.machinery.PathFinder.find_spec("__main__", [script])
    found = importlib.util.find_spec(script)
    is_package = found is not None and found.submodule_search_locations is not None
    return importlib.util.find_spec(f"{script}.__main__") if is_package else found


def _run(script: str, found: importlib.machinery.ModuleSpec | None, name: str) -> dict[str, Any]:
    """Executes a script, or else what was found, as a module of this name; returns its contents."""
    module = types.ModuleType(name)
    if found:
        loader: Any = found.loader
        module.__file__, module.__package__, module.__loader__ = found.origin, found.parent, loader
        code = loader.get_code(found.name)
    else:
        with io.open_code(script) as file:
            code = compile(file.read(), script, "exec", dont_inherit=True)
        module.__file__, module.__package__ = script, None
    module.__spec__ = _Spec(module.__package__)
    sys.modules[name] = module
    exec(code, vars(module))
    return vars(module)


def launch(words: list[str], name: str) -> dict[str, Any]:
    """Runs the script that these words of a command line name, as a module of this name."""
    parser = _parser()
    ours, own = _split(words)
    settings = vars(parser.parse_args(ours))
    is_module, script = settings.pop("is_module"), settings.pop("script")
    del settings["own_arguments"]
    if os.path.basename(script) in _LAUNCHERS:
        parser.error(f"{script} starts ranks, each of which must start this module; put it first: "
                     "torchrun --nproc_per_node N -m tersewire.torch ... SCRIPT")
    found = _find(script, is_module)
    if not (found if is_module else os.path.exists(script)):
        parser.error(f"there is no {'module' if is_module else 'script'} {script}")
    try:
        _check(settings)
    except tersewire.Error as error:
        parser.error(str(error))
    path = script if is_module else os.path.abspath(script)
    os.environ[_WORDS] = json.dumps([*ours[:-1], path])
    sys.argv = [str(found.origin) if found and is_module else script, *own]
    watch = _Watch(settings)
    if name == "__main__":
        watch.report_at_end()
        if not is_module and not getattr(sys.flags, "safe_path", False):  # since Python 3.11
            sys.path[0] = path if found else os.path.dirname(path)
    return _run(script, found, name)


def launch_again(name: str) -> dict[str, Any]:
    """Runs the script of launch() in a process that it has started, with the same settings."""
    return launch([*json.loads(os.environ[_WORDS]), *sys.argv[1:]], name)


if __name__ == "__main__":
    launch(sys.argv[1:], __name__)
