"""Averages gradients over ranks, compressed: what register() and DistributedOptimizer share."""

import dataclasses
import json
import logging
import math
import time
import weakref
from dataclasses import dataclass
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

import tersewire
from tersewire import Error, ErrorCode, _core

from ._callers import refuse_loss
from ._groups import AnyGroup, Group, group_of, meet_ranks
from ._settings import Settings
from ._spikes import Norms
from ._tensors import at_end, elems_of, refuse

_FLOAT_BYTES = 4
_STATE_NAMES = {"exchange", "rank", "ranks", "step", "pushed", "pulled"}
_SOME_STATE_NAMES = {"adaptive", "decisions", "followed", "norms", "shares"}
_log = logging.getLogger("tersewire")
# What state_dict() returned on this rank, or on all.
States = dict[str, Any] | Sequence[dict[str, Any]]
# Takes parameters' numbers and gradients.
SpikeLimiter = Callable[[Sequence[tuple[int, torch.Tensor]]], None]

# The averagers of this process, in order of creation.
_averagers: "list[weakref.ref[GradientAverager]]" = []


def _json(decisions: list[dict[str, Any]]) -> str:
    """What JSON cannot express, the reader refuses."""
    return json.dumps(decisions, skipkeys=True, default=repr)


@dataclass
class Counters:
    """This rank's counters since the start of this process."""

    steps: int = 0
    gradient_bytes: int = 0  # of the gradients in float32
    sent_bytes: int = 0  # to other ranks: whole messages
    received_bytes: int = 0
    not_finite_tensors: int = 0  # encodings of a NaN or an infinity, sent uncompressed
    codec_seconds: float = 0.0  # processor time: encoding gradients and decoding means
    transfer_seconds: float = 0.0  # elapsed, waiting for other ranks and for servers
    exchange_seconds: float = 0.0  # elapsed, from a bucket's turn to its mean
    codec: str = ""  # of the last step, unless the policy says otherwise
    decisions: tuple[str, ...] = ()  # in the last step, with codec="auto": sentences, on rank 0


def total_of(counted: Iterable[Counters]) -> Counters:
    """Their sums, and the last one's codec."""
    total = Counters()
    for counters in counted:
        for name, value in vars(counters).items():
            setattr(total, name, value if name == "codec" else getattr(total, name) + value)
    return total


