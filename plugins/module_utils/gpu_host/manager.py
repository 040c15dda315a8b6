"""What all package managers share, and the answers of those without module streams."""

import glob
import os
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from . import process
from .failure import HostFailure
from .packages import Wish

Tell = Optional[Callable[..., None]]
Log = Optional[Callable[[str], None]]
MayGo = Callable[[Iterable[str]], List[str]]
"""Returns those of some packages that nobody allowed to be removed."""


class PackageManager:
    """One host's package manager."""

    name = ""
    caches: Tuple[str, ...] = ()
    """Where downloaded package files stay."""

    def __init__(self, network: Optional[Dict[str, Any]] = None, tell: Tell = None, log: Log = None) -> None:
        self.env = process.environment(network)
        self.ca_file: str = (network or {}).get("ca_file") or ""
        self.tell = tell or (lambda *_words: None)
        self.log = log
        self.said = ""  # why the last simulation left something out

    def close(self) -> None:
        """Delete temporary files of one transaction."""

    def archive(self, wish: Wish, *more: str) -> str:
        """Return the file of an exact package version in a cache or one of these folders, empty if there is none."""
        for folder in (*self.caches, *more):
            for name in self.file_names(wish):
                for path in sorted(glob.glob(os.path.join(folder, glob.escape(name)))):
                    return path
        return ""

    def file_names(self, _wish: Wish) -> List[str]:
        """Return the possible names of a package's file."""
        raise NotImplementedError

    def can_hold(self) -> bool:
        return True

    def needed_to_hold(self) -> List[str]:
        """Return the packages without which packages cannot be held."""
        return []

    def offered(self, _names: Sequence[str]) -> Dict[str, List[Dict[str, str]]]:
        """Return {name, or name:arch: [{"version", "from"}]}, newest first."""
        raise NotImplementedError

    def ever_offered(self, names: Sequence[str]) -> Dict[str, List[Dict[str, str]]]:
        """Do the same as `offered`, including module streams that are not enabled."""
        return self.offered(names)

    def streams(self, wanted: Iterable[Dict[str, Any]]) -> List[str]:
        """Refuse module streams: only dnf has them."""
        if wanted:
            raise HostFailure("GS-461", f"module streams were requested, but this host uses {self.name}")
        return []

    def enabled_streams(self, _modules: Iterable[str]) -> List[Dict[str, Optional[str]]]:
        return []

    def automatic_upgrades(self, _names: Iterable[str]) -> Dict[str, str]:
        """Return no file: automatic upgrades by dnf and zypper respect locks."""
        return {}
