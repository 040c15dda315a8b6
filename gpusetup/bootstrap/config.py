"""The settings of a bootstrap: /etc/gpusetup/bootstrap.json, written by the user-data."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from gpusetup.errors import BadInputError

ETC = Path("/etc/gpusetup")


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of bootstrap.json."""

    source: str
    manifest_sha256: str
    variables: dict[str, Any] = {}
    """gpusetup_ variables, as in an inventory."""
    lock_url: str = ""
    lock_sha256: str = ""
    keep_driver: bool = False
    """Keep a working driver of the image if the rest of the lock is compatible with it."""
    stage: Literal["", "image"] = ""
    """`image`: install what needs no GPU and clean up; each copy continues at its first boot."""
    recheck: int = 0
    """Seconds between re-checks once done; 0: none."""
    callback: str = ""
    reboots: int = 2
    splay: int = 0
    """Wait a random time of at most this many seconds before the start."""
    wait_deadline: int = 1800
    fetch_deadline: int = 1800


def read_config(path: Path = ETC / "bootstrap.json") -> Config:
    """Read the settings; raise if they are missing or invalid."""
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