class GradientAverager:
    """The residuals and the counters of one rank.

    Call public methods between steps, and in the same order on every rank; counters and summary()
    in any thread. close() in another thread ends a step that waits, with an Error.
    """

    _overlaps = False  # whether gradients are exchanged while others are computed
    _undoable = False  # whether an exchange of parameters may be undone
    _may_undo = False  # and the last one is still that of this worker
    _elastic = False  # whether ranks may come and go
    _tells_uses = False  # whether ranks tell each other which parameters have gradients
    # With exchange parameter-server what owners make of means: (part, mean, change) as arrays.
    _update: Callable[..., None] | None = None

    def __init__(self, infos: Sequence[tersewire.TensorInfo],
                 group: Group | AnyGroup | None, settings: Settings) -> None:
        self._infos = list(infos)
        # Whether each parameter has a gradient; once averaged, 0 for those that have none on any rank.
        self._uses = torch.ones(len(self._infos), dtype=torch.float32, device="cpu")
        if self._tells_uses:
            self._infos.append(tersewire.TensorInfo("(which have gradients)", [len(self._uses)], exact=True))
        self._group = group_of(group, self._elastic)
        self._steps_before = 0  # a restart
        self._steps_here = 0
        self._gradient_bytes = 0
        self._exchange_seconds = 0.0
        self._codec = ""  # of the last step
        self._news: tuple[str, ...] = ()
        self._norms = Norms(len(self._infos))
        self._last_state: Any = None
        self._worker = self._meet(settings)
        self._join(self._worker)
        # Nothing that it needs refers to this object, which may be deleted without close().
        self._end = at_end(self, _core._MeanWorker.close, self._worker)
        _averagers.append(weakref.ref(self))

    def _meet(self, settings: Settings) -> _core._MeanWorker:
        """Agrees with the other ranks on settings; the returned worker has yet to join theirs."""
        codecs = [] if settings.is_auto else tersewire.choose_codecs(
            settings.policy, settings.codec_text, self._infos)
        exchange = settings.exchange_for(self._group, codecs)
        begins_with = self._make_worker(settings, exchange).codec  # refuses an invalid job before ranks meet
        if settings.is_auto:
            codecs = tersewire.choose_codecs(settings.policy, begins_with, self._infos)
        self._codecs, self._exchange = codecs, exchange
        ranks_here, self._join = meet_ranks(self._group, "exchange", (settings.alike, self._job()))
        # The default exchange of the first codec is that of later ones.
        self._settings = dataclasses.replace(settings, exchange=settings.exchange or exchange)
        self._codec = begins_with
        return self._make_worker(
            settings, exchange, settings.threads or max(1, _core._allowed_cores() // ranks_here))

    def _make_worker(self, settings: Settings, exchange: str, threads: int = 1) -> _core._MeanWorker:
        return _core._MeanWorker(
            self._infos, exchange, self._group.ranks, settings.codec_text,
            settings.pull_codec_for(exchange), settings.policy, settings.seed,
            settings.warm_up_steps, *self._group._limits(settings.timeout), threads,
            None if settings.replay_decisions is None else _json(settings.replay_decisions),
            settings.budget, self._overlaps, self._undoable, self._update)

    def _job(self) -> Any:
        """What every rank must have alike, beside its settings."""
        return [(info.name, info.shape, codec.text)
                for info, codec in zip(self._infos, self._codecs)]

    @property
    def rank(self) -> int:
        """Among those that exchange gradients."""
        return self._group.rank

    def change(self, **settings: Any) -> None:
        """Continues with other settings: those of register(), including codec and policy.

        Between steps, on every rank. Unsent data stays: Error (kInvalidArgument) for a codec that
        keeps none where the previous one did, such as fp32; use one with ef=on, and policy="" where
        the policy gives a tensor another.
        """
        change_all([self], settings)

    @property
    def counters(self) -> Counters:
        sent, received, not_finite, codec, waiting = self._worker.counters
        return Counters(self._steps_here, self._gradient_bytes, sent, received, not_finite, codec,
                        waiting, self._exchange_seconds, self._codec, self._news)

    def decisions(self) -> list[dict[str, Any]]:
        """With codec="auto", on rank 0: its decisions so far, as in a run's decisions.json.

        Each has step, codec, expected_speedup, measured_speedup (None if there is none) and
        sentence. As another run's replay_decisions= they give its steps the same codecs.
        """
        decided: list[dict[str, Any]] = json.loads(self._worker.decisions)
        return decided

    def average(self, gradients: torch.Tensor, skipped: int = 0) -> None:
        """A step: replaces the gradients of all parameters, concatenated, by their means.

        gradients  flat, in the order of the parameters
        skipped    in how many steps so far gradients were discarded: if ranks differ, Error says
                   which skipped a step that others take
        """
        self._uses.fill_(1)
        self._average(gradients, skipped)

    def _average(self, gradients: torch.Tensor, skipped: int) -> None:
        self._end_average(self._begin_average(gradients, skipped))

    def _among_ranks(self, exchange: Callable[[], None]) -> bool:
        """Runs an exchange; returns whether this rank's part counted, always true if ranks stay."""
        exchange()
        return True

    def _after_update(self) -> None:
        """Called once the model has been updated with the means."""

    def _begin_average(self, gradients: torch.Tensor, skipped: int = 0) -> "Bucket":
        """The first half of average(), without waiting for gradients: _end_average()'s input."""
        self._check_open()
        bucket = Bucket(gradients, self._stretches(range(len(self._uses))), self._scale(),
                        self._spike_limiter())
        self._worker.begin_step(self._exchange_seconds)
        self._worker.say_skipped(skipped)
        if self._tells_uses:
            self._worker.push(self._uses, [(len(self._uses), 0)])
        bucket.push(self._worker)
        return bucket

    def _end_average(self, bucket: "Bucket") -> None:
        bucket.mean(self._worker)
        if self._tells_uses:
            self._worker.mean(self._uses, [(len(self._uses), 0)])
        self._count(bucket)
        self._end_step()

    @property
    def rate_gain(self) -> float:
        """What the optimizer's learning rates are multiplied by in its last step."""
        return self._rate_gain_in(self._step)

    def _rate_gain_in(self, step: int) -> float:
        """Of a step of the job, from 1, whose gradients have the present codecs."""
        if self._settings.rate_gain is not None:
            return self._settings.rate_gain
        if not self._settings._adam or step <= self._settings.warm_up_steps:
            return 1.0
        gain = _core._adaptive_rate_gain(self._infos, self._codecs)
        # Clipping what was exchanged makes up for half of it, unless servers have encoded that again.
        return 1 + (gain - 1) / 2 if self._exchange == "all-gather" else gain

    @property
    def _step(self) -> int:
        """The number of the last one, of the whole job."""
        return self._steps_before + self._steps_here

    def summary(self) -> str:
        """A table: the size of each parameter's gradients as sent, and in float32."""
        steps = max(1, self._steps_here)
        width = max([len("parameter"), *(len(info.name) for info in self._infos if not info.exact)])
        lines = [f"{'parameter':{width}} {'values':>10} {'codec':16} {'bits per value':>14} {'ratio':>8}"]
        for info, codec, encoded in zip(self._infos, self._codecs, self._worker.encoded_bytes
                                        or [0.0] * len(self._infos)):
            if info.exact:  # the ranks' own
                continue
            elems, sent = elems_of(info), encoded / steps
            bits = 8 * sent / elems if elems else 0.0
            ratio = f"{_FLOAT_BYTES * elems / sent:7.1f}x" if sent else f"{'-':>8}"
            lines.append(f"{info.name:{width}} {elems:>10} {codec.name:16} {bits:>14.3f} {ratio}")
        counters = self.counters
        lines.append(f"{counters.steps} steps: {counters.sent_bytes} bytes sent and "
                     f"{counters.received_bytes} received by rank {self.rank}, for "
                     f"{counters.gradient_bytes} bytes of gradients")
        return "\n".join(lines)

    def state_dict(self) -> dict[str, Any]:
        """What a restart of this rank would lose: the step's number, and copies of the residuals.

        Save it on every rank, after the same step. It holds the same names before the first step.
        """
        if self._group.ranks > 1:
            refuse_loss()
        try:
            settings, exchange, (step, *residuals) = self._kept()
        except Error:
            raise self._within_step() from None
        pushed, pulled, followed = ({name: torch.from_numpy(array) for name, array in named.items()}
                                    for named in residuals)
        state = {"exchange": exchange, "rank": self.rank, "ranks": self._group.ranks,
                 "step": step, "pushed": pushed, "pulled": pulled}
        if followed:  # with ef=21
            state["followed"] = followed
        state["adaptive"] = settings.is_adaptive_in(exchange)
        state["norms"] = self._norms.state
        return {**state, "decisions": self.decisions()} if self._settings.is_auto else state

    def _kept(self) -> tuple[Settings, str, Any]:
        """What a state is of: settings, exchange, and the worker's part."""
        return self._settings, self._exchange, self._last_state or self._worker.state()

    def load_state_dict(self, states: States) -> None:
        """Restores what state_dict() returned on every rank, with the same or a different number of ranks.

        states  those of all ranks; this rank's own is enough if the number of ranks is the same

        With the same number, the run continues to the same bits. With another, residuals of rank
        r's pushes go to rank r modulo the number of ranks, where they are added up; those of means
        go to the ranks that serve them now. Raises Error (kInvalidArgument) if the states are not
        those of one step of a run of this model.
        """
        listed = as_list(states)
        self._check_open()
        if listed and listed[0].get("adaptive") and not self._settings.is_adaptive_in(self._exchange):
            self._keep_no_residual_of_means()
        for state in listed:
            if set(state) - _SOME_STATE_NAMES != _STATE_NAMES or state["exchange"] != self._exchange:
                refuse(f"a state is not of exchange {self._exchange}; pass what state_dict() "
                       "returned with it, or that exchange to the call that made this")
        own = [state for state in listed if state["rank"] == self.rank]
        if own and own[0]["ranks"] == self._group.ranks:
            listed = own[:1]
        elif not listed or {len({state["rank"] for state in listed})} != {
                state["ranks"] for state in listed}:
            refuse("the states are not those of all ranks; pass each rank's, once")
        listed.sort(key=lambda state: state["rank"])

        def residuals(state: dict[str, Any], which: str) -> dict[str, torch.Tensor]:
            # torch.load() may have put them on a GPU.
            return {name: residual.cpu() for name, residual in state.get(which, {}).items()}

        saved = [(state["rank"], state["step"], residuals(state, "pushed"),
                  residuals(state, "pulled"), residuals(state, "followed")) for state in listed]
        decided = listed[0].get("decisions", []) if self._settings.is_auto else []
        self._worker.load(self.rank, listed[0]["ranks"], saved, _json(decided))
        self._norms.load(listed[self.rank % len(listed)].get("norms"))
        self._steps_before = listed[0]["step"] - self._steps_here
        self._may_undo = False
        if self._worker.has_begun:  # what others expect of this rank belongs to a run that is over
            self._worker.close()
            self._join(self._worker)

    def _keep_no_residual_of_means(self) -> None:
        refuse("the state's run kept no residual of means, as for Adam, and this one does; wrap the "
               "same optimizer, or pass the pull_codec of that run")

    def close(self) -> None:
        """Ends the threads and connections, as does Python's exit or this object's end. Idempotent.

        Call it after the last step: no gradients can be averaged after it. Counters, summary() and
        state_dict() remain.
        """
        if not self._end.alive:
            return
        self._keep_state()
        self._end()

    def _keep_state(self) -> None:
        """For state_dict() when the worker is closed."""
        try:
            self._last_state = self._worker.state()
        except Error:  # within a step, after a failure
            pass

    def _within_step(self) -> Error:
        return Error(ErrorCode.kFailedPrecondition,
                     f"rank {self.rank} has no state to save, since the exchange of step "
                     f"{self._step + 1} has begun and was not ended; save between two steps, and "
                     "after a failure or Ctrl-C start again from what was saved last")

    def _check_open(self) -> None:
        if not self._end.alive:
            raise Error(ErrorCode.kFailedPrecondition,
                        "the averager of these gradients is closed; close it after the last step")

    def _scale(self) -> float:
        """The loss scale: residuals are of gradients without it."""
        if not self._settings.loss_scale:
            return 1.0
        scale = float(self._settings.loss_scale())
        if not 0 < scale < math.inf:
            refuse(f"loss_scale returned {scale:g}; it must return the step's factor, above 0, as "
                   "scaler.get_scale does")
        return scale

    def _spike_limiter(self) -> SpikeLimiter | None:
        """For the next step: scales down gradients that are spikes.

        None if spikes have no limit, or no residual to stay in.
        """
        limit = self._settings.spike_limit_now
        keep = [codec.keeps_residual for codec in self._codecs]
        if limit == math.inf or not (any(keep) or self._settings.is_auto):
            return None
        if self._step < self._settings.warm_up_steps:
            limit = math.inf
        norms = self._norms
        limits = torch.tensor([limit if keeps else math.inf for keeps in keep], dtype=torch.float32,
                              device="cpu")
        return lambda gradients: norms.limit(gradients, limits)

    def _undo(self, numbers: set[int]) -> None:
        """Undoes the last exchange of means that no optimizer applies."""
        if numbers and self._undoable and self._may_undo:
            self._worker.undo(sorted(numbers))

    def _end_step(self) -> None:
        self._steps_here += 1
        self._may_undo = True
        self._news = tuple(self._worker.take_news())
        for sentence in self._news:
            _log.info(sentence)
        if self._codec != self._worker.codec:
            self._codec = self._worker.codec
            self._codecs = tersewire.choose_codecs(self._settings.policy, self._codec, self._infos)
        if self._settings.on_step:
            self._settings.on_step(self.counters)

    def _count(self, bucket: "Bucket") -> None:
        self._gradient_bytes += _FLOAT_BYTES * bucket.buffer.numel()
        self._exchange_seconds += time.perf_counter() - bucket.began

    def _stretches(self, parameters: Sequence[int]) -> list[tuple[int, int]]:
        """Each parameter with its place in a buffer that holds them concatenated."""
        stretches, begin = [], 0
        for parameter in parameters:
            stretches.append((parameter, begin))
            begin += elems_of(self._infos[parameter])
        return stretches


def change_all(averagers: Sequence[GradientAverager], settings: dict[str, Any]) -> None:
    """As change() of each; where one is refused, all stay as they were."""
    before = [vars(averager).copy() for averager in averagers]
    changed = []
    try:
        for averager in averagers:
            averager._check_open()
            worker = averager._meet(averager._settings.changed(settings))
            worker.take_over(averager.rank, averager._worker)
            changed.append(worker)
    except Exception:
        for averager, was in zip(averagers, before):
            vars(averager).update(was)
        raise
    for averager, worker in zip(averagers, changed):
        averager._worker.change(worker)
        averager._may_undo = False
        averager._join(averager._worker)


class Bucket:
    """A flat buffer with gradients of some parameters, replaced by their means."""

    def __init__(self, buffer: torch.Tensor, stretches: list[tuple[int, int]], scale: float,
                 limit_spikes: SpikeLimiter | None = None, keeps_own: bool = False,
                 bases: dict[int, torch.Tensor] | None = None) -> None:
        self.began = time.perf_counter()
        self.buffer = buffer
        self._stretches = stretches
        self._scale = scale
        self._limit_spikes = limit_spikes
        self._values = buffer
        self._own = buffer.clone() if keeps_own else None  # this rank's gradients
        self._bases = bases or {}  # what gradients held of earlier means

    @property
    def parameters(self) -> list[int]:
        """Their numbers."""
        return [number for number, _ in self._stretches]

    def push(self, worker: _core._MeanWorker) -> None:
        buffer = self.buffer
        if not (buffer.is_cpu and buffer.dtype is torch.float32):
            self._values = buffer.to("cpu", torch.float32)
        for number, values in self._gradients_in(self._values) if self._bases else ():
            if number in self._bases:  # only what is new is exchanged
                self._bases[number] = self._bases[number].to("cpu", torch.float32).flatten()
                values -= self._bases[number]
        if self._scale != 1:
            self._values /= self._scale
        if self._limit_spikes:
            self._limit_spikes(list(self._gradients_in(self._values)))
        # As the library forms its own buckets: from the last parameter on.
        worker.push(self._values, sorted(self._stretches, reverse=True))

    def mean(self, worker: _core._MeanWorker) -> None:
        worker.mean(self._values, self._stretches)
        if self._scale != 1:
            self._values *= self._scale
        for number, values in self._gradients_in(self._values) if self._bases else ():
            if number in self._bases:
                values += self._bases[number]
        if self._values is not self.buffer:
            self.buffer.copy_(self._values)

    def undo(self, worker: _core._MeanWorker, parameters: set[int]) -> None:
        """Undoes the exchange of those parameters: nobody has applied their means."""
        worker.undo([number for number in self.parameters if number in parameters])
        if self._own is None:
            return
        for (number, values), (_, own) in zip(self._gradients_in(self.buffer),
                                              self._gradients_in(self._own)):
            if number in parameters:
                values.copy_(own)

    def _gradients_in(self, values: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
        """Each parameter's number and gradient."""
        ends = [*(begin for _, begin in self._stretches[1:]), values.numel()]
        for (number, begin), end in zip(self._stretches, ends):
            yield number, values[begin:end]


def as_list(states: States) -> list[dict[str, Any]]:
    listed = [states] if isinstance(states, dict) or not isinstance(states, Iterable) else list(states)
    for state in listed:
        if not isinstance(state, dict):
            refuse(f"a {type(state).__name__} is not a state; pass what state_dict() returned")
    return listed


def summary() -> None:
    """Prints the table of each registered model and wrapped optimizer, on rank 0 only.

    It shows the size of each parameter's gradients as sent, and in float32. Call it on every rank
    or on one, between steps.
    """
    for reference in _averagers:
        averager = reference()
        if averager is not None and averager.rank == 0:
            print(averager.summary(), flush=True)
