"""What a new machine was told: /etc/gpusetup/bootstrap.json, written by the user-data."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from gpusetup.errors import BadInputError

ETC = Path("/etc/gpusetup")


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file."""

    source: str
    manifest_sha256: str
    variables: dict[str, Any] = {}
    """gpusetup_ variables, as in an inventory."""
    lock_url: str = ""
    lock_sha256: str = ""
    keep_driver: bool = False
    """A working driver that the image brings stays where everything else of the lock goes with it."""
    stage: Literal["", "image"] = ""
    """`image`: install what can be without a GPU and clean up; the first boot of each copy goes on from there."""
    recheck: int = 0
    """Look again every so many seconds once done."""
    callback: str = ""
    reboots: int = 2
    splay: int = 0
    """Start within so many seconds, each machine at its own time."""
    wait_deadline: int = 1800
    fetch_deadline: int = 1800


def read_config(path: Path = ETC / "bootstrap.json") -> Config:
    """Read it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Config)
    except PermissionError as error:
        raise BadInputError(
            "GS-742",
            "only root may read this machine's bootstrap settings",
            path=str(path),
            hint="run the command with sudo",
        ) from error
    except OSError as error:
        raise BadInputError(
            "GS-742",
            "this machine was not set up for a bootstrap",
            context=f"{path}: {error.strerror}",
            path=str(path),
            hint="gpusetup apply works on any machine; gpusetup cloud-init writes user-data for new ones",
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInputError("GS-743", f"the bootstrap's settings cannot be used: {error}", path=str(path)) from error
