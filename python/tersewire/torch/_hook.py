"""The communication hook of DistributedDataParallel."""

import dataclasses
import datetime
import functools
import logging
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy
import torch
import torch.distributed as dist

import tersewire
from tersewire import _core

from ._averager import Bucket, Counters, GradientAverager
from ._deliveries import Deliveries
from ._groups import HubGroup, ProcessGroup
from ._private import (GradBucket, exchanges_nothing, has_own_hook, queue_callback,
                       reduces_in_python, steps_in_backward, uses_of)
from ._rates import Scaling, is_adam, is_adaptive, is_muon, scale_steps
from ._settings import Settings
from ._tensors import (at_end, ddps_of, elems_of, optimizers_of, own_name, refuse, refuse_sharded, say_once,
                       tensor_infos, trained, uncompiled)

_LAST_SECONDS = 10
_PATIENCE = datetime.timedelta(minutes=2)  # for ranks that call register() later: see timeout=
_log = logging.getLogger("tersewire")
# What a rank can find.
_ADAM, _ADAPTIVE, _SGD, _NONE = "an Adam", "an adaptive optimizer", "an SGD", "no optimizer"


class _Task(NamedTuple):
    begins_step: bool
    stood_seconds: float  # before this step
    bucket: Bucket
    future: torch.futures.Future[torch.Tensor]
    ready: torch.Event | None  # on an accelerator: when the bucket has its gradients
    done: Callable[[Bucket], None]


class _Threads:
    """One pushes buckets as the backward pass completes them, the other takes their means.

    They hold no reference to the hook, which may be deleted while they wait.
    """

    def __init__(self, worker: _core._MeanWorker, rank: int) -> None:
        self.worker, self.rank = worker, rank
        self.failure: BaseException | None = None
        self.pushes: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._means: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, args=how, name=f"tersewire {name}", daemon=True)
            for name, *how in (("push", self.pushes, self._push), ("mean", self._means, self._take))]
        for thread in self._threads:
            thread.start()

    def _run(self, tasks: queue.SimpleQueue[_Task | None],
             work: Callable[[_Task], None]) -> None:
        streams: dict[torch.device, torch.Stream] = {}  # this thread's
        while True:
            task = tasks.get()
            if task is None:
                self._means.put(None)
                return
            self._try(task, work, streams)
            del task  # it refers to the hook

    def _push(self, task: _Task) -> None:
        if task.begins_step:
            self.worker.begin_step(task.stood_seconds)
        task.bucket.push(self.worker)
        self._means.put(task)

    def _take(self, task: _Task) -> None:
        task.bucket.mean(self.worker)
        task.done(task.bucket)
        task.future.set_result(task.bucket.buffer)

    def _try(self, task: _Task, work: Callable[[_Task], None],
             streams: dict[torch.device, torch.Stream]) -> None:
        try:
            if self.failure:
                raise self.failure
            if task.ready is not None:
                _wait_for(task.ready, task.bucket.buffer.device, streams)
            work(task)
        except BaseException as failure:  # the backward pass must hear of it
            self.failure = failure
            task.future.set_exception(failure)  # type: ignore[arg-type]

    def close(self) -> None:
        # A thread still in torch when Python exits would crash the process.
        self.pushes.put(None)
        for last_words in (None, f"rank {self.rank} ended its hook within a step; start every rank again"):
            if last_words:  # a wait for ranks that are gone is in vain
                self.worker.abort(last_words)
            # One of them may be collecting a hook that is no longer used.
            others = [thread for thread in self._threads if thread is not threading.current_thread()]
            for thread in others:
                thread.join(_LAST_SECONDS)
            if not any(thread.is_alive() for thread in others):
                break
        self.worker.close()


def _wait_for(ready: torch.Event, device: torch.device,
              streams: dict[torch.device, torch.Stream]) -> None:
    """Has what this thread does on the device wait for that, and for nothing later."""
    if device not in streams:
        streams[device] = torch.Stream(device)
    torch.accelerator.set_stream(streams[device])
    streams[device].wait_event(ready)


