"""Local updates among ranks that come and go."""

import hashlib
from typing import TYPE_CHECKING, Optional

import torch

from tersewire import Error, ErrorCode

from ._groups import HubGroup, packed, unpack
from ._settings import Settings

if TYPE_CHECKING:
    from ._local_updates import _Fragment

_SLACK_BYTES = 1 << 20  # names and shapes of what is handed over
_ARRAYS = 4  # parameters, momentum, and residuals of what is sent and of means


class Members:
    """What one rank does as others come and go: from generation to generation, round to round.

    In each generation all begin with the state after one round, of which everybody keeps the last
    two. Where one fails, those who are left go on in the next: with their progress since that
    round, if that is the one they trained from, and with the shared model otherwise.
    """

    def __init__(self, model: torch.nn.Module, fragment: "_Fragment", group: HubGroup,
                 settings: Settings) -> None:
        self._model, self._fragment, self._group = model, fragment, group
        self._buffers = [buffer for _, buffer in sorted(model.named_buffers())]
        self._round = -1  # after which this rank began to train as the others did
        self._over: Optional[str] = None  # why there are no more rounds
        self._leaves = False
        self.left = False
        fixed = [value for value in model.parameters() if not value.requires_grad]
        job = (settings.alike, fragment._job, _digest(packed(fixed)),
               [(tuple(buffer.shape), buffer.dtype) for buffer in self._buffers])
        group._enter(
            repr(job),
            4 * _ARRAYS * fragment.shared.numel() + self._packed_buffers().numel() * 4
            + _SLACK_BYTES * (1 + len(fragment._job) // 1000),
            settings.timeout)
        self._regroup()
        self._check_over()

    def leave(self) -> None:
        self._leaves = True
        self._group._member.leave()

    def close(self) -> None:
        """Ends the job: all rounds are done. Not that of others, where this rank's is over."""
        if self._over is None:
            self._over = "it has been closed"
            self._group._member.finish()
        self._group.close()

    def follow(self) -> bool:
        """After a step: whether what this rank has learned since the last round counts still."""
        self._check_over()
        return self._group._member.goes_on() or self._regroup()

    def meet(self) -> None:
        """Ends a round, with those who are there."""
        self._check_over()
        while True:
            try:
                self._fragment.begin()
                self._fragment.end()
                self._hold()
            except Error as error:
                self._tell_hub(error)
                if not self._regroup():
                    return
            else:
                break
        self._take()
        self._group._member.settle()
        if not self._group._member.goes_on():
            self._regroup()

    def _take(self) -> None:
        self._fragment.take(0.0)
        self._round = self._fragment.rounds

    def _tell_hub(self, error: Error) -> None:
        """Raises it, unless the job may go on without those of whom it comes."""
        if not self._group._member.goes_on_after(int(error.code), str(error)):
            self._over = str(error)
            raise error

    def _regroup(self) -> bool:
        """Goes on with those who are there now.

        Returns whether what this rank has learned since the last round counts still: not where the
        others have gone on without it, and not where the job is over for it.
        """
        held = self._fragment.rounds
        while True:
            self._fragment._worker.close()
            try:
                goes_on = self._group._next()
            except Error as error:
                self._over = str(error)
                raise
            if not goes_on:
                self._end(held)
                return False
            try:
                keeps = self._begin()
            except Error as error:
                self._tell_hub(error)
            else:
                break
        member = self._group._member
        if member.is_last:
            self._fragment.take(0.0)
            self._over = (f"{member.reason}; this rank has the model after round "
                          f"{self._fragment.rounds}: save it, and start a hub and all ranks anew")
            self._fragment.close()
            member.finish()
            raise Error(ErrorCode.kAborted, self._over)
        return keeps

    def _end(self, held: int) -> None:
        self.left = self._leaves
        self._over = ("this rank has left it" if self.left else
                      "another rank has closed it; let every script end after the same round")
        if held > self._round and (not self.left or held == self._group._member.begun_with):
            self._take()  # what its last round came to, as all others know
        self._fragment.close()

    @torch.no_grad()
    def _begin(self) -> bool:
        """What all of a generation do first; whether this rank trains on from where it is."""
        member, fragment = self._group._member, self._fragment
        fragment.go_on(self._group)
        if member.begun_with is None:
            self._group._share_model(self._model)
            fragment.share()
        elif not member.had_it:
            buffers = self._packed_buffers()
            member.begin_with("buffers", buffers)
            unpack(buffers.view(torch.uint8), self._buffers)
        keeps = member.had_it and fragment.rounds == self._round
        if not keeps:
            self._take()
        self._hold()
        return keeps

    def _hold(self) -> None:
        """Keeps a state, and waits until all ranks have the same one."""
        fragment = self._fragment
        fragment.hold(self._group, {"buffers": self._packed_buffers()})
        own = _digest(*fragment.alike().values())
        for rank, told in enumerate(self._group._gather(own)):
            if told != own:
                raise Error(ErrorCode.kDataLoss,
                            f"after round {fragment.rounds} rank {rank} has another model than "
                            f"rank {self._group.rank}; run one version everywhere, and start again "
                            "from a model that was saved")

    def _packed_buffers(self) -> torch.Tensor:
        """As float32, with which nobody computes."""
        data = packed(self._buffers)
        return torch.cat([data, data.new_zeros(-data.numel() % 4)]).view(torch.float32)

    def _check_over(self) -> None:
        if self._over is not None:
            raise Error(ErrorCode.kFailedPrecondition,
                        f"the job is over for this rank: {self._over}")


def _digest(*values: torch.Tensor) -> str:
    digest = hashlib.sha256()
    for value in values:
        digest.update(value.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
