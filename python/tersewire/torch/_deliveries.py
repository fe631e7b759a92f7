"""What gradients hold of means that were delivered to them, and whether these were applied."""

import functools
import weakref
from collections.abc import Callable, Iterable, Sequence

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from ._private import queue_callback, untraced


class Deliveries:
    """Those to the parameters of one model, by their numbers.

    A backward pass adds to what a gradient holds. If that has the mean of an earlier pass, only the
    rest is new. If a mean is gone before an optimizer has stepped, or, where none ever has, before the
    parameter has changed, it was thrown away.

    moves  whether gradients become other tensors with the same values, as DistributedDataParallel's
           views of buckets do; otherwise a script has set those that are others
    """

    def __init__(self, parameters: Sequence[torch.Tensor], moves: bool) -> None:
        self._parameters, self._moves = parameters, moves
        self._versions: dict[int, int] = {}  # that parameters had when their gradients got a mean
        # The gradients that have one, while they are those of their parameters.
        self._gradients: dict[int, Callable[[], torch.Tensor | None]] = {}
        self._stepped: set[int] = set()  # those whose optimizer has taken a step since
        self._have_stepped: set[int] = set()  # and ever: nothing else applies their gradients
        self._bases: dict[int, torch.Tensor] = {}  # what gradients held before what is new
        self._noted: set[int] = set()  # in the backward pass under way
        self._discarded: set[int] = set()
        self._numbers = {id(parameter): number for number, parameter in enumerate(parameters)}
        this = weakref.ref(self)
        handles = [parameter.register_hook(functools.partial(_note, this, number))
                   for number, parameter in enumerate(parameters)]
        # Of whatever optimizer: one may be made later than this.
        handles.append(register_optimizer_step_post_hook(functools.partial(_note_step, this)))
        for handle in handles:
            weakref.finalize(self, handle.remove).atexit = False

    def begin_pass(self) -> set[int]:
        """Before the first bucket: the parameters whose last means were thrown away."""
        for number in [number for number in self._versions if number not in self._noted]:
            self._look(number)
        discarded, self._discarded = self._discarded, set()
        return discarded

    def bases(self, numbers: Iterable[int]) -> dict[int, torch.Tensor]:
        """What their gradients held before what is new, where they held anything."""
        return {number: self._bases[number] for number in numbers if number in self._bases}

    def deliver(self, numbers: Iterable[int]) -> None:
        """Their gradients have means of all that is in them."""
        for number in numbers:
            self._bases.pop(number, None)
            self._stepped.discard(number)
            self._versions[number] = self._parameters[number]._version
            self._remember(number)

    def _note(self, number: int) -> None:
        if not self._noted:
            queue_callback(self._end_pass)
        self._noted.add(number)
        self._look(number)

    def _end_pass(self) -> None:
        """A pass may put another tensor in a gradient's place, with what that held."""
        for number in self._noted.intersection(self._bases):
            self._remember(number)
        self._noted.clear()

    def _remember(self, number: int) -> None:
        gradient = self._parameters[number].grad
        self._gradients[number] = (lambda: None) if gradient is None else weakref.ref(gradient)

    @torch.no_grad()
    def _look(self, number: int) -> None:
        """At a gradient to which this pass has added nothing yet."""
        if number not in self._versions:
            return
        parameter = self._parameters[number]
        gradient = parameter.grad
        # What else changes a parameter applies nothing, as SAM's climb to where its second gradient is.
        is_applied = number in self._stepped or (
            number not in self._have_stepped and parameter._version != self._versions[number])
        # Whether it was zeroed in place costs an accelerator a pause, and matters if it was not applied.
        if gradient is not None and (self._moves or self._gradients[number]() is gradient) and (
                is_applied and not gradient.is_cpu or bool(gradient.any())):
            if number not in self._bases:
                self._bases[number] = gradient.detach().clone()
            return
        del self._versions[number]
        self._gradients.pop(number, None)
        self._bases.pop(number, None)
        if not is_applied:
            self._discarded.add(number)


@untraced
def _note_step(deliveries: "weakref.ref[Deliveries]", optimizer: torch.optim.Optimizer, *_: object) -> None:
    """After a step: it applies gradients, however it changes parameters. It keeps nothing alive."""
    found = deliveries()
    if found is not None:
        stepped = {found._numbers[id(one)] for group in optimizer.param_groups
                   for one in group["params"] if id(one) in found._numbers}
        found._stepped |= stepped
        found._have_stepped |= stepped


def _note(deliveries: "weakref.ref[Deliveries]", number: int, _: torch.Tensor) -> None:
    """Before a gradient is added to: the hook of a parameter, which keeps nothing alive."""
    found = deliveries()
    if found is not None:
        found._note(number)
