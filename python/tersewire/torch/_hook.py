"""The communication hook of DistributedDataParallel."""

import queue
import threading
from contextlib import nullcontext
from typing import Callable, Dict, List, NamedTuple, Optional

import torch
import torch.distributed as dist

from ._averager import GradientAverager, Settings
from ._parts import refuse, tensor_infos

_LAST_SECONDS = 10


class _Bucket(NamedTuple):
    step: int
    buffer: torch.Tensor
    parameters: List[int]
    future: torch.futures.Future[torch.Tensor]
    stream: Optional[torch.cuda.Stream]  # on a GPU: waits for this bucket, not for those behind it


class Hook(GradientAverager):
    """What register() returns: the residuals and the counters of one rank.

    Buckets are exchanged by a thread of its own, in the order in which the backward pass completes
    them, while it goes on.
    """

    def __init__(self, model: torch.nn.parallel.DistributedDataParallel,
                 settings: Settings) -> None:
        if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
            refuse(f"the model is a {type(model).__name__}; wrap the model in "
                   "DistributedDataParallel first")
        self._numbers: Dict[torch.Tensor, int] = {p: number for number, p in enumerate(
            p for p in model.module.parameters() if p.requires_grad)}
        super().__init__(tensor_infos(model.module), model.process_group, settings)
        self._buckets: "queue.SimpleQueue[Optional[_Bucket]]" = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="tersewire", daemon=True)
        self._thread.start()
        try:
            model.register_comm_hook(None, self._on_bucket)
        except BaseException:  # a model takes one hook
            self.close()
            raise

    def _come_to_rest(self) -> bool:
        # A thread that is still in torch when Python ends would take the process down with it.
        self._buckets.put(None)
        # One that waits for ranks that are gone waits in vain.
        self._thread.join(_LAST_SECONDS)
        return not self._thread.is_alive()

    # Called by the backward pass, bucket by bucket in the same order on every rank.
    def _on_bucket(self, _: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        if bucket.index() == 0:
            self._begin_step()
        buffer = bucket.buffer()
        devices, stream = [], None
        if buffer.is_cuda:
            devices, stream = [buffer.device], torch.cuda.Stream(buffer.device)
            stream.wait_stream(torch.cuda.current_stream(buffer.device))
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)
        self._buckets.put(_Bucket(self._step, buffer,
                                  [self._numbers[p] for p in bucket.parameters()], future, stream))
        if bucket.is_last():
            self._end_step()
        return future

    def _run(self) -> None:
        while True:
            bucket = self._buckets.get()
            if bucket is None:
                return
            try:
                with torch.cuda.stream(bucket.stream) if bucket.stream else nullcontext():
                    self._average(bucket.step, bucket.buffer, bucket.parameters)
                    bucket.future.set_result(bucket.buffer)
            except BaseException as failure:  # it is the backward pass that must hear of it
                bucket.future.set_exception(failure)


def register(model: torch.nn.parallel.DistributedDataParallel, codec: str = "3lc", *,
             policy: str = "auto", exchange: str = "sharded-server", seed: int = 0,
             warm_up_steps: int = 0, loss_scale: Optional[Callable[[], float]] = None,
             threads: Optional[int] = None) -> Hook:
    """Has a model that is wrapped in DistributedDataParallel exchange compressed gradients.

    model          trained on the CPU or on a GPU, from which buckets are copied to the CPU, where
                   codecs work, and back; call this on every rank, with the same settings, before
                   the first backward pass
    codec, policy  which parameter's gradients get which codec: choose_codecs(); a large parameter
                   is cut into parts for the ranks that serve them, each encoded by itself
    exchange       "sharded-server": each rank averages a shard and sends the mean, encoded once
                   more; traffic does not grow with the number of ranks. "all-gather": each rank
                   sends its gradients to every other. "ring": sums go around, encoded at each hop
                   (INCEPTIONN); for codecs whose error is bounded for each value. "all-reduce":
                   ranks agree on the largest scalers and the process group adds up whole numbers
                   (TernGrad, section 3.1); for terngrad
    seed           for stochastic codecs
    warm_up_steps  how many steps are not compressed
    loss_scale     for mixed precision: returns the factor of the step's loss, as
                   GradScaler.get_scale does; residuals follow when it changes
    threads        that encode and decode, on this rank alone; by default the cores that this
                   process may use, over the ranks of this machine. The bytes do not depend on them

    What is not sent in a step is added to the parameter's next gradient, whatever bucket it is in.
    The training loop stays as it is. Returns a Hook with counters, summary(), state_dict() and
    close(). Raises Error (kInvalidArgument) where ranks differ or the model is not wrapped. After
    an error in a backward pass the job is over: the other ranks end with the time limit of their
    process group.
    """
    return Hook(model, Settings(codec, policy, exchange, seed, warm_up_steps, loss_scale,
                                threads))
