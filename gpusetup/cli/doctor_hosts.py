"""Diagnose machines (this one, a captured one, all hosts of an inventory), recover with `--apply`.

A recovery shows the resets and reboots that stop no program, and does them after a confirmation.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import msgspec

from gpusetup.cli import options, output, streams
from gpusetup.content import host_code
from gpusetup.doctor.text import diagnoses, recoveries
from gpusetup.errors import BadInputError, Exit, gravest
from gpusetup.matrix.systems import is_jetson
from gpusetup.model.diagnosis import Symptoms

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from gpusetup.doctor.look import Look
    from gpusetup.drive.events import Track
    from gpusetup.drive.playbook import Session
    from gpusetup.facts.collect import Lookup
    from gpusetup.model.diagnosis import Diagnosis, Recovered
    from gpusetup.model.facts import Failure
    from gpusetup.plan.preflight import Guest
    from gpusetup.rollout.recovery import Hosts


def _look(host: Any, lookup: Lookup, environment: dict[str, str]) -> Look:
    from gpusetup.model.facts import LOCAL_NAME

    told = host_code("gpu_probe.facts").collect(host, None, False)
    symptoms = host_code("gpu_probe.symptoms").collect(host, told, environment)
    return _opened(told, symptoms, LOCAL_NAME, lookup)


def _opened(facts: object, symptoms: object, name: str, lookup: Lookup) -> Look:
    from gpusetup.doctor.look import Look
    from gpusetup.facts.collect import from_probe

    try:
        return Look(from_probe(facts, name, lookup), msgspec.convert(symptoms, Symptoms))
    except msgspec.ValidationError as error:
        raise BadInputError("GS-304", f"the symptoms of {name} cannot be used: {error}") from error


def guest_here() -> Guest | None:
    """Return `wsl` or `jetson` if the driver comes from Windows or Jetson Linux, else None; examine nothing else."""
    if is_jetson(platform.release()):
        return "jetson"
    return "wsl" if host_code("gpu_probe.virtualisation").is_wsl(host_code("gpu_probe.host").open_host("/")) else None


def captured(root: Path, lookup: Lookup) -> Look:
    """Examine a captured machine."""
    from gpusetup.facts.collect import open_captured

    host = open_captured(root)
    return _look(host, lookup, host_code("gpu_probe.symptoms").surroundings(host))


def machine(root: str | None = None) -> Look:
    """Examine this machine with its user's environment, or a captured one."""
    from gpusetup.cli.session import names_of_gpus

    if root is not None:
        return captured(Path(root), names_of_gpus())
    return _look(host_code("gpu_probe.host").open_host("/"), names_of_gpus(), dict(os.environ))


def hosts(
    session: Session, lookup: Lookup, *, overlay: Path | None = None
) -> tuple[dict[str, Look], dict[str, Failure], Track]:
    """Examine every host of an inventory; return the looks, the failures and the playbook's track."""
    from gpusetup.facts import fleet

    looked = fleet.look(session, lookup, candidates=False, symptoms=True, overlay=overlay)
    opened = {
        name: _opened(told["facts"], told.get("symptoms"), name, lookup)
        for name in looked.facts.hosts
        if (told := looked.run.data(name, fleet.ACTION)) is not None
    }
    return opened, dict(looked.facts.failures), looked.run.track


def diagnosed(arguments: argparse.Namespace, inventory: str | None) -> Exit:
    """Diagnose the hosts of an inventory, or one machine."""
    from gpusetup.doctor.diagnose import diagnose
    from gpusetup.model.examined import DoctorHosts
    from gpusetup.model.facts import LOCAL_NAME

    failures = {}
    exits = []
    if inventory is not None:
        from gpusetup.cli.session import names_of_gpus, open_session

        try:
            looks, told, _track = hosts(open_session(arguments), names_of_gpus())
        except BadInputError as error:
            if os.path.isfile(inventory):  # noqa: PTH113 - takes names of any length
                error.hint = f"if it is a log: gpusetup doctor --text {quote(inventory)}; {error.hint}"
            raise
        failures = {name: str(failure) for name, failure in told.items()}
        exits = [Exit(failure.exit) for failure in told.values()]
    else:
        looks = {LOCAL_NAME: machine(arguments.root)}
    found = {name: diagnose(look) for name, look in looks.items()}
    healthy = not failures and all(entry.healthy for entry in found.values())
    document = DoctorHosts(ok=healthy, healthy=healthy, hosts=found, failures=failures)
    output.answer(arguments.format, document, lambda: output.painted(diagnoses(found, failures)), arguments.out)
    if arguments.bundle:
        _bundle(Path(arguments.bundle), arguments.root, looks[LOCAL_NAME], found[LOCAL_NAME])
    return gravest([*exits, *(Exit.DONE if entry.healthy else Exit.VERIFY_FAILED for entry in found.values())])


