"""Make standard input, output and error safe for every command: open, and able to print any text.

Using a closed stream raises a clear error; a terminal without Unicode gets ASCII replacements. A failed write to
standard output is an error, even of help and version. A reader that left (`| head`) changes nothing: the command
continues and returns its usual exit code.
"""

import codecs
import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, NoReturn

from gpusetup.errors import BadInputError

_ASCII = {
    "…": "...", "≥": ">=", "≤": "<=", "→": "->", "·": "-", "—": "-", "µ": "u", "✓": "ok", "✗": "x",
    "\N{EN DASH}": "-", "\N{MULTIPLICATION SIGN}": "x",
}  # fmt: skip
"""Replacements on terminals without Unicode; other characters become question marks."""


class _ClosedInput(io.TextIOBase):
    """Standard input that was already closed at startup."""

    @property
    def closed(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    @property
    def buffer(self) -> NoReturn:
        raise BadInputError(
            "GS-104", "cannot read standard input: it is closed", path="standard input",
            hint="give a file in place of -, or pipe the text in",
        )  # fmt: skip


class UnwrittenError(BadInputError):
    """The answer cannot be written to standard output."""


class _Stream(io.TextIOWrapper):
    """Standard error; text is discarded once its reader has left, or its terminal was closed."""

    ends_with_reader, gone = False, frozenset({errno.EPIPE, errno.EIO})

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._failed(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        if self.ends_with_reader or error.errno not in self.gone:
            raise error
        dropped(self)


class _Answer(_Stream):
    """Standard output; a failed write raises UnwrittenError with the reason."""

    gone = frozenset({errno.EPIPE})

    def _failed(self, error: OSError) -> None:
        try:
            super()._failed(error)
        except OSError:
            raise _refusal(error) from error


def end_with_reader() -> None:
    """Let writes raise BrokenPipeError once the reader has left, for commands that run until stopped."""
    if isinstance(sys.stdout, _Stream):
        sys.stdout.ends_with_reader = True


@contextmanager
def terminated_is_interrupted() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C: stop cleanly and report each host's state; nohup keeps its meaning."""
    import signal

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number in (number for number, handler in before.items() if handler is not signal.SIG_IGN):
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def prepare() -> None:
    """Open closed streams before a file gets their descriptors, and replace what a terminal cannot show."""
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)
        sys.stdin = _ClosedInput()
    if sys.stdout is None:
        sys.stdout = _Answer(io.FileIO(os.open(os.devnull, os.O_RDONLY), "w"), "utf-8", write_through=True)
    elif sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        out = sys.stdout
        sys.stdout = _Answer(
            out.buffer, out.encoding, out.errors, line_buffering=out.line_buffering, write_through=out.write_through
        )
    if sys.stderr is None:
        sys.stderr = io.TextIOWrapper(io.FileIO(os.open(os.devnull, os.O_WRONLY), "w"), "utf-8", write_through=True)
    elif sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        err = sys.stderr
        sys.stderr = _Stream(err.buffer, err.encoding, err.errors, line_buffering=True, write_through=err.write_through)
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue
        if not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="gpusetup-plain")
        elif stream.errors == "strict":  # a file name need not be UTF-8
            stream.reconfigure(errors="backslashreplace")


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_ASCII.get(sign, "?") for sign in error.object[error.start : error.end]), error.end


codecs.register_error("gpusetup-plain", _in_ascii)


def _refusal(error: OSError) -> OSError | UnwrittenError:
    """Return the error for a failed write to standard output; return BrokenPipeError unchanged."""
    if isinstance(error, BrokenPipeError):
        return error
    dropped(sys.stdout)
    reason = "it is closed" if error.errno == errno.EBADF else error.strerror
    return UnwrittenError(
        "GS-103", f"cannot write the answer: {reason}", path="standard output",
        hint="give a file with --out, where the command has it, or free standard output",
    )  # fmt: skip


def dropped(*streams: IO[str]) -> None:
    """Redirect streams to /dev/null: flushing their buffers at exit would fail again."""
    for stream in streams:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
