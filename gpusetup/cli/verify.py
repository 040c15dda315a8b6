"""Prove on the GPU that the stack works. Each check shows what it measured, expected and allows.

Levels: quick (seconds, no CUDA context), smoke (seconds, on every GPU), full (bandwidths, NCCL, matrix rates; about
half a minute), stress (--minutes). gpusetup changes nothing and stops no process. Without INVENTORY: this machine. Exit
code 8 when a check failed.

examples:
  gpusetup verify inventory.ini --observations run.json --sign ~/.ssh/id_ed25519       keeps signed evidence
  gpusetup verify --evidence run.json --signers allowed_signers                         judges it anywhere
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from gpusetup.cli import options, output
from gpusetup.errors import BadInputError, Exit, GpuSetupError, VerifyFailedError, gravest, reason

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from gpusetup.model.applied import Applied
    from gpusetup.report.model import HostReport, Report
    from gpusetup.verify.machine import Wanted
    from gpusetup.verify.probe import Ask, Observed

ANSWER = "gpusetup/stack/1"
_WRITE = "write one with: gpusetup lock --out gpu.lock.json; a host keeps its own in /var/lib/gpusetup/lock.json"
EVIDENCE = "gpusetup-evidence"
"""The namespace of the signatures."""
LEVELS = ("quick", "smoke", "full", "stress")
FORMATS = ("text", "json", "junit", "html", "prometheus")
ONCE = {
    "source": None, "observations": None, "explain": None, "only": None, "update_baseline": False,
    "sign": None, "evidence": None, "signers": None,
}  # fmt: skip
"""Defaults for `fleet health` of the options that only `verify` has."""


class Service(NamedTuple):
    """How `fleet health` takes hosts out of service and back."""

    longest: float
    """Seconds that a look at this machine may take; 0 means any time."""
    forgotten: Callable[[str], float]
    """Returns the time up to which a host's kernel errors do not count."""
    act: Callable[[Report], None]


def add_checks(parser: argparse.ArgumentParser, *, level: str) -> argparse._ArgumentGroup:
    """Add the options of a verification; return their group."""
    group = parser.add_argument_group("checks")
    group.add_argument("--level", choices=LEVELS, default=level, help="how thorough; default: %(default)s")
    group.add_argument("--gpus", type=int, metavar="N", help="how many GPUs each host should have")
    group.add_argument(
        "--minutes",
        type=float,
        default=5.0,
        metavar="N",
        help="with --level stress: its duration; default: %(default)g",
    )
    group.add_argument("--lock", metavar="FILE", help="expected stack; default: the hosts' records")
    group.add_argument(
        "--strict", action="store_true", help="figures below the floors of Azure's node check for the same GPU fail"
    )
    group.add_argument("--baseline", metavar="FILE", help="compare with each host's own last good run, kept in FILE")
    group.add_argument("--python", metavar="FILE", help="the Python with CuPy; default: the one that apply made")
    group.add_argument("--cuda-home", metavar="DIR", help="the CUDA toolkit; default: /usr/local/cuda")
    group.add_argument(
        "--when-idle",
        action="store_true",
        help="keep other runs off the host; while a GPU is in use only run level quick; a timer always does so",
    )
    group.add_argument(
        "--budget",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="after SECONDS stop measuring and judge level quick",
    )
    group.add_argument(
        "--textfile", metavar="DIR",
        help="also write gpusetup-verify.prom there, for node_exporter; a timer detects DIR",
    )  # fmt: skip
    return group


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_inventory(parser)
    group = add_checks(parser, level="smoke")
    group.add_argument("--only", metavar="N[,N…]", help="run on these GPUs only, by nvidia-smi's index")
    group.add_argument("--update-baseline", action="store_true", help="with --baseline: keep this run there, if good")
    group = parser.add_argument_group("observations")
    group.add_argument("--observations", metavar="FILE", help="also write the observations, for a bug report")
    group.add_argument("--from", dest="source", metavar="FILE", help="judge saved observations")
    group.add_argument("--sign", metavar="KEY", help="with --observations: sign them with this SSH key, as evidence")
    group.add_argument("--evidence", metavar="FILE", help="with --signers: judge what one of them signed")
    group.add_argument(
        "--signers", metavar="FILE", help="with --evidence: trusted signers, as in ssh-keygen's ALLOWED SIGNERS"
    )
    group.add_argument(
        "--explain",
        metavar="CHECK",
        help="explain a check (or a level, `expectations`, `xid`): what it measures, how it is judged and what to do",
    )
    options.add_output(parser, formats=FORMATS)


