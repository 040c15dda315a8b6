"""Ansible is read once for all playbooks of a run: a process that has imported it makes a child for each of them.

To read Ansible takes most of the time of its start, and of a look at one host most of the look. What a child is given
(arguments, environment, channels) is what a process of its own would be; inside is `gpusetup.drive.forked`. What the
server cannot do exactly so is left to a process of its own.
"""

import socket
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from gpusetup.drive.fork_child import Child
from gpusetup.drive.inventory_memory import takes
from gpusetup.drive.runner import serving

_INSIDE = "gpusetup.drive.forked"
_OURS = "GPUSETUP_"
"""Variables that nothing reads before a child has its own environment."""


class ForkServer:
    """The server of one run. Who ends it is the end of the process that has it."""

    def __init__(self) -> None:
        self._control: socket.socket | None = None
        self._environment: dict[str, str] = {}
        self._descriptors: frozenset[int] = frozenset()
        self._begun = False

    def begin(self, environment: Mapping[str, str], descriptors: Collection[int] = ()) -> None:
        """Start it, if it was not: it imports Ansible while we go on. One that has ended does not come again."""
        if self._begun:
            return
        self._begun = True
        self._control, theirs = socket.socketpair()
        self._environment, self._descriptors = dict(environment), frozenset(descriptors)
        with theirs:
            number = theirs.fileno()
            serving([sys.executable, "-m", _INSIDE, str(number)], env=environment, descriptors=(number, *descriptors))

    def start(self, argv: Sequence[str], env: Mapping[str, str], descriptors: Collection[int]) -> Child | None:
        """Start what `argv` says, `python -m ansible playbook …`; None where a process of its own has to do it."""
        self.begin(env, descriptors)
        if self._control is None or not self._knows(env, descriptors):
            return None
        with suppress(OSError, ValueError):
            return Child(self._control, argv, env)
        self.close()
        return None

    def close(self) -> None:
        """Let it end, and the playbooks that it runs."""
        if self._control is not None:
            self._control.close()
            self._control = None

    def _knows(self, env: Mapping[str, str], descriptors: Collection[int]) -> bool:
        """Tell whether Ansible would have read the same if it were started now."""
        return self._descriptors.issuperset(descriptors) and all(
            name.startswith(_OURS) or takes(name, env) or env.get(name) == self._environment.get(name)
            for name in {*env, *self._environment}
        )