class Hook(GradientAverager):
    """The result of register(): one rank's residuals and counters."""

    _overlaps = True
    _undoable = True

    def __init__(self, model: torch.nn.parallel.DistributedDataParallel,
                 settings: Settings, group: HubGroup | None = None,
                 patience: datetime.timedelta = datetime.timedelta.max) -> None:
        if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
            _refuse_unwrapped(model)
        reason = why_unhookable(model)
        if reason:
            refuse(reason)
        infos = tensor_infos(model.module, model.parameters_to_ignore)
        named = {own_name(path): value for path, value in model.module.named_parameters()}
        self._parameters = [named[info.name] for info in infos]
        self._numbers = {p: number for number, p in enumerate(self._parameters)}
        self._trained = set(trained(model.module))  # also what the model's wrapper is to ignore
        self._finds_unused: bool = model.find_unused_parameters
        # Gradients are the buckets' memory then, and unused ones are to stay as they are.
        self._keeps_own: bool = self._finds_unused and model.gradient_as_bucket_view
        self._model = weakref.ref(model)  # which holds the hook
        self._tasks: list[_Task] = []  # of the step
        _check_group(group)
        if group and group.elastic:
            refuse("the ranks of DistributedDataParallel's own process group cannot come and go; use "
                   "DistributedOptimizer or LocalUpdates, with the model within it")
        if group and group.ranks != dist.get_world_size(model.process_group):
            refuse("the model's process group is of size "
                   f"{dist.get_world_size(model.process_group)}, and the hub's job of size "
                   f"{group.ranks}; start both with the same processes")
        ranks = ProcessGroup(model.process_group, self._parameters)
        ranks._await_hooks(settings.timeout or min(patience, ranks._timeout()))
        chooses_exchange = settings.exchange is None
        # Of optimizers that are made later, the first backward pass learns.
        early = ranks._gather(_kind_of(optimizers_of(self._parameters)))
        settings = dataclasses.replace(settings, _adaptive=set(early) <= {_ADAM, _ADAPTIVE})
        super().__init__(infos, group or ranks, settings)
        self._end.detach()
        self._threads = _Threads(self._worker, self.rank)
        self._end = at_end(self, _Threads.close, self._threads)
        self._deliveries = Deliveries(self._parameters, moves=True)
        self._is_own_pass = False
        self._scale_now = 1.0
        self._stood_seconds = 0.0  # elapsed, waited at the end of backward passes
        self._knows_optimizer = self._knows_steps = False
        self._chooses_exchange = chooses_exchange
        self._scalings: list[Scaling] = []  # of the optimizers that there were in the first step
        self._unused = at_end(self, _warn_unused, _UNUSED_HOOK)
        model.register_forward_pre_hook(_Check(self))

    def __reduce__(self) -> Any:
        """A copy of a model, or what is read from a file, has no hook."""
        return type(None), ()

    # Called by the backward pass, bucket by bucket, in the same order on every rank.
    def _on_bucket(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        try:
            return self._begin_mean(bucket)
        except tersewire.Error as failure:
            if self._tasks:  # the other ranks, and this one's threads, wait for the rest of the step
                self._worker.abort(str(failure))
            raise

    def _begin_mean(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        if bucket.index() == 0:
            self._unused.detach()
            self._check_open()
            self._check_trained()
            if not self._knows_optimizer:
                self._know_optimizer()
            for scaling in self._scalings:
                scaling.prepare()
            # DistributedDataParallel.join() exchanges zeros for a rank without data.
            self._is_own_pass = queue_callback(_nothing)
            if self._is_own_pass:
                self._undo(self._deliveries.begin_pass())
            self._scale_now, self._tasks = self._scale(), []
        buffer = bucket.buffer()
        devices: list[int | str | torch.device] = []
        ready = None
        if not buffer.is_cpu:
            devices = [buffer.device]
            ready = torch.accelerator.current_stream(buffer.device).record_event()
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)
        self._check_known(bucket.parameters())
        numbers = [self._numbers[p] for p in bucket.parameters()]
        stretches = self._stretches(numbers)
        self._tasks.append(
            _Task(bucket.index() == 0, self._stood_seconds,
                  Bucket(buffer, stretches, self._scale_now, self._spike_limiter(), self._keeps_own,
                         self._deliveries.bases(numbers) if self._is_own_pass else {}),
                  future, ready, self._count))
        self._threads.pushes.put(self._tasks[-1])
        if bucket.is_last():
            self._check_complete()
            _after_backward(self._end_backward)
        return future

    def close(self) -> None:
        self._unused.detach()
        super().close()

    def _check_trained(self) -> None:
        """DistributedDataParallel keeps to the parameters that were trained when it was made.

        Before a forward pass, too: where all have been replaced there is no bucket.
        """
        model: Any = self._model()
        for name, parameter in model.module.named_parameters():
            if parameter.requires_grad and parameter not in self._trained:
                _refuse_unseen(name)

    def _check_known(self, parameters: Sequence[torch.Tensor]) -> None:
        unknown = next((p for p in parameters if p not in self._numbers), None)
        if unknown is None:
            return
        model: Any = self._model()
        for name, parameter in model.module.named_parameters():
            if parameter is unknown:
                refuse(f"parameter '{name}' is frozen, and was trained when DistributedDataParallel "
                       "was made; freeze it before, or register the hook before that")
        refuse("a parameter is of another model than the one that this hook, or HookState, was "
               "registered with; make one for each model")

    def _check_complete(self) -> None:
        """The buckets of a backward pass have all that DistributedDataParallel trains."""
        seen = {number for task in self._tasks for number in task.bucket.parameters}
        for number, info in enumerate(self._infos):
            if number not in seen:
                _refuse_unseen(info.name)

    def _end_backward(self) -> None:
        """Waits for the means before DistributedDataParallel does, which hides failures."""
        tasks, self._tasks = self._tasks, []
        ended = time.perf_counter()
        for task in tasks:
            task.future.wait()
        self._stood_seconds += time.perf_counter() - ended
        if self._is_own_pass:
            queue_callback(functools.partial(self._deliver, tasks))
        _after_backward(self._end_step)

    def _know_optimizer(self) -> None:
        """A hook is made before anybody says which optimizer takes its gradients.

        Before any are exchanged: later, ranks with and without data wait for different things.
        """
        self._knows_optimizer = True
        optimizers = optimizers_of(self._parameters)
        found = set(self._group._gather(_kind_of(optimizers)))
        self._knows_steps = _NONE not in found
        self._know_means(optimizers, found)
        self._know_rates(optimizers, found)

    def _know_means(self, optimizers: list[torch.optim.Optimizer], found: set[str]) -> None:
        all_adaptive = found <= {_ADAM, _ADAPTIVE}
        was_early = self._settings._adaptive and self._steps_before == 0
        if was_early and not all_adaptive:  # those are no longer all that there are
            self.change(_adaptive=False, exchange=None if self._chooses_exchange else self._exchange)
        known = self._adaptive_settings()
        exchange = known.exchange_for(self._group, self._codecs)
        means = known.pull_codec_for(exchange)
        stays = exchange == self._exchange and means in (
            None, self._settings.codec_text, self._settings.pull_codec_for(exchange))
        if stays and all_adaptive:
            self._settings = dataclasses.replace(self._settings, _adaptive=True)  # for change()
        if self._steps_before > 0:  # the run goes on as it was
            return
        if all_adaptive and not stays:
            self.change(_adaptive=True, exchange=known.exchange)
        if all_adaptive and (not stays or was_early and self._settings.is_adaptive_in(exchange)):
            if self.rank == 0:
                _log.info(f"gradients go through {exchange} and means are sent as {means}, of which "
                          f"{type(optimizers[0]).__name__} learns more")
        gain = _core._adaptive_rate_gain(self._infos, self._codecs)
        if self.rank == 0 and not all_adaptive and found != {_SGD} and (gain != 1 or not stays):
            _log.warning(
                f"ranks have {' or '.join(sorted(found))} with this model's parameters, so exchange, "
                "means and learning rates stay as they are, with which Adam learns less; make the "
                "optimizer before the first backward pass, or, if it has copies of the parameters, "
                "pass pull_codec")

    def _adaptive_settings(self) -> Settings:
        """Those for an adaptive optimizer."""
        exchange = None if self._chooses_exchange else self._settings.exchange
        return dataclasses.replace(self._settings, _adaptive=True, exchange=exchange)

    def change(self, **settings: Any) -> None:
        if "rate_gain" in settings and self._knows_optimizer and not self._scalings:
            refuse("this hook leaves the optimizer's steps as they are; pass rate_gain to "
                   "register()")
        super().change(**settings)
        if settings.get("exchange"):
            self._chooses_exchange = False

    def _know_rates(self, optimizers: list[torch.optim.Optimizer], found: set[str]) -> None:
        """Optimizers take their steps with rates of their own until then."""
        if self._settings.rate_gain is not None and _NONE in found:
            refuse("rate_gain is for an optimizer that there is in the first backward pass, and a "
                   "rank has none; make it before, or omit rate_gain")
        self._settings = dataclasses.replace(self._settings, _adam=found == {_ADAM})
        named = self._settings.rate_gain
        if named is not None and named != 1 or named is None and self._settings._adam:
            self._scalings = scale_steps(
                [one for one in optimizers if named is not None or not is_muon(one)],
                self, self._numbers)
        gain = self._rate_gain_in(self._step + 1 + self._settings.warm_up_steps)
        if self.rank == 0 and gain != 1:
            _log.info(f"learning rates are multiplied by {gain:g} in the steps of "
                      f"{type(optimizers[0]).__name__}, which encoded gradients make smaller; pass "
                      "rate_gain=1 to leave them as they are")

    def _kept(self) -> tuple[Settings, str, Any]:
        """Before the first step, as it will be after it: others' states are loaded into such a one."""
        settings, exchange, state = super()._kept()
        if self._step == 0 and not settings._adaptive and _kind_of(
                optimizers_of(self._parameters)) in (_ADAM, _ADAPTIVE):
            settings = self._adaptive_settings()
            exchange = settings.exchange_for(self._group, self._codecs)
            step, pushed, _, followed = state
            state = step, pushed, self._pulled_in(settings, exchange), followed
        return settings, exchange, state

    def _pulled_in(self, settings: Settings, exchange: str) -> "dict[str, numpy.ndarray[Any, Any]]":
        """The residuals of means that this rank would begin with."""
        text = settings.pull_codec_for(exchange)
        if text is None or settings.is_auto:
            return {}
        codecs = tersewire.choose_codecs(settings.policy, text, self._infos)
        served = {number for number, _, _, owner in self._make_worker(settings, exchange).parts
                  if owner == self.rank}
        return {info.name: numpy.zeros(elems_of(info), "float32")
                for number, (info, codec) in enumerate(zip(self._infos, codecs))
                if number in served and codec.keeps_residual}

    def _keep_no_residual_of_means(self) -> None:
        if self._settings.pull_codec is not None:
            super()._keep_no_residual_of_means()
        self.change(_adaptive=True, exchange=self._adaptive_settings().exchange)

    def _deliver(self, tasks: list[_Task]) -> None:
        """Undoes the exchange of parameters that no rank used, whose gradients stay as they were."""
        model: Any = self._model()
        unused = {number for number, ranks in enumerate(uses_of(model)) if not ranks
                  } if self._finds_unused else set()
        for task in tasks:
            if unused:
                task.bucket.undo(self._worker, unused)
            self._deliveries.deliver(number for number in task.bucket.parameters
                                     if number not in unused)

    def _undo(self, numbers: set[int]) -> None:
        if numbers and not self._knows_steps:
            say_once("gradients were thrown away without a step of an optimizer that this hook knows, so "
                     "what was to be applied of them comes with later ones; make the optimizer before "
                     "the first backward pass, or compute gradients to be thrown away on model.module")
        else:
            super()._undo(numbers)


class _Check:
    """Before a model's forward pass; that of a copy checks nothing, as it has no hook."""

    def __init__(self, hook: Hook | None = None) -> None:
        self._hook: Callable[[], Hook | None] = (lambda: None) if hook is None else weakref.ref(hook)

    def __call__(self, *_: Any) -> None:
        if torch.compiler.is_compiling():
            return
        hook = self._hook()
        if hook is not None and hook._end.alive and torch.is_grad_enabled():
            hook._check_trained()

    def __reduce__(self) -> Any:
        return type(self), ()


_UNUSED_HOOK = ("a hook was registered, and no backward pass has used it, so nothing was compressed; train the "
                "DistributedDataParallel that it was registered with")
_UNUSED_STATE = ("a HookState was made and never used, so nothing was compressed: nobody has registered it, as "
                 "Lightning, which registers hooks on GPUs alone; call tersewire.torch.register(model)")


def _warn_unused(sentence: str) -> None:
    if os.environ.get("RANK", "0") == "0":
        _log.warning(sentence)


def why_unhookable(model: Any) -> str | None:
    """Why a DistributedDataParallel cannot have this hook, if so."""
    if model.mixed_precision is not None:
        return ("DistributedDataParallel has a hook of its own for mixed_precision=; use "
                "torch.autocast instead")
    if any(map(steps_in_backward, model.module.parameters())):
        return ("DistributedDataParallel has a hook of its own for optimizers that step within the "
                "backward pass; use one that steps after it")
    if exchanges_nothing(model):
        return ("with delay_all_reduce_named_params= of all parameters DistributedDataParallel "
                "exchanges none by a hook; omit it")
    # There from torch 2.7 on.
    if getattr(model, "skip_all_reduce_unused_params", False):
        return ("with skip_all_reduce_unused_params=True DistributedDataParallel leaves exchanges "
                "out; omit it")
    if reduces_in_python(model):
        return ("DistributedDataParallel was made while torch._dynamo.config.optimize_ddp was "
                "'python_reducer', which calls no hook; set it to 'ddp_optimizer' before that")
    types = {value.dtype for value in trained(model.module)}
    if model.static_graph and len(types) > 1:
        return (f"with static_graph=True and parameters of {len(types)} types "
                "DistributedDataParallel does not say where its first step ends; omit static_graph, "
                "or use one type and torch.autocast")
    return None


def _refuse_unseen(name: str) -> None:
    refuse(f"parameter '{name}' was frozen, or not there, when DistributedDataParallel was made, and "
           "its gradients would stay on each rank, so that models drift apart; wrap the model "
           "again, and register the new one")


def _refuse_unwrapped(model: Any) -> NoReturn:
    if isinstance(model, torch.nn.Module):
        for name, parameter in model.named_parameters():
            refuse_sharded(name, parameter)
        if hasattr(model, "register_comm_hook"):  # as replicate() of DistributedDataParallel has made it
            refuse("this model makes its DistributedDataParallel in its first forward pass; call "
                   "model.register_comm_hook(tersewire.torch.HookState(...), tersewire.torch.hook) "
                   "before that")
        if ddps_of(next(model.parameters(), torch.empty(0))):
            refuse(f"the model is a {type(model).__name__} that is in DistributedDataParallel; pass "
                   "that DistributedDataParallel")
    refuse(f"the model is a {type(model).__name__}; wrap the model in DistributedDataParallel first")


def _kind_of(optimizers: list[torch.optim.Optimizer]) -> str:
    if not optimizers:
        return _NONE
    # Beside others Muons have no say.
    optimizers = [one for one in optimizers if not is_muon(one)] or optimizers
    if not all(is_adaptive(optimizer) for optimizer in optimizers):
        return _SGD
    return _ADAM if all(is_adam(optimizer) for optimizer in optimizers) else _ADAPTIVE


class HookState:
    """For model.register_comm_hook(HookState("3lc"), hook), as in Lightning and Accelerate.

    Takes register()'s arguments except the model, which it gets in the first backward pass; no
    process group is needed before. `hook` is then what register() returns.
    """

    def __init__(self, codec: str | tersewire.Codec = "3lc", *,
                 group: HubGroup | None = None, **settings: Any) -> None:
        self._settings, self._group = Settings(codec, **settings), group
        _check_group(group)
        self.hook: Hook | None = None
        self._unused = at_end(self, _warn_unused, _UNUSED_STATE)

    __reduce__ = Hook.__reduce__

    def _on_bucket(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        if self.hook is None:
            self._unused.detach()
            models = ddps_of(bucket.parameters()[0])
            if not models:
                refuse("no DistributedDataParallel has this bucket's parameters; keep the model "
                       "that the hook was registered with")
            if len(models) > 1:
                refuse(f"{len(models)} DistributedDataParallel have this bucket's parameters, and a "
                       "HookState does not say which it is for; delete those that are no longer "
                       "used, or call register()")
            self.hook = Hook(models[0], self._settings, self._group)
        return self.hook._on_bucket(bucket)


def _check_group(group: Any) -> None:
    if group is not None and not isinstance(group, HubGroup):
        refuse("DistributedDataParallel has its own process group; omit group=, or pass a HubGroup")


def hook(state: Hook | HookState,
         bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The communication hook itself; HookState says how to register it."""
    try:
        if not isinstance(state, (Hook, HookState)):
            refuse(f"state={state!r} is not valid; pass a tersewire.torch.HookState to "
                   "register_comm_hook()")
        return state._on_bucket(bucket)
    except BaseException as failure:  # which DistributedDataParallel would make a RuntimeError
        _after_backward(functools.partial(_fail, failure))
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done


def _nothing() -> None:
    pass


def _fail(failure: BaseException) -> None:
    raise failure


def _after_backward(call: Callable[[], None]) -> None:
    """Calls it in the current backward pass, after the callbacks queued so far.

    At once where there is none: DistributedDataParallel.join() exchanges for ranks without data.
    """
    if not queue_callback(call):
        call()


def register(model: torch.nn.parallel.DistributedDataParallel,
             codec: str | tersewire.Codec = "3lc", *,
             policy: str = "auto", exchange: str | None = None, seed: int = 0,
             warm_up_steps: int = 0, loss_scale: Callable[[], float] | None = None,
             threads: int | None = None,
             timeout: datetime.timedelta | None = None,
             on_step: Callable[[Counters], None] | None = None,
             group: HubGroup | None = None,
             replay_decisions: list[dict[str, Any]] | None = None,
             budget: str | None = None,
             pull_codec: str | tersewire.Codec | None = None,
             rate_gain: float | None = None,
             spike_limit: float | None = None) -> Hook:
    """Makes a model wrapped in DistributedDataParallel exchange compressed gradients.

    model          trained on the CPU or on a GPU; from a GPU, buckets are copied to the CPU, where
                   codecs work, and back. Call this on every rank of its process group, with the
                   same settings, before the first backward pass
    codec, policy  which parameter's gradients get which codec: choose_codecs(); a large parameter
                   is split into parts, each encoded separately. codec="auto" begins with fp32,
                   switches to a stronger codec where the link makes it worthwhile, and back, on
                   all ranks at the same step; rank 0 decides from its steps' times, and reports
                   each decision to the logger "tersewire" and in decisions()
    exchange       "gradient-server": each rank averages a shard and sends the mean, encoded again;
                   traffic does not grow with the number of ranks. "all-gather": each rank sends
                   its gradients to every other, encoded once; the default for two ranks, and for
                   up to four if the codec keeps a residual. Otherwise gradient-server is, and
                   always for 3lc under Adam, if its optimizers are there in the first step
                   "ring", "hierarchical-ring": sums go around, encoded at each hop (INCEPTIONN);
                   for codecs with a bounded error for each value. "all-reduce":
                   "gradient-server:scaler-sharing=on", where ranks agree on the largest scalers
                   and servers add up whole numbers (TernGrad, section 3.1); for terngrad and stoch3
    seed           for stochastic codecs
    warm_up_steps  number of initial steps without compression
    loss_scale     for mixed precision: returns the factor of the step's loss, as
                   GradScaler.get_scale does; gradients are exchanged without it
    threads        that encode and decode, on this rank only; by default the cores that this process
                   may use, divided by the ranks on this machine. The bytes do not depend on them
    timeout        how long a rank waits for another that is silent, or sends nothing; by default
                   the timeout of the model's process group, and two minutes for all ranks to call
                   this
    on_step        called with the counters after each step's exchange, before the optimizer's
                   step, on this rank only: for a logger. It must not raise
    group          a HubGroup of the same processes, which carries gradients instead of connections
                   between all ranks; DistributedDataParallel keeps its own process group, whose
                   ranks cannot come and go: for that use DistributedOptimizer
    replay_decisions  with codec="auto": the result of another run's decisions(), whose codecs its
                   steps use; the same on every rank
    budget         with codec="auto": "2GB/day" (kB, MB, GB, TB), the most that a rank may send and
                   receive: no codec that would need more is chosen, even if it is faster; if even
                   the strongest does, a decision says so
    pull_codec     of the means that servers send, by default `codec`; if that is 3lc, and the
                   optimizer that there is in the first step is no SGD, it keeps no residual of
                   them from then on. The exchange is then "gradient-server", unless named
    rate_gain      what learning rates are multiplied by within the steps of the optimizers that
                   there are in the first step: Adam's are smaller with encoded gradients, whose
                   noise it divides by. By default, if they all are Adams (AdamW, NAdam, ...), the
                   codec's adaptive_rate_gain: s + 0.25 for 3lc, 1.4 for terngrad and stoch3 with
                   their default clip (half as far from 1 through all-gather), 1 for others
    spike_limit    how many times the median norm of the last nine a parameter's gradient may have
                   on this rank; a longer one is scaled down before it is encoded, since scripts
                   clip what was exchanged, and a residual would hand out a spike over many steps.
                   For parameters whose codec keeps a residual; by default 4 if the optimizers
                   that there are in the first step all are Adams, otherwise math.inf: no limit

    Unsent data is added to the parameter's next gradient, whatever bucket it is in. The training
    loop does not change. Returns a Hook with counters, summary(), change(), state_dict() and
    close(). Raises Error (kInvalidArgument) if ranks differ, an argument is invalid or the model is
    not wrapped. After an error in a backward pass the job is over on every rank, with that error.
    """
    model = uncompiled(model)
    is_ddp = isinstance(model, torch.nn.parallel.DistributedDataParallel)
    own = has_own_hook(model) if is_ddp and not why_unhookable(model) else None
    if own is not None:
        refuse(f"this {type(model).__name__} has a hook already, {own}, and takes one; register this one "
               "in its place, on a model made anew")
    made = Hook(model, Settings(codec, policy, exchange, seed, warm_up_steps, loss_scale, threads,
                                timeout, on_step, replay_decisions, budget, pull_codec, rate_gain,
                                spike_limit), group, _PATIENCE)
    try:
        model.register_comm_hook(made, hook)
    except BaseException:  # a model takes one hook
        made.close()
        raise
    return made
