"""The driver brought to equal lab hosts by gpusetup, by NVIDIA's role and by DeepOps: time, operations, lost reboots.

Others' work is fetched by whoever runs this; nothing of it is shipped. Say where it is in GPUSETUP_PEERS, a folder with
  nvidia.nvidia_driver/   NVIDIA's role
  deepops/                DeepOps, with that role in roles/galaxy
  venv/                   the Ansible that DeepOps asks for, which has the community.general that the role asks for
gpusetup and the role run on the same Ansible, DeepOps on its own: on a newer one its playbook fails.
A part that is not there is left out, and the table says so. VERSION in a part says which one it is where git does not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import yaml

from bench.apply_second_run import events_of, inventory
from bench.peers_steps import steps
from bench.peers_steps import table as steps_table
from bench.peers_told import RUNS, Contender, Record, Run, picture, table
from bench.processor import Meter
from gpusetup import __version__
from tests.lab import fleet, machine
from tests.lab.applying import apply
from tests.lab.places import SSH_KEY
from tests.lab.repository import build
from tests.lab.spec import HostSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.lab.host import Host
    from tests.lab.repository.build import Repositories

ROOT = Path(__file__).resolve().parents[1]
FETCH = """  ansible-galaxy role install -p PEERS nvidia.nvidia_driver,v2.3.1
  git clone https://github.com/NVIDIA/deepops PEERS/deepops && git -C PEERS/deepops checkout 3957a42f
  mkdir -p PEERS/deepops/roles/galaxy && ln -s ../../../nvidia.nvidia_driver PEERS/deepops/roles/galaxy/
  python3 -m venv PEERS/venv && PEERS/venv/bin/pip install ansible==10.7.0
then: GPUSETUP_PEERS=PEERS ./dev bench peers"""
BRANCH = "580"
_METER = Meter()


class _Done(NamedTuple):
    """The result of one run."""

    code: int
    calls: list[float]
    """Start time of each operation."""
    events: list[dict[str, Any]]
    said: str


def _watched(host: Host, work: Callable[[], _Done]) -> Run:
    before, started = host.boot_id(), time.time()
    with _METER.command():
        done = work()
    ended = time.time()
    used = _METER.at(ended) - _METER.at(started)
    run = Run(
        seconds=round(ended - started, 1),
        operations=len(done.calls),
        processor=round(sum(used), 1),
        code=done.code,
        rebooted=host.boot_id() != before,
        last=done.said if done.code else "",
        steps=steps(done.events, done.calls, started, ended, _METER.at),
    )
    print(f"{host.name}: {run.told()}", flush=True)
    return run


def ours(folder: Path, host: Host, repositories: Repositories, reboots: Sequence[bool]) -> list[Run]:
    """Bring the driver with gpusetup, once for each of these."""
    path = inventory(folder, [host], repositories)
    path.write_text(f"{path.read_text()}gpusetup_driver='=={BRANCH}.*'\n")

    def once(*, reboot: bool) -> _Done:
        answer = apply(folder, path, "--verify", "never", "--reboot", "when-needed" if reboot else "never")
        pending = answer.code == 9 and not reboot
        calls = [call.time for call in answer.calls]
        return _Done(0 if pending else answer.code, calls, events_of(folder), answer.err[-400:])

    return [_watched(host, partial(once, reboot=reboot)) for reboot in reboots]


def theirs(  # noqa: PLR0917 - one call, and the line says who is who
    folder: Path, host: Host, repositories: Repositories, peers: Path, python: str, play: Path, reboots: Sequence[bool]
) -> list[Run]:
    """Install it with another project's playbook, after setting up the package source, as gpusetup does itself."""
    _source(host, repositories)
    counted = {}
    for program in ("ssh", "sftp", "scp"):
        script = folder / f"counted-{program}"
        script.write_text(f'#!/bin/bash\necho "$EPOCHREALTIME" >>"{folder}/operations"\nexec {program} "$@"\n')
        script.chmod(0o755)
        counted[f"ANSIBLE_{program.upper()}_EXECUTABLE"] = str(script)
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8",
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "ANSIBLE_PIPELINING": "1", "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_ROLES_PATH": f"{peers}/deepops/roles:{peers}/deepops/roles/galaxy:{peers}",
        "ANSIBLE_COLLECTIONS_PATH": ":".join(map(str, peers.glob("venv/lib/*/site-packages"))),
        "ANSIBLE_HOST_KEY_CHECKING": "0", **counted,
        "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "bench/ansible_callbacks"), "ANSIBLE_CALLBACKS_ENABLED": "bench_steps",
        "BENCH_STEPS": str(folder / "steps"),
    }  # fmt: skip
    (folder / "ansible.cfg").write_text("")  # not the one of this checkout
    connection = f"ansible_user=root ansible_python_interpreter=/usr/bin/python3 ansible_ssh_private_key_file={SSH_KEY}"
    (folder / "hosts").write_text(f"peer ansible_host={host.address} {connection}\n")

    def once(*, reboot: bool) -> _Done:
        for name in ("operations", "steps"):
            (folder / name).write_text("")
        variables = {
            "nvidia_driver_branch": BRANCH, "nvidia_driver_add_repos": False, "nvidia_driver_force_install": True,
            "nvidia_driver_ubuntu_install_from_cuda_repo": True, "nvidia_driver_skip_reboot": not reboot,
        }  # fmt: skip
        (folder / "vars.yml").write_text(yaml.safe_dump(variables))
        words = [python, "-m", "ansible", "playbook", "-i", f"{folder}/hosts", "-e", f"@{folder}/vars.yml", str(play)]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=900, check=False)
        calls = [float(line) for line in (folder / "operations").read_text().split()]
        events = [json.loads(line) for line in (folder / "steps").read_text().splitlines()]
        return _Done(done.returncode, calls, events, (done.stdout + done.stderr)[-1200:])

    return [_watched(host, partial(once, reboot=reboot)) for reboot in reboots]


