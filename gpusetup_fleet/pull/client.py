"""One pull of this host: fetch the offer, decide, take a lease, apply, verify, report. Each server may be down."""

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from gpusetup import __version__
from gpusetup.bootstrap.effects import HOME as WORK
from gpusetup.bootstrap.effects import Effects, answer_of, boot_id, outcome_of_apply
from gpusetup.bootstrap.run import alone_on_machine
from gpusetup.bootstrap.userdata import Config
from gpusetup.bootstrap.web import Unfetched, content_of, passes, session
from gpusetup.drive.rundir import write_whole
from gpusetup.errors import BadInputError, GpuSetupError, PreflightError
from gpusetup.model import UNDECODED, kept_in, stamp
from gpusetup_fleet.model.pull import Offer, PullReport, PullState
from gpusetup_fleet.pull.leases import Access, Lease, Refused, take
from gpusetup_fleet.pull.offers import expired, opened, parsed

HOME = Path("/var/lib/gpusetup/pull")
_TIMEOUT, _PATIENCE = 30.0, 300.0
_LIMIT = 8 << 20
_RETRY, _LONGEST = timedelta(minutes=10), timedelta(days=1)
_STATES = ("done", "unchanged", "nothing-to-do", "pending-reboot", "refused", "failed", "verify-failed")


class Settings(NamedTuple):
    """The options of `gpusetup fleet pull`."""

    url: str
    host: str
    kind: str
    domain: str
    wave: int
    token: Path
    signers: Path
    ca: str | bool
    variables: dict[str, Any]
    home: Path = HOME
    certificate: str = ""
    key: str = ""
    login: Path | None = None
    """A file with the etcd user and its password, `NAME:PASSWORD`."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What the host keeps from one pull to the next."""

    tag: str = ""
    """The ETag of the offer in offer.json."""
    applied: str = ""
    state: str = ""
    stack: str = ""
    boot: str = ""
    tried: str = ""
    """Digest of the lock that failed last; empty after a success."""
    failures: int = 0
    again: str = ""
    """Time from which that lock may be tried again."""
    reference: str = ""
    message: str = ""
    number: int = 0


class _Outcome(NamedTuple):
    state: PullState
    reference: str = ""
    message: str = ""
    hint: str = ""


def _because(state: PullState, error: GpuSetupError) -> _Outcome:
    return _Outcome(state, error.reference, error.message, error.hint)


_CUT = _Outcome("failed", "", "the pull before ended while it applied this lock, and nobody knows how far it came")


def pull(settings: Settings, log: Callable[[str], None]) -> tuple[PullReport, bool]:
    """Pull once; return the report, and whether the collector took it."""
    home = settings.home
    with alone_on_machine(home, "pull", "wait for it"):
        begun, clock = datetime.now(timezone.utc), time.monotonic()
        kept, notes = _load(home), list[str]()
        offer, kept, trouble = _offer(settings, kept, notes)
        outcome = trouble or why_not(offer, kept, settings.wave, boot_id(), begun)
        changed = 0
        if outcome is None and offer is not None:
            outcome, kept, changed = _change(settings, offer, kept, notes, log)
        kept = replace(kept, number=next_number(kept.number, begun))
        _save(home, kept)
        serial, wanted = (offer.serial, offer.lock.digest) if offer is not None else (0, "")
        told = outcome or _Outcome("unchanged")
        report = PullReport(
            host=settings.host, number=kept.number, time=stamp(begun), kind=settings.kind,
            domain=settings.domain, wave=settings.wave, state=told.state, serial=serial, wanted=wanted,
            lock=kept.applied, stack=kept.stack[:1000], reference=told.reference[:20], message=told.message[:4000],
            hint=told.hint[:4000], notes=tuple(note[:4000] for note in notes), changed=changed,
            seconds=round(time.monotonic() - clock, 1), gpusetup=__version__,
        )  # fmt: skip
        _queue(home, report)
        return report, _deliver(settings, log)


def next_number(before: int, now: datetime) -> int:
    """Return a report's number: the clock in milliseconds, and greater than before unless the clock was a day ahead."""
    clock = int(now.timestamp() * 1000)
    wrong = before > clock + timedelta(days=1) / timedelta(milliseconds=1)
    return clock if wrong else max(before + 1, clock)


def why_not(offer: Offer | None, kept: Kept, wave: int, boot: str, now: datetime) -> _Outcome | None:
    """Return the outcome of a host that changes nothing now; None if it has to change."""
    if offer is None:
        return _Outcome("no-lock", "GS-985", "the collector did not answer, and no lock is kept from before",
                        "the next pull asks again")  # fmt: skip
    wanted = offer.lock.digest
    if wanted == kept.applied and kept.state in ("done", "nothing-to-do"):
        return _Outcome("unchanged")
    if wanted == kept.applied and kept.state == "pending-reboot" and kept.boot == boot:
        return _Outcome("pending-reboot", "", kept.message, "reboot it when its work allows")
    if expired(offer, now):
        return _Outcome(
            "waiting", "GS-986", f"the offer ended on {offer.expires}", "gpusetup fleet offer makes a new one"
        )
    if offer.wave and wave > offer.wave:
        return _Outcome("waiting", "", f"wave {wave} is not yet released", "gpusetup fleet offer --wave releases it")
    if wanted == kept.tried and stamp(now) < kept.again <= stamp(now + _LONGEST):  # later: a clock was wrong
        state: PullState = "verify-failed" if kept.state == "verify-failed" else "failed"
        return _Outcome(state, kept.reference, kept.message, f"tried again after {kept.again}, or with another lock")
    return None


