"""Run a command with a deadline; what it printed is in the error."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.lab.places import LabError


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