def _python(peers: Path) -> str:
    """Return the Python with the Ansible that DeepOps needs, else that of this checkout."""
    told = peers / "venv/bin/python"
    return str(told) if told.exists() else sys.executable


def _ansible(python: str) -> str:
    script = "from importlib.metadata import version; print('ansible-core', version('ansible-core'))"
    return subprocess.run([python, "-c", script], check=True, capture_output=True, text=True).stdout.strip()


def _version(part: Path) -> str:
    """Return the version: from ansible-galaxy, from git, or from the file VERSION."""
    if (part / "VERSION").exists():
        return (part / "VERSION").read_text().strip()
    if (installed := part / "meta/.galaxy_install_info").exists():
        return str(yaml.safe_load(installed.read_text()).get("version", "unknown"))
    argv = ["git", "-C", str(part), "describe", "--always", "--tags"]
    told = subprocess.run(argv, check=False, capture_output=True, text=True).stdout.strip()
    return told if (part / ".git").exists() and told else "unknown"


def _source(host: Host, repositories: Repositories) -> None:
    keys = host.path("/etc/apt/keyrings")
    keys.mkdir(parents=True, exist_ok=True)
    (keys / "bench.asc").write_text(repositories.armored)
    line = f"deb [signed-by=/etc/apt/keyrings/bench.asc] {repositories.url('ubuntu2404')} /\n"
    host.path("/etc/apt/sources.list.d/bench.list").write_text(line)
    package = host.path("/root/pciutils")  # every real Ubuntu has it, the lab's has not, and DeepOps asks for it
    (package / "DEBIAN").mkdir(parents=True)
    control = (
        "Package: pciutils\nVersion: 1\nArchitecture: all\nMaintainer: bench <bench@localhost>\nDescription: stand-in\n"
    )
    (package / "DEBIAN/control").write_text(control)
    (package / "usr/bin").mkdir(parents=True)
    (package / "usr/bin/lspci").write_text("#!/bin/sh\n")  # no GPU: so no nvidia-smi, as ours has no verify
    (package / "usr/bin/lspci").chmod(0o755)
    host.ssh("dpkg-deb", "--build", "/root/pciutils")
    host.ssh("dpkg", "-i", "/root/pciutils.deb")


def main() -> int:
    """Measure."""
    reason = machine.why_not()
    given = os.environ.get("GPUSETUP_PEERS", "")
    if reason or not given:
        print(f"skipped: {reason or 'nobody said where the others are. Fetch them:'}\n{'' if reason else FETCH}")
        return 0
    peers = Path(given).resolve()
    _METER.begin()
    machine.prepare()
    repositories = build.ready()
    role, deepops = peers / "nvidia.nvidia_driver", peers / "deepops"
    with tempfile.TemporaryDirectory(prefix="gb-") as scratch:
        play = Path(scratch) / "role.yml"
        play.write_text("- hosts: all\n  become: true\n  roles: [nvidia.nvidia_driver]\n")
        runs = _on_hosts(scratch, "o", lambda *told: ours(told[0], told[1], repositories, told[2]))
        found = [Contender(name="gpusetup", version=__version__, ansible=_ansible(sys.executable), runs=runs)]
        for name, part, python, book in (
            ("NVIDIA's role", role, sys.executable, play),
            (
                "DeepOps' driver playbook", deepops, _python(peers),
                deepops / "playbooks/nvidia-software/nvidia-driver.yml",
            ),
        ):  # fmt: skip

            def work(
                folder: Path, host: Host, reboots: Sequence[bool], book: Path = book, python: str = python
            ) -> list[Run]:
                return theirs(folder, host, repositories, peers, python, book, reboots)

            runs = _on_hosts(scratch, name[0].lower(), work) if part.exists() else ()
            version = _version(part) if part.exists() else f"{part} is not there"
            found.append(Contender(name=name, version=version, ansible=_ansible(python), runs=runs))
    _METER.end()
    record = Record(date=date.today().isoformat(), driver=BRANCH, contenders=tuple(found))  # noqa: DTZ011 - a day
    out = ROOT / "build/bench"
    out.mkdir(parents=True, exist_ok=True)
    (out / "peers.json").write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    (out / "peers.md").write_text(table(record))
    (out / "peers.svg").write_text(picture(record))
    print(table(record))
    for who in found:
        print(f"{who.name}, first run:\n\n{steps_table(who.runs[0].steps)}" if who.runs else "", end="\n")
    for who in found:
        for run, title in zip(who.runs, RUNS, strict=False):
            print(f"{who.name}, {title}: …{run.last}\n" if run.code else "", end="")
    print(
        f"written to {out}/peers.json, peers.md and peers.svg. The packages are stand-ins: these are Ansible's times, "
        "not those of downloads and builds."
    )
    return int(any(run.code for run in found[0].runs))


def _on_hosts(scratch: str, letter: str, work: Callable[[Path, Host, Sequence[bool]], list[Run]]) -> tuple[Run, ...]:
    """Run on two equal hosts: twice with reboots on one, and on the other first without the reboot."""
    runs: list[Run] = []
    for number, reboots in enumerate(((True, True), (False, True))):
        name = f"peer{os.getpid()}-{letter}{number}"
        folder = Path(scratch) / f"{letter}{number}"
        folder.mkdir()
        try:
            (host,) = fleet.up([HostSpec(name=name, flavour="ubuntu2404-like", machine="t4", disk="real")])
            runs += work(folder, host, reboots)
        finally:
            fleet.down([name])
    return tuple(runs)
