"""Runs a training script, as it is, with compressed gradients: python -m tersewire.torch SCRIPT."""

import argparse
import functools
import os
import pathlib
import runpy
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

import tersewire

from ._averager import Counters, total_of
from ._hook import Hook, register, why_unhookable
from ._settings import Settings

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


def _check(settings: dict[str, Any]) -> None:
    """Refuses at once what register() would when the script has loaded its data."""
    checked = Settings(**settings)
    if not checked.is_auto:
        tersewire.choose_codecs(checked.policy, checked.codec_text, [])


def _keep_hooks(say: Callable[[str], None]) -> None:
    """Has models keep their hook where the script registers one of its own."""
    register_comm_hook = DistributedDataParallel.register_comm_hook

    @functools.wraps(register_comm_hook)
    def keep(model: Any, state: object, hook: Callable[..., Any]) -> None:
        if isinstance(state, Hook) or why_unhookable(model):
            register_comm_hook(model, state, hook)
        else:
            say(f"the script's own hook {getattr(hook, '__name__', hook)} is not used")

    DistributedDataParallel.register_comm_hook = keep


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
        self._is_first = os.environ.get("RANK", "0") == "0"
        self._scaler: weakref.ref[Any] | None = None
        _keep_hooks(self._say)
        _after_making(DistributedDataParallel, self._hook)
        _after_making(getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler), self._keep_scaler)

    def _hook(self, model: DistributedDataParallel) -> None:
        reason = why_unhookable(model)
        if reason:
            self._say(f"a model's gradients stay as they are: {reason}")
            return
        number = len(self._counted)
        self._counted.append(Counters())
        hook = register(model, **self._settings, loss_scale=self._scale,
                        on_step=lambda counters: self._counted.__setitem__(number, counters))
        self._is_first = hook.rank == 0

    def _keep_scaler(self, scaler: Any) -> None:
        self._scaler = weakref.ref(scaler)

    def _scale(self) -> float:
        """That of the newest GradScaler."""
        scaler = self._scaler() if self._scaler else None
        return 1.0 if scaler is None else scaler.get_scale()

    def report(self) -> None:
        """Prints what rank 0 has sent."""
        total = total_of(self._counted)
        if total.steps > 0:
            self._say(f"{total.steps} steps: {total.sent_bytes} bytes sent and "
                      f"{total.received_bytes} received by rank 0, for {total.gradient_bytes} bytes "
                      "of gradients")
        else:
            self._say("nothing was compressed: no DistributedDataParallel of this process has "
                      "exchanged gradients; start this module once for each rank, as torchrun does")

    def _say(self, sentence: str) -> None:
        """On rank 0."""
        if self._is_first:
            print(f"tersewire: {sentence}", file=sys.stderr, flush=True)


def main() -> None:
    parser = _parser()
    settings = vars(parser.parse_args())
    is_module, script = settings.pop("is_module"), settings.pop("script")
    sys.argv = [script, *settings.pop("own_arguments")]
    if not is_module and not os.path.exists(script):
        parser.error(f"there is no script {script}")
    try:
        _check(settings)
    except tersewire.Error as error:
        parser.error(str(error))
    watch = _Watch(settings)
    try:
        if is_module:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(pathlib.Path(script).resolve().parent)
            runpy.run_path(script, run_name="__main__")
    finally:
        watch.report()


if __name__ == "__main__":
    main()