def run(arguments: argparse.Namespace) -> Exit:
    """Observe, judge, print."""
    if arguments.explain is not None:
        from gpusetup.cli.output import explain
        from gpusetup.verify.pages import explained

        return explain(arguments, explained(), "check", "GS-511")
    written, key = (Path(name.removesuffix(".pub")) for name in (arguments.observations or "", arguments.sign or ""))
    if arguments.sign and os.path.realpath(written) == os.path.realpath(key):
        raise options.not_together("--observations", "--sign", "the observations would replace the key")
    if arguments.source and arguments.evidence:
        raise options.not_together("--from", "--evidence", "each names the observations to judge")
    arguments.source = arguments.source or arguments.evidence
    return verified(arguments)


def verified(arguments: argparse.Namespace, service: Service | None = None) -> Exit:
    """Observe, judge, act if there is a service, print."""
    check(arguments)
    from gpusetup.report.formats import render
    from gpusetup.report.model import counted
    from gpusetup.verify import baseline as kept

    before = kept.load(Path(arguments.baseline)) if arguments.baseline else None
    report, away = judged(arguments, before, service)
    if service is not None:
        service.act(report)
    if arguments.out is not None:
        for host in report.hosts:  # on standard error: the answer goes into the file
            output.say(f"{host.name}: {host.verdict} ({counted(host) if host.results else host.problem})")
    output.write_answer(
        render(report, arguments.format, watched=arguments.out is None and output.coloured(sys.stdout)), arguments.out
    )
    if arguments.textfile:
        write_textfile(Path(arguments.textfile), report, arguments.inventory)
    if arguments.baseline and before is not None:
        _keep(arguments, before, report)
    return gravest([away.get(host.name) or _exit_of(host) for host in report.hosts])


def _exit_of(host: HostReport) -> Exit:
    if host.own_fault:
        return Exit.BUG
    if host.verdict == "fail":
        return Exit.VERIFY_FAILED
    return Exit.BUG if any(result.blame == "gpusetup" for result in host.results) else Exit.DONE


def judged(
    arguments: argparse.Namespace, before: Any = None, service: Service | None = None
) -> tuple[Report, dict[str, Exit]]:
    """Observe and judge; return the report, and the exit codes of unreachable and postponed hosts."""
    from gpusetup.report.verification import verification_report

    lock = _lock(arguments.lock)  # a wrong one is an error before minutes of measuring
    started, clock = datetime.now(timezone.utc), time.monotonic()
    level, documents, problems, away = _observe(arguments, service)
    if arguments.observations:
        kept = {"schema": "gpusetup/observations-of-hosts/1", "hosts": documents}
        output.write_answer(json.dumps(kept, indent=1), str(Path(arguments.observations)))
        if arguments.sign:
            from gpusetup.drive import signatures

            signed = signatures.sign(Path(arguments.observations), Path(arguments.sign), EVIDENCE)
            output.say(f"the signature is {signed}")
    seconds = time.monotonic() - clock
    if arguments.source:
        started, seconds = _observed_then(documents, started)
    if service is not None:
        from gpusetup.recovery.table import newer_than

        documents = {name: newer_than(document, service.forgotten(name)) for name, document in documents.items()}
    wanted = {name: _wanted(arguments, lock, before and before.hosts.get(name), len(documents)) for name in documents}
    report = verification_report(
        documents,
        level=cast("Any", level),
        started=started,
        seconds=seconds,
        wanted=wanted,
        problems=problems,
        baseline=before,
        is_strict=arguments.strict,
        postponed=[name for name, code in away.items() if code is Exit.PENDING],
    )
    if not arguments.source:
        drawn = arguments.format == "html"
        report = _with_histories(report, documents, here=arguments.inventory is None, pictures=drawn)
    return report, away


def _with_histories(report: Report, documents: Mapping[str, dict[str, Any]], *, here: bool, pictures: bool) -> Report:
    """Add the report to the hosts' histories; return it with pictures if wanted.

    A history that cannot be written is only a warning.
    """
    import sqlite3

    import msgspec

    from gpusetup.report import history

    hosts = []
    for host in report.hosts:
        figures: tuple[history.Series, ...] = ()
        if host.name in documents and not host.simulated:
            path = history.file_of(host.name, os.environ, here=here)
            try:
                if said := history.append(path, host, report, _boards(documents[host.name])):
                    output.warn(said)
                figures = history.series(path) if pictures else ()
            except (OSError, sqlite3.Error, BadInputError) as error:
                output.warn(f"this verification is not in the history: {path}: {reason(error)}")
        hosts.append(msgspec.structs.replace(host, trends=history.pictures(figures)))
    return msgspec.structs.replace(report, hosts=tuple(hosts))


