"""Run a command with a deadline, what it printed is in the error; wait for something with one."""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.lab.places import LabError


def until(reached: Callable[[], object], what: str, seconds: float = 120, pause: float = 0.05) -> None:
    """Wait for it; that it never came is an error in words."""
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > deadline:
            raise LabError(f"within {seconds:.0f} s this did not happen: {what}")
        time.sleep(pause)


def run(
    argv: Sequence[str | Path],
    *,
    check: bool = True,
    timeout: float = 120,
    text: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    command = [str(word) for word in argv]
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=timeout,
            input=text if text is not None else "", env=env, cwd=cwd,
        )  # fmt: skip
    except FileNotFoundError:
        raise LabError(f"the lab needs the program {command[0]}, which this machine does not have") from None
    except subprocess.TimeoutExpired:
        raise LabError(f"no answer within {timeout:.0f} s: {' '.join(command)}") from None
    if check and done.returncode:
        raise LabError(
            f"exit status {done.returncode}: {' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}".rstrip()
        )
    return done
