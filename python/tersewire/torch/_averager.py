"""Averages gradients over ranks, compressed."""

import atexit
import dataclasses
import os
import socket
import time
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Type, Union

import torch
import torch.distributed as dist

import tersewire
from tersewire import Error, ErrorCode

from ._all_reduce import AllReduce
from ._bytes import PayloadGroup
from ._exchanges import AllGather, Exchange, ShardedServer
from ._parts import BucketLayout, Part, elems_of, refuse
from ._ring import Ring

_FLOAT_BYTES = 4
# What a state has beside the residuals of each direction.
_STATE_NAMES = ("rank", "ranks", "step", "loss_scale")

_EXCHANGES: Dict[str, Type[Exchange]] = {
    "all-gather": AllGather,
    "all-reduce": AllReduce,
    "ring": Ring,
    "sharded-server": ShardedServer,
}

# Those of this process, in the order in which they were made.
_averagers: "List[weakref.ref[GradientAverager]]" = []


@dataclass
class Counters:
    """Since the start of this process, of this rank."""

    steps: int = 0
    gradient_bytes: int = 0  # of the gradients in float32
    sent_bytes: int = 0  # to other ranks, without what the process group adds
    received_bytes: int = 0
    not_finite_tensors: int = 0  # encodings of a NaN or an infinity, which travel as they are
    codec_seconds: float = 0.0  # on the clock: encoding and decoding
    transfer_seconds: float = 0.0  # on the clock, in the process group
    exchange_seconds: float = 0.0  # on the clock, from a bucket's turn to its mean


@dataclass(frozen=True)
class Settings:
    """register() says what they are."""

    codec: str
    policy: str
    exchange: str
    seed: int
    warm_up_steps: int
    loss_scale: Optional[Callable[[], float]]
    threads: Optional[int]


