"""The one exception type of the package."""

import enum


class ErrorCode(enum.IntEnum):
    """What kind of failure an Error is; the numbers are gRPC's status codes."""

    kCancelled = 1
    kInvalidArgument = 3
    kDeadlineExceeded = 4
    kNotFound = 5
    kResourceExhausted = 8
    kFailedPrecondition = 9
    kAborted = 10
    kOutOfRange = 11
    kUnimplemented = 12
    kInternal = 13
    kUnavailable = 14
    kDataLoss = 15


class Error(RuntimeError):
    """Raised by everything here that fails; its text is one sentence that says what to do."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(code, sentence)
        self.code = ErrorCode(code)

    def __str__(self) -> str:
        return str(self.args[1])
