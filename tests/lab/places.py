"""Where the lab keeps things: what can be made again (cache) and what runs now (state)."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parent
CHECKOUT = SOURCE.parent.parent
STATE = Path(os.environ.get("GPUSETUP_LAB_STATE", "/var/lib/gpusetup-lab"))
CACHE = Path(
    os.environ.get("GPUSETUP_LAB_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpusetup-lab"
)

HOSTS = STATE / "hosts"
SSH_KEY = STATE / "ssh" / "id_ed25519"
KNOWN_HOSTS = STATE / "ssh" / "known_hosts"
REPOSITORIES = STATE / "repositories"
MOLECULE = STATE / "molecule.json"
"""What the scenarios of molecule know of the stand-in repositories."""

# On the simulated host itself.
SIMULATED_ROOT = "/var/lib/gpusetup-lab/simulated"


class LabError(Exception):
    """The lab cannot do what was asked; the text says why and what to do."""


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """One process at a time for what several labs share: addresses, the bridge, root file systems."""
    folder = STATE / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