def _boards(document: dict[str, Any]) -> str:
    """Return a digest of the GPUs' UUIDs: figures start over after an exchange of a board."""
    from hashlib import sha256

    names = sorted(str(gpu.get("uuid")) for gpu in document.get("gpus") or () if gpu.get("uuid"))
    return sha256("\n".join(names).encode()).hexdigest()[:16] if names else ""


def _observed_then(documents: dict[str, dict[str, Any]], now: datetime) -> tuple[datetime, float]:
    """Return when saved observations were made, and how long they took."""
    begun, took = (
        [float(item[name]) for item in documents.values() if isinstance(item.get(name), int | float)]
        for name in ("started", "seconds")
    )
    seconds = max((number for number in took if math.isfinite(number)), default=0.0)
    try:
        return datetime.fromtimestamp(min(begun, default=now.timestamp()), timezone.utc), seconds
    except (OverflowError, ValueError, OSError):
        return now, seconds


def _ask(arguments: argparse.Namespace, service: Service | None) -> Ask:
    from gpusetup.verify.probe import Ask

    only = None
    if arguments.only is not None:
        parts = arguments.only.split(",")
        if not all(part.strip().isdecimal() for part in parts):
            raise BadInputError("GS-506", f"--only takes indexes such as 0,1, not {arguments.only!r}", path="--only")
        only = tuple(int(part) for part in parts)
    if arguments.python is not None and not Path(arguments.python).is_absolute():
        raise BadInputError("GS-507", f"--python takes an absolute path, not {arguments.python!r}", path="--python")
    return Ask(
        level=arguments.level,
        python=arguments.python,
        cuda_home=arguments.cuda_home,
        gpus=only,
        minutes=arguments.minutes,
        when_idle=arguments.when_idle or service is not None,
        budget=arguments.budget,
        longest=service.longest if service is not None else 0.0,
    )


def check(arguments: argparse.Namespace) -> None:
    """Refuse numbers that cannot be meant, and missing folders, before measuring."""
    options.check_numbers(arguments, "gpus", least=1)
    if not 0 <= arguments.budget < math.inf:
        raise BadInputError("GS-508", f"--budget must be seconds, not {arguments.budget:g}", path="--budget")
    if not 0 < arguments.minutes < math.inf:
        raise BadInputError("GS-508", f"--minutes must be more than 0, not {arguments.minutes:g}", path="--minutes")
    baseline = Path(arguments.baseline).parent if arguments.baseline else None
    for option, reference, folder in (("--textfile", "GS-513", arguments.textfile), ("--baseline", "GS-505", baseline)):
        if folder and not Path(folder).is_dir():
            raise BadInputError(reference, f"there is no folder {folder}", path=option)


def _observe(
    arguments: argparse.Namespace, service: Service | None
) -> tuple[str, dict[str, dict[str, Any]], dict[str, str], dict[str, Exit]]:
    """Return the level, documents and problems by host, and the exit codes of unreachable and postponed hosts."""
    if arguments.source:
        documents = _read_observations(Path(arguments.source), arguments.signers)
        levels = [str(document.get("level", "")) for document in documents.values()]
        return (
            max((level for level in levels if level in LEVELS), key=LEVELS.index, default="quick"),
            documents,
            {},
            {},
        )
    ask = _ask(arguments, service)
    if arguments.inventory is None:
        from gpusetup.model.facts import LOCAL_NAME
        from gpusetup.verify.environments import look_into
        from gpusetup.verify.probe import observe_in_turn

        if output.aside().isatty():
            output.say(f"checking this machine, level {ask.level} …")
        try:
            here = observe_in_turn(ask, os.environ)
        except VerifyFailedError as error:
            if service is None:
                raise
            return ask.level, {}, {LOCAL_NAME: str(error)}, {}  # a driver that hangs every program is bad, too
        if here.document is None:
            return ask.level, {}, {LOCAL_NAME: here.problem}, {LOCAL_NAME: Exit.PENDING}
        look_into(ask, here.document, _into)
        return ask.level, {LOCAL_NAME: here.document}, {}, {}
    from gpusetup.cli.session import open_session
    from gpusetup.drive.progress import watch
    from gpusetup.verify.fleet import observe_fleet

    session = open_session(arguments)
    with watch(output.aside(), phase="verify") as observer:
        observed = observe_fleet(session, ask, observer)
    documents = {name: host.document for name, host in observed.items() if host.document is not None}
    problems = {name: host.problem for name, host in observed.items() if host.document is None}
    away = {name: Exit.UNREACHABLE for name, host in observed.items() if host.unreachable}
    return ask.level, documents, problems, away | {n: Exit.PENDING for n, host in observed.items() if host.postponed}