def _bundle(path: Path, root: str | None, look: Look, diagnosis: Diagnosis) -> None:
    from gpusetup.doctor import bundle

    files = host_code("gpu_probe.host").open_host(root or "/")
    capture, commands = host_code("gpu_probe.capture"), host_code("gpu_probe.commands")
    names = [platform.node()] if root is None else []

    def redact(text: str) -> str:
        return str(capture.redact(commands.mask(text), names))

    documents = {
        "diagnosis.txt": diagnoses({"localhost": diagnosis}, {}),
        "diagnosis.json": output.json_text(diagnosis),
        "facts.json": output.json_text(look.facts),
        "kernel.log": look.symptoms.kernel_log or "",
    }
    environment = dict(os.environ) if root is None else look.symptoms.environment
    taken = bundle.collect(files, documents, environment, redact)
    if root is None:
        taken.update(bundle.bug_report(Path.cwd(), redact))
    for line in ["", f"written to {path}, without passwords, tokens, addresses and names:", *bundle.write(path, taken)]:
        print(line, file=sys.stderr)
    if root is None and "nvidia-bug-report.log" not in taken and Path("/usr/bin/nvidia-bug-report.sh").exists():
        print("NVIDIA's own report is not included: run `sudo nvidia-bug-report.sh` and bundle again", file=sys.stderr)


def add_apply(parser: argparse.ArgumentParser) -> None:
    """Add the options of --apply."""
    group = parser.add_argument_group("recovery (--apply)")
    group.add_argument(
        "--apply", action="store_true",
        help="after asking, reset GPUs that no program uses, or reboot",
    )  # fmt: skip
    group.add_argument("--dry-run", action="store_true", help="with --apply: only show what would be done")
    group.add_argument("--yes", "-y", action="store_true", help="with --apply: do not ask; needed without a terminal")
    group.add_argument(
        "--reboot", choices=("never", "when-needed", "schedule"), help="with --apply: whether hosts may reboot"
    )
    options.add_draining(parser, "with --apply: ")


def refuse_conflicts(arguments: argparse.Namespace, chosen: list[str]) -> None:
    """Refuse what cannot be used with --apply."""
    beside = [*chosen, *(["--bundle"] if arguments.bundle else [])]
    if beside:
        raise BadInputError(
            "GS-604", f"--apply and {' and '.join(beside)} cannot be used together", path="--apply",
            hint="give an inventory, or nothing for this machine: gpusetup doctor --apply",
        )  # fmt: skip


def apply(arguments: argparse.Namespace, lookup: Lookup) -> Exit:
    """Diagnose, ask, recover, diagnose again, report."""
    from gpusetup.cli.session import agreed, open_session
    from gpusetup.rollout.recovery import EXITS, prepare, recover

    if arguments.dry_run and arguments.yes:
        raise BadInputError("GS-604", "--dry-run and --yes cannot be used together")
    session = open_session(arguments)
    with streams.terminated_is_interrupted():
        hosts, failures, exits = _hosts(arguments, session, lookup)
        found = prepare(hosts)
        wanted = [name for name, told in found.items() if told.state == "planned"]
        shown = recoveries(hosts.diagnoses, found)
        asks = bool(wanted) and not arguments.dry_run
        done = asks and (arguments.yes or agreed(arguments, shown, "do all of this?"))
        if done:
            found = recover(hosts, found)
    _report(arguments, hosts, found, failures)
    if wanted and not done:
        print("nothing was changed; run it with --yes to do it", file=sys.stderr)
    ailing = [
        Exit.VERIFY_FAILED
        for name, diagnosis in (hosts.diagnoses | hosts.after).items()
        if not diagnosis.healthy and found[name].state in ("nothing-to-do", "done")
    ]
    return gravest([*exits, *ailing, *(EXITS[told.state] for told in found.values())])


def _hosts(arguments: argparse.Namespace, session: Session, lookup: Lookup) -> tuple[Hosts, dict[str, str], list[Exit]]:
    from gpusetup.cli.plan import Progress
    from gpusetup.doctor.diagnose import diagnose
    from gpusetup.drive.inventory import write_overlay
    from gpusetup.matrix.load import matrix
    from gpusetup.model.variables import NOTHING
    from gpusetup.rollout.draining import draining
    from gpusetup.rollout.looks import Rollout
    from gpusetup.rollout.options import Wishes, settings_of_hosts
    from gpusetup.rollout.recovery import Hosts

    rollout = Rollout(session, matrix(), Progress())
    work = draining(options.freeing(arguments), rollout)  # reject a wrong command before contacting hosts
    looks, failed, track = hosts(session, lookup)
    rollout.facts = {name: look.facts for name, look in looks.items()}
    rollout.settings, _lost = settings_of_hosts(Wishes(reboot=arguments.reboot), arguments.inventory, track)
    rollout.reach(track)

    def again(names: Iterable[str]) -> dict[str, Look]:
        only = write_overlay(session.run.path / "overlay-again", dict.fromkeys(names, NOTHING))
        return hosts(session, lookup, overlay=only)[0]

    diagnoses = {name: diagnose(look) for name, look in looks.items()}
    told = {name: f"{failure.message} [{failure.reference}]" for name, failure in failed.items()}
    return Hosts(rollout, looks, diagnoses, work, again), told, [Exit(failure.exit) for failure in failed.values()]


def _report(arguments: argparse.Namespace, hosts: Hosts, found: dict[str, Recovered], failures: dict[str, str]) -> None:
    from gpusetup.model.examined import DoctorHosts

    seen = hosts.diagnoses | hosts.after
    healthy = not failures and all(entry.healthy for entry in seen.values())
    document = DoctorHosts(ok=healthy, healthy=healthy, hosts=seen, failures=failures, recovered=found)
    text = output.painted(f"{diagnoses(seen, failures)}\n{recoveries(seen, found)}")
    output.answer(arguments.format, document, text, arguments.out)