def _offer(settings: Settings, kept: Kept, notes: list[str]) -> tuple[Offer | None, Kept, _Outcome | None]:
    """Return the collector's offer, else the kept one; what to keep; and the outcome if an offer was refused."""
    place, before = settings.home / "offer.json", None
    address = f"{settings.url}/v1/offers/{quote(settings.kind)}"
    try:
        before, seen = _before(settings, place, notes)
        raw, tag = _fetched(settings, address, kept.tag if before is not None else "")
        if raw is None:
            return before, kept, None
        offer = opened(raw, address, settings.signers, settings.kind)
        if seen is not None and offer != seen and offer.serial <= seen.serial:
            raise BadInputError(
                "GS-987", f"the collector hands out offer {offer.serial}; this host has seen {seen.serial}",
                path=address, hint="an old offer was put back: make a new one with gpusetup fleet offer",
            )  # fmt: skip
        write_whole(place, raw, 0o600)
        return offer, replace(kept, tag=tag), None
    except Unfetched as error:
        notes.append(f"the collector gave no offer, the one of before counts: {error}")
        return before, kept, None
    except GpuSetupError as error:
        return before, kept, _because("refused", error)


def _before(settings: Settings, place: Path, notes: list[str]) -> tuple[Offer | None, Offer | None]:
    """Return the kept offer of this class if its signer is still trusted, and the same offer whoever signed it."""
    if not place.exists():
        return None, None
    raw, seen = place.read_bytes(), None
    try:
        seen = parsed(raw, str(place))[1]
        if seen.kind != settings.kind:
            return None, None
        return opened(raw, str(place), settings.signers, settings.kind), seen
    except BadInputError as error:
        notes.append(f"the offer of before no longer counts: {error.message}")
        return None, seen


def _fetched(settings: Settings, address: str, tag: str) -> tuple[bytes | None, str]:
    headers = _authorized(settings) | ({"If-None-Match": tag} if tag else {})
    with (
        session(settings.ca) as opened_,
        opened_.get(address, headers=headers, timeout=_TIMEOUT, stream=True, allow_redirects=False) as answer,
    ):
        if answer.status_code == 304:
            return None, tag
        if answer.status_code != 200:
            raise Unfetched(f"{answer.status_code} {answer.reason} for {address}")
        return content_of(answer, address, _LIMIT, time.monotonic() + _PATIENCE), answer.headers.get("ETag", "")


def _change(
    settings: Settings, offer: Offer, kept: Kept, notes: list[str], log: Callable[[str], None]
) -> tuple[_Outcome, Kept, int]:
    """Apply the offer's lock. If the offer needs a lease and none can be taken, nothing changes."""
    lease = None
    if offer.budget.leases:
        try:
            access = Access(settings.ca, settings.certificate, settings.key, login(settings.login))
        except BadInputError as error:
            return _because("refused", error), kept, 0
        got = take(offer.budget, settings.host, settings.domain, access, offer.lock.digest)
        if isinstance(got, Refused):
            return _Outcome("waiting", "GS-988" if got.away else "", got.text, "the next pull asks again"), kept, 0
        lease = got
    else:
        notes.append("no budget is set, so no lease was taken")
    outcome: _Outcome | None = None
    changed = 0
    try:
        log(f"applying offer {offer.serial} of class {offer.kind}, lock {offer.lock.digest[:12]}")
        write_whole(settings.home / "lock.json", msgspec.json.encode(offer.lock))
        effects = Effects(Config(source="", manifest_sha256="", variables=settings.variables), log)
        with alone_on_machine(WORK):
            words = ("--lock", str(settings.home / "lock.json"), "--verify", "always", "--reboot", "never")
            _save(settings.home, _after(offer, kept, _CUT))  # a lock that ends the machine is not begun at each boot
            done, text = effects.gpusetup("apply", *words)
        outcome, changed = _outcome_of(done.code, text, timed_out=done.timed_out)
    except PreflightError as error:
        return _because("waiting", error), kept, 0
    except GpuSetupError as error:
        outcome = _because("failed", error)
    finally:
        if lease is not None:
            notes += _leave(lease, offer, outcome)
    return outcome, _after(offer, kept, outcome), changed


def _leave(lease: Lease, offer: Offer, outcome: _Outcome | None) -> list[str]:
    """Record success or failure in the store; free the place, or hold it until the reboot."""
    budget, notes = offer.budget, list[str]()
    if budget.failures and outcome is not None:
        failed = outcome.state in ("failed", "verify-failed")
        if not lease.tell(offer.lock.digest, failed=failed) and failed:
            notes.append("the failure did not reach the lease store: the fleet does not count it")
    if budget.reboot_hours and outcome is not None and outcome.state == "pending-reboot":
        if not lease.hold(budget.reboot_hours * 3600):
            notes.append("the place could not be held until the reboot")
    else:
        lease.give_back()
    if lease.lost:
        notes.append(f"the lease was lost before the end of the change, others may have changed too: {lease.lost}")
    return notes