def _into(ask: Ask) -> Observed:
    """Observe one environment of this machine; no answer is a finding about it."""
    from gpusetup.verify.probe import Observed, observe_in_turn

    try:
        return observe_in_turn(ask, os.environ)
    except GpuSetupError as error:
        return Observed(None, str(error), own_fault=not isinstance(error, VerifyFailedError))


def _read_observations(path: Path, signers: str | None) -> dict[str, dict[str, Any]]:
    """Return saved observations; with `signers`, require a signature by one of them."""
    from gpusetup.drive import signatures
    from gpusetup.drive.runner import parsed
    from gpusetup.model import Reading

    with Reading(path, ("GS-509", f"{path} is not valid JSON"), ("GS-509", f"cannot read {path}")):
        raw = path.read_bytes()
        if signers is not None:
            who = signatures.check(raw, path.with_name(path.name + ".sig"), Path(signers), str(path), EVIDENCE)
            output.say(f"{path} is signed by {who}")
        found = parsed(raw)
    if isinstance(found, dict) and "schema" in found and "hosts" not in found:
        from gpusetup.model.facts import LOCAL_NAME

        return {LOCAL_NAME: found}
    hosts = found.get("hosts") if isinstance(found, dict) else None
    if not isinstance(hosts, dict) or not hosts or not all(isinstance(document, dict) for document in hosts.values()):
        raise BadInputError("GS-509", f"{path} contains no observations", path=str(path))
    return hosts


def _lock(path: str | None) -> Applied:
    """Read the expected stack: a lock, an answer of resolve, or the lock that a host keeps."""
    import msgspec

    from gpusetup.components.record import read_applied
    from gpusetup.model import Reading
    from gpusetup.model.applied import NO_LOCK, SCHEMA, Applied
    from gpusetup.model.lock import SCHEMA as LOCK
    from gpusetup.model.stack import Stack
    from gpusetup.plan.lock import read_lock

    if path is None:
        return NO_LOCK
    unread = ("GS-510", f"cannot read the lock {path}")
    with Reading(path, ("GS-510", f"the lock {path} is not valid JSON"), unread, hint=_WRITE):
        raw = Path(path).read_bytes()
        found = msgspec.json.decode(raw)
    schema = found.get("schema") if isinstance(found, dict) else None
    with Reading(path, ("GS-510", f"the lock {path} cannot be used"), hint=_WRITE):
        if schema == LOCK:
            return Applied(stack=read_lock(raw, path).stack)
        if schema == ANSWER and "stack" in found:
            return Applied(stack=msgspec.convert(found["stack"], Stack))
    lock = read_applied(found) if schema == SCHEMA else NO_LOCK
    if lock.unread or lock.stack is None:
        why = (
            lock.unread or f"its schema is {schema!r}"
            if isinstance(found, dict)
            else "it is JSON with an unexpected structure"
        )
        raise BadInputError(
            "GS-510", f"{path} is not a lock that says what hosts should have: {why}", path=path, hint=_WRITE
        )
    return lock


def _wanted(arguments: argparse.Namespace, lock: Applied, own: Any, hosts: int) -> Wanted:
    from gpusetup.verify.machine import Wanted

    return Wanted(lock, gpus=arguments.gpus or (own.gpus if own else None), hosts=hosts)


def _keep(arguments: argparse.Namespace, before: Any, report: Report) -> None:
    """Keep figures of good runs that the baseline lacks, or all with `--update-baseline`."""
    from gpusetup.verify.baseline import completed, record, save

    kept = dict(before.hosts)
    for host in report.hosts:
        if host.verdict in ("pass", "warn"):
            gpus = next(
                (
                    int(result.measured)
                    for result in host.results
                    if result.id == "gpu.count" and isinstance(result.measured, int)
                ),
                0,
            )
            run = record(host.results, gpus, report.started[:10])
            kept[host.name] = completed(kept.get(host.name), run, renews=arguments.update_baseline)
    if kept != before.hosts:
        before.hosts.update(kept)
        save(Path(arguments.baseline), before)


def write_textfile(folder: Path, report: Report, inventory: str | None) -> None:
    """Replace the report for node_exporter atomically."""
    from gpusetup.drive.rundir import write_whole
    from gpusetup.report.formats import to_prometheus
    from gpusetup.report.model import POSTPONED

    if all(host.state == POSTPONED for host in report.hosts):
        return  # keep the last report, whose timestamp ages
    name = "gpusetup-verify" + (f"-{Path(inventory).name}" if inventory is not None else "")
    target = folder / f"{name}.prom"
    try:
        write_whole(target, to_prometheus(report).encode())  # by way of a file whose name does not end in .prom
    except OSError as error:
        raise BadInputError("GS-513", f"cannot write {target}: {error.strerror}", path="--textfile") from error
