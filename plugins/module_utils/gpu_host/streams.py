"""Module streams of dnf, with the earlier stream on record."""

from typing import Any, Dict, Iterable, List, Optional

from .failure import HostFailure
from .journal import Journal, Thing


class Stream(Thing):
    """One module; its value is the enabled stream, None without one."""

    kind = "module stream"
    section = "streams"
    stays = True

    def __init__(self, host: Any, name: str) -> None:
        super().__init__(name)
        self.host = host

    def look(self) -> Optional[str]:
        """Return the enabled stream from dnf's own files; fail for a package manager without streams."""
        found: List[Dict[str, Optional[str]]] = self.host.enabled_streams([self.name])
        if not found:
            self.host.streams([{"module": self.name, "stream": ""}])
        return found[0]["stream"] if found else None

    def make(self, wanted: Optional[str]) -> None:
        self.host.streams([{"module": self.name, "stream": wanted}])

    def aim(self, wanted: Optional[str]) -> str:
        return "be at " + (wanted or "(default)")

    def failure(self, now: Optional[str], wanted: Optional[str]) -> HostFailure:
        words = f"module {self.name}: the stream is {now or '(default)'}, not {wanted or '(default)'}"
        return HostFailure("GS-465", words + ", although dnf reported success")


def enable(ledger: Journal, host: Any, wanted: Iterable[Dict[str, Any]]) -> List[str]:
    """Enable exactly the wanted streams (none: the default); return those that had to be changed."""
    items = [(Stream(host, item["module"]), item["stream"]) for item in wanted]
    return [f"{thing.name}:{stream or '(default)'}" for thing, stream in items if ledger.change(thing, stream)]


def reset(ledger: Journal, host: Any) -> List[str]:
    """Restore the streams from before gpusetup; return what changed."""
    was = dict(ledger.state["streams"])
    return [f"{name}:{was[name] or '(default)'}" for name in sorted(was) if ledger.undo(Stream(host, name))]
