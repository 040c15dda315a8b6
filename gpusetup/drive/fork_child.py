"""A process that the fork server made: it is not our child, so the server reports its end."""

import json
import os
import select
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from typing import IO

_READY_WITHIN = 60.0
"""Seconds that the server may need to import Ansible."""


class Child:
    """A playbook's process, with the part of `subprocess.Popen`'s interface that the runner uses."""

    def __init__(self, control: socket.socket, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.returncode: int | None = None
        self._told = b""
        self._channel, theirs = socket.socketpair()
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        self.stdout: IO[bytes] = os.fdopen(out, "rb", buffering=0)
        self.stderr: IO[bytes] = os.fdopen(err, "rb", buffering=0)
        try:
            with theirs:
                socket.send_fds(control, [b"+"], [theirs.fileno(), out_end, err_end])
            self.pid = self._number(time.monotonic() + _READY_WITHIN)
            request = json.dumps({"argv": list(argv[3:]), "env": dict(env)}).encode()
            self._channel.sendall(b"%d\n%s" % (len(request), request))
        except (OSError, ValueError):
            for stream in (self._channel, self.stdout, self.stderr):
                stream.close()
            raise
        finally:
            os.close(out_end)
            os.close(err_end)

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""
        if self.returncode is None and self._readable(0):
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code; raise TimeoutError after `timeout` seconds."""
        if self.returncode is None:
            if not self._readable(timeout):
                raise TimeoutError
            self._end()
        return self.returncode if self.returncode is not None else -signal.SIGKILL

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def _end(self) -> None:
        try:
            self.returncode = self._number(time.monotonic() + _READY_WITHIN)
        except (OSError, ValueError):  # the server was killed, and its children with it
            self.returncode = -signal.SIGKILL
        self._channel.close()

    def _readable(self, seconds: float | None) -> bool:
        if self._told:
            return True
        poll = select.poll()  # unlike select() it takes descriptors of any number
        poll.register(self._channel, select.POLLIN)
        return bool(poll.poll(None if seconds is None else seconds * 1000))

    def _number(self, until: float) -> int:
        """Return the next number from the server: first the process id, later the exit code."""
        while b"\n" not in self._told:  # a line is written at once
            if not self._readable(max(0.0, until - time.monotonic())):
                raise TimeoutError
            if not (data := self._channel.recv(64)):
                raise ConnectionResetError
            self._told += data
        line, _, self._told = self._told.partition(b"\n")
        return int(line)
