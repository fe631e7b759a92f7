"""What register() and DistributedOptimizer are given, checked, and how ranks find each other."""

import dataclasses
import datetime
import fcntl
import os
import secrets
import socket
import struct
import warnings
from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import torch
import torch.distributed as dist

import tersewire
from tersewire import Error, ErrorCode, _core

from ._tensors import refuse

_SIOCGIFADDR = 0x8915  # Linux: an interface's address


@dataclass(frozen=True)
class Settings:
    """register() says what they are."""

    codec: Union[str, tersewire.Codec] = "3lc"
    policy: str = "auto"
    exchange: Optional[str] = None
    seed: int = 0
    warm_up_steps: int = 0
    loss_scale: Optional[Callable[[], float]] = None
    threads: Optional[int] = None
    timeout: Optional[datetime.timedelta] = None
    on_step: Optional[Callable[[Any], None]] = None

    def check(self) -> None:
        if not dist.is_initialized():
            raise Error(ErrorCode.kFailedPrecondition, "there is no process group; call "
                        "torch.distributed.init_process_group() first")
        for name, kinds, what in (
                ("codec", (str, tersewire.Codec), "a codec's text or a tersewire.Codec"),
                ("policy", str, "a policy's text"), ("exchange", (str, type(None)), "its name"),
                ("seed", int, "a whole number, 0 or more"),
                ("warm_up_steps", int, "a whole number, 0 or more"),
                ("threads", (int, type(None)), "a whole number, 1 or more"),
                ("timeout", (datetime.timedelta, type(None)), "a datetime.timedelta")):
            value = getattr(self, name)
            least = 1 if name == "threads" else 0
            if not isinstance(value, kinds) or isinstance(value, bool) or (
                    isinstance(value, int) and value < least):
                refuse(f"{name}={value!r} cannot be; pass {what}")
        for name, what in (("loss_scale", "returns the factor, as scaler.get_scale"),
                           ("on_step", "takes Counters")):
            value = getattr(self, name)
            if value is not None and not callable(value):
                refuse(f"{name}={value!r} cannot be called; pass what {what}")

    @property
    def codec_text(self) -> str:
        return self.codec if isinstance(self.codec, str) else self.codec.text

    def exchange_for(self, ranks: int, codecs: Sequence[tersewire.Codec]) -> str:
        """The exchange as C++ names it."""
        if self.exchange is None:
            # Two send each other as much without a server, and encode once.
            return "all-gather" if ranks <= 2 else "gradient-server"
        if self.exchange == "sharded-server":
            warnings.warn("exchange 'sharded-server' is 'gradient-server'; its old name goes with "
                          "the next version", DeprecationWarning, stacklevel=6)
            return "gradient-server"
        if self.exchange != "all-reduce":
            return self.exchange
        names = {codec.name for codec in codecs}
        for name in sorted(names - {"terngrad", "fp32"}):
            refuse(f"codec {name} does not fit exchange all-reduce, which adds up whole numbers; "
                   "take terngrad or another exchange")
        return "gradient-server" + (":scaler-sharing=on" if "terngrad" in names else "")


def timeout_of(group: dist.ProcessGroup) -> datetime.timedelta:
    """As the user gave it to init_process_group() or new_group()."""
    try:
        return group.options._timeout
    except (AttributeError, RuntimeError):  # a backend that does not say
        return getattr(dist.distributed_c10d, "default_pg_timeout")


def _gather(group: dist.ProcessGroup, own: Any) -> List[Any]:
    told: List[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(told, own, group=group)
    return told


def meet(group: dist.ProcessGroup, settings: Settings, job: Any) -> Tuple[int, Callable[..., None]]:
    """Compares settings and jobs of all ranks.

    Returns how many ranks are on this machine, and what makes a worker join the network of all.
    """
    # Namespaces of one machine are as far apart as machines.
    machine = socket.gethostname(), os.stat("/proc/self/ns/net").st_ino
    # A function cannot travel, and each rank has its own, as of threads.
    own = dataclasses.replace(settings, codec=settings.codec_text, loss_scale=None, threads=None,
                              on_step=None)
    told = _gather(group, (machine, tersewire.__version__, own, job))
    for rank, (_, *others) in enumerate(told):
        if others != list(told[0][1:]):
            what = "version of tersewire" if others[0] != told[0][1] else "model or other settings"
            refuse(f"rank {rank} has another {what} than rank 0; give every rank the same")
    machines = [other for other, *_ in told]

    def join(worker: _core._MeanWorker) -> None:
        host = "127.0.0.1" if len(set(machines)) == 1 else _own_host()
        meeting = _core._TcpMeeting(host)
        found = _gather(group, (meeting.address, secrets.token_bytes(32)))
        worker.join(meeting, dist.get_rank(group), [address for address, _ in found], found[0][1])

    return machines.count(machine), join


def _own_host() -> str:
    """An address by which other machines reach this one, found as Gloo and torchrun do."""
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unconnected:
        if interface:
            request = struct.pack("256s", interface.encode()[:15])
            return socket.inet_ntoa(
                fcntl.ioctl(unconnected.fileno(), _SIOCGIFADDR, request)[20:24])
        try:  # what leads to the master; nothing is sent
            unconnected.connect((os.environ["MASTER_ADDR"], 1))
            found: str = unconnected.getsockname()[0]
        except (KeyError, OSError):
            found = "127.0.0.1"
    return socket.gethostname() if found.startswith("127.") else found