class GradientAverager:
    """What register() and DistributedOptimizer share: the residuals and the counters of one rank.

    Call what is public between steps, and in the same order on every rank.
    """

    def __init__(self, infos: Sequence[tersewire.TensorInfo], group: dist.ProcessGroup,
                 settings: Settings) -> None:
        if settings.exchange not in _EXCHANGES:
            refuse(f"there is no exchange '{settings.exchange}'; take one of "
                   f"{', '.join(_EXCHANGES)}")
        self._infos = list(infos)
        self._codecs = tersewire.choose_codecs(settings.policy, settings.codec, self._infos)
        _EXCHANGES[settings.exchange].check_codecs(self._codecs)
        self._warm_up_steps = settings.warm_up_steps
        self._loss_scale = settings.loss_scale
        self._scale = self._loss_scale() if self._loss_scale else 1.0
        self._step = 0
        self._steps_here = 0  # without those before a restart
        self._closed = False
        self._failure: Optional[BaseException] = None
        self._gradient_bytes = 0
        self._exchange_seconds = 0.0
        self._group = PayloadGroup(_own_group(group))
        try:
            ranks_here = self._check_alike(settings)
            threads = settings.threads
            if threads is None:
                threads = max(1, len(os.sched_getaffinity(0)) // ranks_here)
            self._exchange: Exchange = _EXCHANGES[settings.exchange](
                self._group, self._infos, self._codecs, settings.seed,
                None if threads == 1 else tersewire.ThreadPool(threads))
        except BaseException:
            self._group.close()
            raise
        self._parts: Dict[int, List[Part]] = {number: [] for number in range(len(self._infos))}
        for part in self._exchange.parts:
            self._parts[part.parameter].append(part)
        # By a bucket's parameters: buckets change rarely, if at all.
        self._layouts: Dict[Tuple[int, ...], BucketLayout] = {}
        atexit.register(self.close)
        _averagers.append(weakref.ref(self))

    @property
    def rank(self) -> int:
        """Among those that exchange gradients."""
        return self._group.rank

    @property
    def counters(self) -> Counters:
        return Counters(
            steps=self._steps_here,
            gradient_bytes=self._gradient_bytes,
            sent_bytes=self._group.sent_bytes,
            received_bytes=self._group.received_bytes,
            not_finite_tensors=self._exchange.not_finite,
            codec_seconds=self._exchange.decode_seconds + sum(
                direction.seconds for direction in self._exchange.directions.values()),
            transfer_seconds=self._group.seconds,
            exchange_seconds=self._exchange_seconds)

    def average(self, gradients: torch.Tensor) -> None:
        """A step: replaces the gradients of all parameters, one behind the other, by their means.

        gradients  flat, in the order of the parameters
        """
        self._begin_step()
        self._average(self._step, gradients, range(len(self._infos)))
        self._end_step()

    def summary(self) -> str:
        """A table: what each parameter's gradients took, and what they would in float32."""
        pushed = self._exchange.pushed_bytes
        steps = max(1, self._steps_here)
        width = max([len("parameter"), *(len(info.name) for info in self._infos)])
        lines = [f"{'parameter':{width}} {'values':>10} {'codec':16} {'bits a value':>12} {'ratio':>8}"]
        for number, (info, codec) in enumerate(zip(self._infos, self._codecs)):
            parts = self._parts[number]
            elems = elems_of(info)
            sent = sum(pushed[part.number] for part in parts) / steps
            bits = 8 * sent / elems if elems else 0.0
            ratio = f"{_FLOAT_BYTES * elems / sent:7.1f}x" if sent else f"{'-':>8}"
            lines.append(f"{info.name:{width}} {elems:>10} {codec.name:16} {bits:>12.3f} {ratio}")
        counters = self.counters
        lines.append(f"{counters.steps} steps: {counters.sent_bytes} bytes sent and "
                     f"{counters.received_bytes} received by rank {self._group.rank}, for "
                     f"{counters.gradient_bytes} bytes of gradients")
        return "\n".join(lines)

    def state_dict(self) -> Dict[str, Any]:
        """What a restart of this rank would lose: the step's number, and copies of the residuals.

        Save it on every rank, after the same step.
        """
        state: Dict[str, Any] = {"rank": self._group.rank, "ranks": self._group.ranks,
                                 "step": self._step, "loss_scale": self._scale}
        for name, direction in self._exchange.directions.items():
            state[name] = {}
            for part in direction.parts:
                residual = direction.residual(part)
                if residual is not None:
                    self._stretch(state[name], part).copy_(residual)
        return state

    def load_state_dict(self, states: Union[Dict[str, Any], Sequence[Dict[str, Any]]]) -> None:
        """Takes back what state_dict() returned on every rank, in a run with as many or others.

        states  those of all ranks; this rank's own will do where there are as many ranks as then

        With as many ranks the run goes on to the same bits. With others, residuals of what rank r
        pushed go to rank r modulo the number of ranks, where they are added up; those of means go
        to the ranks that serve them now. Raises Error (kInvalidArgument) where the states are not
        those of one step of a run of this model.
        """
        listed = [states] if isinstance(states, dict) else list(states)
        self._check_contents(listed)
        group = self._group
        own = [state for state in listed if state["rank"] == group.rank]
        if own and own[0]["ranks"] == group.ranks:
            listed = own
        elif not listed or len({state["rank"] for state in listed}) != listed[0]["ranks"]:
            refuse("the states are not those of all ranks; pass each rank's, once")
        if len({(state["step"], state["loss_scale"]) for state in listed}) != 1:
            refuse("the states are of different steps; pass those saved after the same one")
        for name, direction in self._exchange.directions.items():
            from_all = name == "pulled"
            taken = [state[name] for state in listed
                     if from_all or state["rank"] % group.ranks == group.rank]
            for part in direction.parts:
                self._load(direction.residual(part), part, taken)
        self._step = listed[0]["step"]
        self._scale = listed[0]["loss_scale"]

    def close(self) -> None:
        """Ends the averager's group; Python's end does so too. Twice is as once.

        Call it after the last step: no gradients can be averaged after it. Counters, summary() and
        state_dict() remain.
        """
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        if self._come_to_rest():
            self._group.close()

    def _come_to_rest(self) -> bool:
        """Whether nothing uses the group any more."""
        return True

    def _check_contents(self, states: Sequence[Dict[str, Any]]) -> None:
        names = set(_STATE_NAMES) | set(self._exchange.directions)
        sizes = {info.name: elems_of(info) for info in self._infos}
        for state in states:
            if set(state) != names:
                refuse("a state is not of this exchange; pass what state_dict() returned with it")
            for name in self._exchange.directions:
                for parameter, residual in state[name].items():
                    if residual.shape != (sizes.get(parameter),):
                        refuse(f"the state has a residual of '{parameter}' with "
                               f"{residual.numel()} values, which this model has not; load the "
                               "state of the same model")
                    if not residual.isfinite().all():
                        refuse(f"the residual of '{parameter}' that was saved holds a NaN or an "
                               "infinity; begin without it")

    def _stretch(self, residuals: Dict[str, torch.Tensor], part: Part) -> torch.Tensor:
        """Where a part lies among residuals by name, which begin at zero."""
        info = self._infos[part.parameter]
        whole = residuals.setdefault(info.name, torch.zeros(elems_of(info)))
        return whole[part.begin:part.end]

    def _load(self, residual: Optional[torch.Tensor], part: Part,
              saved: Sequence[Dict[str, torch.Tensor]]) -> None:
        if residual is None:
            return
        residual.zero_()
        name = self._infos[part.parameter].name
        for residuals in saved:
            if name in residuals:
                residual += residuals[name][part.begin:part.end]

    def _check_alike(self, settings: Settings) -> int:
        """Returns how many of the ranks are on this machine."""
        told: List[Any] = [None] * self._group.ranks
        host = socket.gethostname()
        # A function cannot travel, and each rank has its own, as of threads.
        own = (dataclasses.replace(settings, loss_scale=None, threads=None), [
            (info.name, info.shape, codec.text) for info, codec in zip(self._infos, self._codecs)])
        dist.all_gather_object(told, (host, own), group=self._group.group)
        for rank, (_, others) in enumerate(told):
            if others != told[0][1]:
                refuse(f"rank {rank} has another model or other settings than rank 0; give every "
                       "rank the same")
        return sum(other == host for other, _ in told)

    def _begin_step(self) -> None:
        if self._closed:
            raise Error(ErrorCode.kFailedPrecondition,
                        "the averager of these gradients is closed; close it after the last step")
        if self._loss_scale:
            self._scale_residuals(self._loss_scale())

    def _average(self, step: int, buffer: torch.Tensor, parameters: Sequence[int]) -> None:
        """Replaces a flat buffer's gradients, one parameter's behind the other's, by means."""
        if self._failure:
            raise self._failure
        begin = time.perf_counter()
        try:
            if not (buffer.is_cpu or buffer.is_cuda):
                refuse(f"gradients are on {buffer.device}; train on the CPU or with CUDA")
            in_place = buffer.is_cpu and buffer.dtype is torch.float32
            values = (buffer if in_place else buffer.to("cpu", torch.float32)).numpy()
            self._gradient_bytes += values.nbytes
            self._exchange.mean(step, values, self._layout(parameters),
                                raw=step < self._warm_up_steps)
            if not in_place:
                buffer.copy_(torch.from_numpy(values))
        except BaseException as failure:  # the other ranks are elsewhere now
            self._failure = failure
            raise
        self._exchange_seconds += time.perf_counter() - begin

    def _end_step(self) -> None:
        self._step += 1
        self._steps_here += 1

    def _layout(self, parameters: Sequence[int]) -> BucketLayout:
        """A bucket holds its parameters one behind the other."""
        key = tuple(parameters)
        if key not in self._layouts:
            parts, begins = [], []
            begin = 0
            for parameter in parameters:
                parts += self._parts[parameter]
                begins += [begin + part.begin for part in self._parts[parameter]]
                begin += self._parts[parameter][-1].end
            self._layouts[key] = BucketLayout(parts, begins, self._group.ranks)
        return self._layouts[key]

    def _scale_residuals(self, scale: float) -> None:
        """Residuals are of gradients under the loss scale of their step."""
        if scale == self._scale:
            return
        for direction in self._exchange.directions.values():
            for part in direction.parts:
                residual = direction.residual(part)
                if residual is not None:
                    residual *= scale / self._scale
        self._scale = scale


def _own_group(group: dist.ProcessGroup) -> dist.ProcessGroup:
    """A group of the same ranks for the hook alone: collectives of two threads must not mix."""
    return dist.new_group(dist.get_process_group_ranks(group), backend="gloo")


def summary() -> None:
    """Prints the table of each registered model and wrapped optimizer, on rank 0 alone.

    What each parameter's gradients took, and what they would in float32. Call it on every rank or
    on one, between steps.
    """
    for reference in _averagers:
        averager = reference()
        if averager is not None and averager.rank == 0:
            print(averager.summary(), flush=True)
