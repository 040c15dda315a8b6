"""What a package manager keeps, with its earlier state on record: held packages, and module streams of dnf."""

from typing import Any, Dict, Iterable, List, Optional, Sequence

from .failure import HostFailure
from .journal import Journal, State, Thing


class Holds(Thing):
    """All our holds as one thing, without those of others; the record lists those that we made or began to make."""

    kind = "holds of"
    section = "holds"
    whole = True
    stays = True

    def __init__(self, host: Any, ours: Sequence[str]) -> None:
        super().__init__("packages")
        self.host = host
        self.ours = set(ours)
        self.held: List[str] = []

    def look(self) -> List[str]:
        self.held = sorted(self.host.held())
        return self.held

    def fits(self, now: Sequence[str], wanted: Sequence[str]) -> bool:
        """Return whether everything wanted is held, and none of our other packages."""
        return not set(wanted) - set(now) and not (self.ours - set(wanted)) & set(now)

    def make(self, wanted: Sequence[str]) -> None:
        """Release our holds that nobody wants any more, and add the missing ones."""
        held = set(self.held)
        self.host.unhold(sorted((self.ours - set(wanted)) & held))
        self.host.hold(sorted(set(wanted) - held))

    def failure(self, now: Sequence[str], wanted: Sequence[str]) -> HostFailure:
        free, kept = sorted(set(wanted) - set(now)), sorted((self.ours - set(wanted)) & set(now))
        words = "packages are not held" if free else "packages are still held"
        return HostFailure("GS-464", words + ", although the package manager reported success", ", ".join(free or kept))

    def aim(self, wanted: Sequence[str]) -> str:
        return "be " + (", ".join(wanted) or "none")

    def first(self, _state: State) -> List[str]:
        """Nothing was held by us before us."""
        return []

    def note(self, state: State, before: Sequence[str], wanted: Sequence[str]) -> None:
        """Record wanted packages that are not held yet as ours: afterwards nobody can tell whose hold it is."""
        ours = set(state[self.section])
        going = (ours - set(wanted)) & set(before)
        state[self.section] = sorted((ours & set(wanted)) | going | (set(wanted) - set(before)))

    def settle(self, state: State, wanted: Sequence[str]) -> None:
        """Remove the released holds from the record."""
        state[self.section] = sorted(set(state[self.section]) & set(wanted))

    def forget(self, state: State) -> None:
        state[self.section] = []


class Stream(Thing):
    """One module of dnf; its value is the enabled stream, None without one."""

    kind = "module stream"
    section = "streams"
    stays = True
    unchosen = ()

    def __init__(self, host: Any, name: str) -> None:
        super().__init__(name)
        self.host = host

    def look(self) -> Optional[str]:
        """Return the enabled stream; fail for a package manager without streams."""
        found: Optional[str] = self.host.enabled_stream(self.name)
        return found

    def make(self, wanted: Optional[str]) -> None:
        self.host.set_stream(self.name, wanted)

    def aim(self, wanted: Optional[str]) -> str:
        return "be at " + (wanted or "(default)")

    def failure(self, now: Optional[str], wanted: Optional[str]) -> HostFailure:
        words = f"module {self.name}: the stream is {now or '(default)'}, not {wanted or '(default)'}"
        return HostFailure("GS-465", words + ", although dnf reported success")


def enable_streams(ledger: Journal, host: Any, wanted: Iterable[Dict[str, Any]]) -> List[str]:
    """Enable exactly the wanted streams (none: the default); return those that had to be changed."""
    items = [(Stream(host, item["module"]), item["stream"]) for item in wanted]
    return [f"{thing.name}:{stream or '(default)'}" for thing, stream in items if ledger.change(thing, stream)]


def reset_streams(ledger: Journal, host: Any) -> List[str]:
    """Restore the streams from before gpusetup; return what changed."""
    was = dict(ledger.state["streams"])
    return [f"{name}:{was[name] or '(default)'}" for name in sorted(was) if ledger.undo(Stream(host, name))]
