"""Ranks that come and go: what LocalUpdates and DistributedOptimizer share of it."""

import contextlib
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from tersewire import Error, ErrorCode, _core

from ._averager import GradientAverager
from ._groups import HubGroup, digest_of, form_of, packed, share_model, unpack
from ._tensors import refuse

_SLACK_BYTES = 1 << 20  # names and shapes of what is handed over
_log = logging.getLogger("tersewire")


class Replica(GradientAverager):
    """What ranks that come and go have alike, and the exchange that changes it."""

    _elastic = True

    @property
    def rounds(self) -> int:
        """Exchanges so far, of the job."""
        return self._step

    def share(self) -> None:
        """Takes the model, which all ranks have just been given, as what they have alike."""

    def alike(self) -> dict[str, torch.Tensor]:
        """What is the same on all ranks between two exchanges, as float32."""
        raise NotImplementedError

    def beside(self) -> dict[str, torch.Tensor]:
        """What only a rank that comes is given, as float32."""
        return {}

    def take(self) -> None:
        """Gives the model what ranks have alike."""
        raise NotImplementedError

    def take_beside(self) -> None:
        """Takes what beside() is of another rank."""

    def go_on(self, group: HubGroup) -> None:
        """Meets the ranks of another generation, in the state that they all begin with."""
        self._worker.go_on(group._end, group._member)
        self._last_state = None  # not before: it fails if a rank dies meanwhile
        self._may_undo = False
        if group._member.begun_with is not None:
            self._steps_before = group._member.begun_with - self._steps_here

    def hold(self, group: HubGroup, beside: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Keeps what others may have to continue from; returns alike()."""
        alike = self.alike()
        self._worker.hold(group._member, {**alike, **self.beside(), **beside})
        return alike

    def _keep_state(self) -> None:
        super()._keep_state()
        if self._last_state is None:  # within a step, whose means nobody will apply
            self._last_state = self._worker.held_state()


class Members:
    """What one rank does as others come and go: from generation to generation, exchange to exchange.

    In each generation all begin with the state after one exchange; every rank keeps the last two.
    If a rank fails, the remaining ones continue in the next generation: with their progress since
    that state, if that is the one they trained from, and with the shared model otherwise.

    most_bytes  the most bytes a rank hands over, excluding buffers
    alike       its hash must be the same on all ranks, like the tensors' names and codecs
    round_name  what an exchange ends ("round", "step"), for messages
    """

    def __init__(self, model: torch.nn.Module, trained: Sequence[torch.Tensor], replica: Replica,
                 group: HubGroup, most_bytes: int, alike: Any, round_name: str) -> None:
        self._model, self._replica, self._group = model, replica, group
        self._round_name = round_name
        buffers = sorted(model.named_buffers())
        self._buffers = [buffer for _, buffer in buffers]
        self._round = -1  # after which this rank began to train as the others did
        self._loaded = -1  # the round after which this rank has loaded what was saved
        self._known: set[tuple[str, int]] | None = None  # ranks of the last generation
        self._over = ""  # why there are no more exchanges
        self._began_in = sys.exc_info()[1]  # all of a script may run in a handler
        self._leaves = False
        self.left = False
        known = {id(value) for value in trained}
        fixed = [value for value in model.parameters() if id(value) not in known]
        job = (alike, replica._job(), digest_of([packed(fixed)]),
               [form_of(name, buffer) for name, buffer in buffers])
        group._enter(
            repr(job), most_bytes + packed_floats(self._buffers).numel() * 4
            + _SLACK_BYTES * (1 + len(replica._infos) // 1000),
            replica._settings.timeout)
        self._regroup()
        self._check_over()
        group._member.be_away(True)

    @contextlib.contextmanager
    def here(self) -> Iterator[None]:
        """While the script is in a call that goes on with the job: outside of them it may hang."""
        self._check_over()
        self._group._member.be_away(False)
        try:
            yield
        except Error:
            raise
        except BaseException:  # such as Ctrl-C: its close() must not end the job for all
            self._over = "it was interrupted on this rank; start the rank again"
            raise
        finally:
            self._group._member.be_away(True)

    def leave(self) -> None:
        self._leaves = True
        member = self._group._joined.get("member")
        if member is not None:  # there is none after close()
            member.leave()

    def close(self) -> None:
        """Ends the job: all exchanges are done. If over for this rank alone, others continue."""
        if self._group._finish.alive and not self._over:
            failure = sys.exc_info()[1]
            has_failed = failure is not self._began_in and _is_failure(failure)
            self._over = (f"a {type(failure).__name__} has ended it on this rank; start the rank again"
                          if has_failed else
                          f"it has been closed; close it after the last {self._round_name}")
            if not has_failed:
                self._group._member.finish()
        self._group.close()

    def load(self, load: Callable[[], None]) -> None:
        """Makes this rank begin with the saved state of an ended job, as every rank must."""
        self._check_over()
        if self._replica.rounds > 0:
            refuse(f"this rank is in a running job after {self._round_name} "
                   f"{self._replica.rounds}, and has its state from the others; load what was "
                   f"saved only before the first {self._round_name}")
        try:
            load()
        except Exception as error:  # the others must not go on without what it has saved
            self._over = f"rank {self._replica.rank} could not load what was saved: {error}"
            self._group._member.goes_on_after(int(ErrorCode.kInvalidArgument), self._over)
            raise
        self._round = self._loaded = self._replica.rounds
        self.hold(compares=False)

    def follow(self) -> bool:
        """Whether this rank's progress since the last exchange still counts."""
        self._check_over()
        return self._group._member.goes_on() or self._regroup()

    def exchange(self, exchange: Callable[[], None]) -> bool:
        """Makes an exchange with the ranks present, and repeats it if some of them fail.

        Returns whether it was made: not if the others have continued without this rank, or the
        job is over for it.
        """
        if not self.follow():
            return False
        while True:
            try:
                exchange()
            except Error as error:
                if not self.recover(error):
                    return False
            else:
                break
        self._round = self._replica.rounds
        return True

    @torch.no_grad()
    def hold(self, compares: bool) -> None:
        """Keeps a state; where it compares, all ranks must have the same one before it returns."""
        alike = self._replica.hold(self._group, {"buffers": packed_floats(self._buffers)})
        if not compares:
            return
        own = digest_of(alike.values())
        for rank, told in enumerate(self._group._gather(own)):
            if told != own:
                raise Error(ErrorCode.kDataLoss,
                            f"after {self._round_name} {self._replica.rounds} rank {rank} has "
                            f"another model than rank {self._group.rank}; run one version "
                            "everywhere, with the same settings and learning rates, and start "
                            "again from a saved model")

    def settle(self) -> None:
        """Waits until the hub knows what this rank holds; continues with the ranks then present."""
        self._group._member.settle()
        if not self._group._member.goes_on():
            self._regroup()

    def settle_changes(self) -> None:
        """The same if a rank is about to join or leave."""
        if self._group._member.closes():
            self.settle()

    def recover(self, error: Error) -> bool:
        """As _regroup(), after an error caused by other ranks; raises it if the job cannot go on."""
        self._tell_hub(error)
        return self._regroup()

    @torch.no_grad()
    def _take(self) -> None:
        self._replica.take()
        self._round = self._replica.rounds

    def _tell_hub(self, error: Error) -> None:
        """Raises it, unless the job may continue without the ranks that caused it."""
        if not self._group._member.goes_on_after(int(error.code), str(error)):
            self._over = str(error)
            raise error

    def _regroup(self) -> bool:
        """Continues with the ranks present now.

        Returns whether this rank's progress since the last exchange still counts: not if the
        others have continued without it, or the job is over for it.
        """
        held = self._replica.rounds
        while True:
            self._replica._keep_state()  # the job may be over
            self._replica._worker.close()
            try:
                goes_on = self._group._next()
            except Error as error:
                self._over = str(error)
                raise
            if not goes_on:
                self._end(held)
                return False
            self._log_changes()
            try:
                keeps = self._begin()
            except Error as error:
                self._tell_hub(error)
            else:
                break
        member = self._group._member
        if member.is_last:
            self._replica.take()
            self._over = (f"{member.reason}; this rank has the model after {self._round_name} "
                          f"{self._replica.rounds}: save it, and restart a hub and all ranks")
            GradientAverager.close(self._replica)  # the group stays
            member.finish()
            raise Error(ErrorCode.kAborted, self._over)
        return keeps

    def _log_changes(self) -> None:
        """Logs who has joined and left."""
        member = self._group._member
        now = {(name, number) for name, number, _ in member.members}
        works = {(name, number) for name, number, is_rank in member.members if is_rank}
        goes_on = f"{len(works)} ranks go on" if len(works) != 1 else "1 rank goes on"
        parts = [f"{goes_on} after {self._round_name} {member.begun_with or 0}: {_listed(works)}"]
        if self._known is not None:
            gone, new = self._known - now, works - self._known
            if gone:
                parts.append(f"gone, with what they had still to deliver: {_listed(gone)}")
            if now - works:
                parts.append(f"left: {_listed(now - works)}")
            if new:
                parts.append(f"joined: {_listed(new)}")
            _log.log(logging.WARNING if gone else logging.INFO, "; ".join(parts))
        self._known = works

    def _end(self, held: int) -> None:
        self.left = self._leaves
        self._over = ("this rank has left it; stop where `left` is true" if self.left else
                      f"another rank has closed it; let every script end after the same "
                      f"{self._round_name}")
        has_begun = self._round >= 0
        if has_begun and held > self._round and (
                not self.left or held == self._group._member.begun_with):
            self._take()  # what its last round came to, as all others know
        GradientAverager.close(self._replica)  # the group stays

    @torch.no_grad()
    def _begin(self) -> bool:
        """What all of a generation do first; whether this rank trains on from where it is."""
        member, replica = self._group._member, self._replica
        replica.go_on(self._group)
        if replica.rounds < self._loaded:
            raise Error(ErrorCode.kFailedPrecondition,
                        f"this rank has loaded what was saved after {self._round_name} "
                        f"{self._loaded}, but not all ranks had when ranks came or went; start the "
                        "hub and all ranks again")
        if member.begun_with is None:
            share_model(self._group, self._model)
            replica.share()
        elif not member.had_it:
            begin_with(member, "buffers", self._buffers)
            replica.take_beside()
            if self._round >= 0:
                _log.warning(
                    "the others continued without this rank, which was silent or made no progress "
                    f"in the job for its time limit; it rejoins after {self._round_name} "
                    f"{replica.rounds}, and its residuals are lost")
        keeps = member.had_it and replica.rounds == self._round
        if not keeps:
            self._take()
        self.hold(compares=True)
        return keeps

    def _check_over(self) -> None:
        if self._over:
            raise Error(ErrorCode.kFailedPrecondition,
                        f"the job is over for this rank: {self._over}")


class MayLeave:
    """A rank that may leave the others, if they come and go."""

    _members: Members | None = None

    def leave(self) -> None:
        """Makes this rank leave, if ranks come and go, after its round or step.

        It hands over its undelivered data. Returns at once, also in a signal handler.
        """
        if self._members is None:
            refuse("the ranks of this job stay; call leave() with a HubGroup(elastic=True)")
        self._members.leave()

    @property
    def left(self) -> bool:
        """Whether this rank has left and is no longer needed."""
        return self._members is not None and self._members.left


def as_floats(data: torch.Tensor) -> torch.Tensor:
    """Bytes as float32, with which nobody computes; zeros behind them fill the last."""
    return torch.cat([data, data.new_zeros(-data.numel() % 4)]).view(torch.float32)


def packed_floats(values: Sequence[torch.Tensor]) -> torch.Tensor:
    return as_floats(packed(values))


def begin_with(member: _core._HubMember, name: str, targets: Sequence[torch.Tensor]) -> None:
    """Takes what packed_floats() gave of them, and others hold under this name."""
    values = packed_floats(targets)
    member.begin_with(name, values)
    unpack(values.view(torch.uint8), targets)


def _is_failure(handled: BaseException | None) -> bool:
    if isinstance(handled, SystemExit):
        return bool(handled.code)
    return handled is not None and not isinstance(handled, (StopIteration, GeneratorExit))


def _listed(members: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"'{name}'" for name, _ in sorted(members))


def refuse_elastic(call: str) -> None:
    refuse(f"{call}() is for ranks that stay: one that joins has its state from the others; end "
           "the job, and start another hub for one with other settings")