def login(path: Path | None) -> tuple[str, str] | None:
    """Return the lease store's user and password from a file that only its owner may read."""
    if path is None:
        return None
    name, colon, password = _secret(path, "the lease store's login").partition(":")
    if not colon:
        raise BadInputError("GS-968", "the lease store's login is not of the form NAME:PASSWORD", path=str(path))
    return name, password


def _outcome_of(code: int, text: str, *, timed_out: bool) -> tuple[_Outcome, int]:
    host, _ = answer_of(text)
    problem = outcome_of_apply(code, text, timed_out=timed_out).problem
    state: Any = host.state if host.state in _STATES else "failed"
    if problem is None:
        pending = "; ".join((*host.pending, *host.waits))
        return _Outcome("done" if state == "unchanged" else state, "", pending), host.changed
    state = state if state in ("refused", "verify-failed") else "failed"
    return _Outcome(state, problem.reference, problem.message, problem.hint), host.changed


def _after(offer: Offer, kept: Kept, outcome: _Outcome) -> Kept:
    kept = replace(kept, state=outcome.state, message=outcome.message, reference=outcome.reference, boot=boot_id())
    if outcome.state in ("done", "nothing-to-do", "pending-reboot"):
        words = _stack(offer)
        return replace(kept, applied=offer.lock.digest, stack=words, tried="", failures=0, again="")
    failures = kept.failures + 1 if kept.tried == offer.lock.digest else 1
    pause = min(_RETRY * 2 ** min(failures - 1, 10), _LONGEST)
    again = stamp(datetime.now(timezone.utc) + pause)
    return replace(kept, tried=offer.lock.digest, failures=failures, again=again)


def _stack(offer: Offer) -> str:
    parts: dict[str, Any] = msgspec.to_builtins(offer.lock.stack)
    return ", ".join(
        f"{name} {part['version']}" for name, part in parts.items() if isinstance(part, dict) and part.get("version")
    )


def _queue(home: Path, report: PullReport) -> None:
    """Keep the report until the collector takes it; it replaces the last waiting one if both say the same."""
    folder = home / "queue"
    folder.mkdir(mode=0o700, exist_ok=True)
    waiting = sorted(folder.glob("*.json"))
    write_whole(folder / f"{report.number:020}.json", msgspec.json.encode(report), 0o600)
    with suppress(IndexError, OSError, *UNDECODED):
        last = msgspec.json.decode(waiting[-1].read_bytes(), type=PullReport)
        if all(getattr(last, name) == getattr(report, name) for name in ("state", "wanted", "lock", "message")):
            waiting[-1].unlink()


def _deliver(settings: Settings, log: Callable[[str], None]) -> bool:
    """Send the waiting reports, oldest first; set aside what the collector rejects, so that it blocks no other."""
    home = settings.home
    try:
        for path in sorted((home / "queue").glob("*.json")):
            with session(settings.ca) as opened_:
                answer = opened_.post(
                    f"{settings.url}/v1/reports", data=path.read_bytes(), timeout=_TIMEOUT, allow_redirects=False,
                    headers=_authorized(settings) | {"Content-Type": "application/json"}, stream=True,
                )  # fmt: skip
            code = answer.status_code
            if code in (200, 409):
                path.unlink()
            elif code in (400, 413):
                log(f"the collector does not take a report ({code}): it is kept as {home / 'refused' / path.name}")
                (home / "refused").mkdir(mode=0o700, exist_ok=True)
                path.rename(home / "refused" / path.name)
            else:
                why = "it asks for patience" if passes(code) else "check the token and the host's name"
                log(f"the report waits: the collector answers {code} {answer.reason}; {why}")
                return False
    except Unfetched as error:
        log(f"the report waits for the collector: {error}")
        return False
    return True


def _authorized(settings: Settings) -> dict[str, str | bytes]:
    token = _secret(settings.token, "this host's token")
    return {"Authorization": f"Bearer {token}".encode()}


_WRITE = "on the collector: gpusetup fleet token DIR HOST --out FILE; copy FILE there, mode 0600"


def _secret(path: Path, what: str) -> str:
    try:
        if path.stat().st_mode & 0o077:
            raise BadInputError("GS-968", f"others may read {what}", path=str(path), hint=f"chmod 600 {path}")
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(
            "GS-968", f"{what} cannot be read: {getattr(error, 'strerror', error)}", path=str(path), hint=_WRITE
        ) from error
    if not text.isprintable():
        raise BadInputError("GS-968", f"{what} is not one line", path=str(path), hint="write it again")
    return text


def _load(home: Path) -> Kept:
    return kept_in(home / "kept.json", Kept) or Kept()


def _save(home: Path, kept: Kept) -> None:
    write_whole(home / "kept.json", msgspec.json.encode(kept), 0o600)
