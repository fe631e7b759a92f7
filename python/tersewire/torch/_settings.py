"""What register() and DistributedOptimizer are given, checked, and compared between ranks."""

import dataclasses
import datetime
import math
from dataclasses import dataclass
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tersewire
from tersewire import _core

from ._groups import AnyGroup
from ._spikes import USUAL_LIMIT
from ._tensors import refuse


_Some = TypeVar("_Some", bound="Settings")


@dataclass(frozen=True)
class Settings:
    """register() says what they are."""

    codec: str | tersewire.Codec = "3lc"
    policy: str = "auto"
    exchange: str | None = None
    seed: int = 0
    warm_up_steps: int = 0
    loss_scale: Callable[[], float] | None = None
    threads: int | None = None
    timeout: datetime.timedelta | None = None
    on_step: Callable[[Any], None] | None = None
    replay_decisions: list[dict[str, Any]] | None = None
    budget: str | None = None
    pull_codec: str | tersewire.Codec | None = None
    rate_gain: float | None = None
    spike_limit: float | None = None
    # Nobody is asked for these: is_adaptive() and is_adam() of the optimizer.
    _adaptive: bool = False
    _adam: bool = False

    def __post_init__(self) -> None:
        for name, kinds, what in (
                ("codec", (str, tersewire.Codec), "a codec's text or a tersewire.Codec"),
                ("pull_codec", (str, tersewire.Codec, type(None)),
                 "a codec's text or a tersewire.Codec"),
                ("policy", str, "a policy's text"), ("exchange", (str, type(None)), "its name"),
                ("seed", int, "a whole number, 0 or more"),
                ("warm_up_steps", int, "a whole number, 0 or more"),
                ("replay_decisions", (list, type(None)), "what decisions() returned"),
                ("budget", (str, type(None)), "a text such as '2GB/day'"),
                ("timeout", (datetime.timedelta, type(None)), "a datetime.timedelta")):
            self._check(name, kinds, what)
        self._check("threads", (int, type(None)), "a whole number, 1 or more", least=1)
        if self.timeout is not None and self.timeout <= datetime.timedelta(0):
            refuse(f"timeout={self.timeout!r} is not valid; pass a datetime.timedelta above 0")
        if self.rate_gain is not None and not (
                isinstance(self.rate_gain, (int, float)) and 0 < self.rate_gain < math.inf):
            refuse(f"rate_gain={self.rate_gain!r} is not valid; pass a number above 0")
        if self.spike_limit is not None and not (
                isinstance(self.spike_limit, (int, float)) and self.spike_limit >= 1):
            refuse(f"spike_limit={self.spike_limit!r} is not valid; pass a number from 1 on, or "
                   "math.inf for none")
        if self.seed >= 2**64:
            refuse(f"seed={self.seed} is not valid; pass a whole number below 2**64")
        for name, what in (("loss_scale", "returns the factor, as scaler.get_scale"),
                           ("on_step", "takes Counters")):
            value = getattr(self, name)
            if value is not None and not callable(value):
                refuse(f"{name}={value!r} cannot be called; pass what {what}")
        for name in ("replay_decisions", "budget"):
            if getattr(self, name) is not None and not self.is_auto:
                refuse(f'{name} is for runs that choose their codec; pass codec="auto"')
        if self.pull_codec is not None and self.is_auto:
            refuse("codec auto chooses what servers send too; omit pull_codec, or name a codec")

    def changed(self: _Some, settings: dict[str, Any]) -> _Some:
        """These with some others; refuses names that are none of theirs."""
        for name in set(settings) - {field.name for field in dataclasses.fields(self)}:
            refuse(f"there is no setting '{name}' to change; pass those of the call that made this")
        return dataclasses.replace(self, **settings)

    def _check(self, name: str, kinds: Any, what: str, least: int = 0) -> None:
        """Refuses a setting of another type, or a whole number below `least`."""
        value = getattr(self, name)
        if not isinstance(value, kinds) or isinstance(value, bool) or (
                isinstance(value, int) and value < least):
            refuse(f"{name}={value!r} is not valid; pass {what}")

    @property
    def is_auto(self) -> bool:
        """Whether the job chooses its codec as it goes."""
        return self.codec == "auto"

    @property
    def codec_text(self) -> str:
        return _text(self.codec)

    @property
    def alike(self) -> "Settings":
        """What every rank must be given alike."""
        # A function cannot travel, and each rank has its own, as of threads.
        return dataclasses.replace(
            self, codec=self.codec_text, loss_scale=None, threads=None, on_step=None,
            pull_codec=None if self.pull_codec is None else _text(self.pull_codec))

    @property
    def spike_limit_now(self) -> float:
        if self.spike_limit is not None:
            return self.spike_limit
        return USUAL_LIMIT if self._adam else math.inf

    def pull_codec_for(self, exchange: str) -> str | None:
        """Of the means that servers send, if it may be another one."""
        if self.pull_codec is not None:
            return _text(self.pull_codec)
        if not self._adaptive or not exchange.startswith("gradient-server"):
            return None
        return "auto:ef=off" if self.is_auto else _core._adaptive_pull_codec(self.codec_text)

    def is_adaptive_in(self, exchange: str) -> bool:
        """Whether means have the codec that they have by default for an adaptive optimizer."""
        default = dataclasses.replace(self, pull_codec=None, _adaptive=True).pull_codec_for(exchange)
        return default not in (None, self.codec_text) and default == self.pull_codec_for(exchange)

    @property
    def _most_without_servers(self) -> int:
        """So many ranks send each other their gradients, unless an exchange is named."""
        codec = None if self.is_auto else tersewire.Codec(self.codec_text)
        if codec is None or not codec.keeps_residual:
            return 2  # who send as much as with servers, and encode once
        # What servers encode again, without a residual, Adam learns more from. Where that keeps
        # one, it costs more of the loss than the bytes are worth.
        return 0 if self._adaptive and codec.adaptive_rate_gain != 1 else 4

    def exchange_for(self, group: AnyGroup, codecs: Sequence[tersewire.Codec]) -> str:
        """The exchange as C++ names it."""
        if self.exchange is None:
            if self.pull_codec is not None or group.elastic:  # more ranks may come
                return "gradient-server"
            return "all-gather" if group.ranks <= self._most_without_servers else "gradient-server"
        if self.exchange != "all-reduce":
            return self.exchange
        sharing = [codec for codec in codecs if codec.shares_scalers]
        others = {codec.name for codec in codecs if codec not in sharing} - {"fp32"}
        for name in ["auto"] if self.is_auto else sorted(others):
            refuse(f"codec {name} does not fit exchange all-reduce, which adds up whole numbers; "
                   "use terngrad, stoch3 or another exchange")
        return "gradient-server" + (":scaler-sharing=on" if sharing else "")


def _text(codec: str | tersewire.Codec) -> str:
    return codec if isinstance(codec, str) else codec.text
