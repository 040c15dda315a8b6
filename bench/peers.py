"""The driver brought to equal lab hosts by gpusetup, by NVIDIA's role and by DeepOps: time, operations, lost reboots.

Others' work is fetched by whoever runs this; nothing of it is shipped. Say where it is in GPUSETUP_PEERS, a folder with
  nvidia.nvidia_driver/   NVIDIA's role
  deepops/                DeepOps, with that role in roles/galaxy
  collections/            community.general, which the role needs
A part that is not there is left out, and the table says so.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from bench.apply_second_run import inventory
from gpusetup.report.svg import element, text_at
from tests.lab import fleet, machine
from tests.lab.applying import apply
from tests.lab.places import SSH_KEY
from tests.lab.repository import build
from tests.lab.spec import HostSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.lab.host import Host
    from tests.lab.repository.build import Repositories

ROOT = Path(__file__).resolve().parents[1]
FETCH = """  ansible-galaxy role install -p PEERS nvidia.nvidia_driver,v2.3.1
  git clone https://github.com/NVIDIA/deepops PEERS/deepops && git -C PEERS/deepops checkout 3957a42f
  ansible-galaxy collection install -p PEERS/collections community.general:13.4.0
  mkdir -p PEERS/deepops/roles/galaxy && ln -s ../../../nvidia.nvidia_driver PEERS/deepops/roles/galaxy/
then: GPUSETUP_PEERS=PEERS ./dev bench peers"""
BRANCH = "580"
RUNS = ("first run, reboot switched off", "then with reboots on", "once more")


@dataclass(frozen=True)
class Run:
    """One run over one host."""

    seconds: float
    operations: int
    code: int
    rebooted: bool
    last: str = ""
    """The last words of a run that failed."""

    def told(self) -> str:
        failed = f"; FAILED ({self.code})" if self.code else ""
        return f"{self.seconds:.1f} s, {self.operations} operations{', rebooted' if self.rebooted else ''}{failed}"


def _watched(host: Host, work: Callable[[], tuple[int, int, str]]) -> Run:
    before, started = host.boot_id(), time.monotonic()
    code, operations, said = work()
    seconds = time.monotonic() - started
    run = Run(seconds, operations, code, host.boot_id() != before, said if code else "")
    print(f"{host.name}: {run.told()}", flush=True)
    return run


def ours(folder: Path, host: Host, repositories: Repositories) -> list[Run]:
    """Bring the driver with gpusetup."""
    path = inventory(folder, [host], repositories)
    path.write_text(f"{path.read_text()}gpusetup_driver='=={BRANCH}.*'\n")

    def once(reboot: str) -> tuple[int, int, str]:
        answer = apply(folder, path, "--verify", "never", "--reboot", reboot)
        pending = answer.code == 9 and reboot == "never"
        return 0 if pending else answer.code, answer.operations, answer.err[-400:]

    return [_watched(host, lambda reboot=reboot: once(reboot)) for reboot in ("never", "when-needed", "when-needed")]  # type: ignore[misc]


def theirs(folder: Path, host: Host, repositories: Repositories, peers: Path, play: Path) -> list[Run]:
    """Bring it with a playbook of others; the package source is set up before, which gpusetup does itself."""
    _source(host, repositories)
    counted = {}
    for program in ("ssh", "sftp", "scp"):
        script = folder / f"counted-{program}"
        script.write_text(f'#!/bin/sh\necho >>"{folder}/operations"\nexec {program} "$@"\n')
        script.chmod(0o755)
        counted[f"ANSIBLE_{program.upper()}_EXECUTABLE"] = str(script)
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8",
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "ANSIBLE_PIPELINING": "1", "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_ROLES_PATH": f"{peers}/deepops/roles:{peers}/deepops/roles/galaxy:{peers}",
        "ANSIBLE_COLLECTIONS_PATH": str(peers / "collections"), "ANSIBLE_HOST_KEY_CHECKING": "0", **counted,
    }  # fmt: skip
    (folder / "ansible.cfg").write_text("")  # not the one of this checkout
    connection = f"ansible_user=root ansible_python_interpreter=/usr/bin/python3 ansible_ssh_private_key_file={SSH_KEY}"
    (folder / "hosts").write_text(f"peer ansible_host={host.address} {connection}\n")

    def once(*, reboots: bool) -> tuple[int, int, str]:
        (folder / "operations").write_text("")
        variables = {
            "nvidia_driver_branch": BRANCH, "nvidia_driver_add_repos": False, "nvidia_driver_force_install": True,
            "nvidia_driver_ubuntu_install_from_cuda_repo": True, "nvidia_driver_skip_reboot": not reboots,
        }  # fmt: skip
        (folder / "vars.yml").write_text(yaml.safe_dump(variables))
        words = [sys.executable, "-m", "ansible", "playbook", "-i", folder / "hosts", "-e", f"@{folder}/vars.yml", play]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=900, check=False)  # type: ignore[arg-type]
        return done.returncode, (folder / "operations").read_text().count("\n"), (done.stdout + done.stderr)[-1200:]

    return [_watched(host, lambda reboots=reboots: once(reboots=reboots)) for reboots in (False, True, True)]  # type: ignore[misc]


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
    (package / "usr/bin/lspci").write_text("#!/bin/sh\n")
    (package / "usr/bin/lspci").chmod(0o755)
    host.ssh("dpkg-deb", "--build", "/root/pciutils")
    host.ssh("dpkg", "-i", "/root/pciutils.deb")


def table(found: dict[str, list[Run]], left_out: list[str]) -> str:
    """Return it as Markdown."""
    lines = ["| who | " + " | ".join(RUNS) + " | the lost reboot |", "|---|" + "---|" * (len(RUNS) + 1)]
    for name, runs in found.items():
        worked = all(run.code == 0 for run in runs)
        made_up = (
            "made up for"
            if any(run.rebooted for run in runs[1:])
            else "stays lost"
            if worked
            else "not seen: it failed"
        )
        lines.append(f"| {name} | " + " | ".join(run.told() for run in runs) + f" | {made_up} |")
    lines += [f"| {name} | not here | | | |" for name in left_out]
    return "\n".join(lines) + "\n"


def picture(found: dict[str, list[Run]]) -> str:
    """Return seconds as bars; what failed is pale."""
    longest = max((run.seconds for runs in found.values() for run in runs), default=1.0) or 1.0
    parts = [element("style", "text { font: 13px system-ui, sans-serif; fill: #6b7280; } .name { font-weight: 600; }")]
    y = 8
    for name, runs in found.items():
        parts.append(text_at(8, y + 16, name, "name", "start"))
        for run, title in zip(runs, RUNS, strict=True):
            y += 24
            width = 380 * run.seconds / longest
            pale = 0.35 if run.code else 1
            parts.append(text_at(8, y + 15, title, "axis", "start"))
            parts.append(element("rect", x=220, y=y + 2, width=f"{width:.0f}", height=17, fill="#2563eb", opacity=pale))
            parts.append(text_at(228 + width, y + 15, run.told(), "axis", "start"))
        y += 40
    return element(
        "svg", "".join(parts), xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 900 {y}", width=900, role="img",
        aria_label="; ".join(f"{name}: {runs[-1].seconds:.1f} seconds once more" for name, runs in found.items()),
    )  # fmt: skip


def main() -> int:
    """Measure."""
    reason = machine.why_not()
    given = os.environ.get("GPUSETUP_PEERS", "")
    if reason or not given:
        print(f"skipped: {reason or 'nobody said where the others are. Fetch them:'}\n{'' if reason else FETCH}")
        return 0
    peers = Path(given).resolve()
    machine.prepare()
    repositories = build.ready()
    role, deepops = peers / "nvidia.nvidia_driver", peers / "deepops/playbooks/nvidia-software/nvidia-driver.yml"
    found: dict[str, list[Run]] = {}
    left_out = [str(part) for part in (role, deepops) if not part.exists()]
    with tempfile.TemporaryDirectory(prefix="gb-") as scratch:
        play = Path(scratch) / "role.yml"
        play.write_text("- hosts: all\n  become: true\n  roles: [nvidia.nvidia_driver]\n")
        found["gpusetup"] = _on_a_host(scratch, "o", lambda folder, host: ours(folder, host, repositories))
        for name, there, book in (("NVIDIA's role", role, play), ("DeepOps' driver playbook", deepops, deepops)):
            if there.exists():
                work = lambda folder, host, book=book: theirs(folder, host, repositories, peers, book)  # noqa: E731
                found[name] = _on_a_host(scratch, name[0].lower(), work)
    out = ROOT / "build/bench"
    out.mkdir(parents=True, exist_ok=True)
    (out / "peers.md").write_text(table(found, left_out))
    (out / "peers.svg").write_text(picture(found))
    print(table(found, left_out))
    for name, runs in found.items():
        print(
            "".join(f"{name}, {title}: …{run.last}\n" for run, title in zip(runs, RUNS, strict=True) if run.code),
            end="",
        )
    print(
        f"written to {out}/peers.md and peers.svg. The packages are stand-ins: these are Ansible's times, not those of "
        "downloads and builds."
    )
    return int(any(run.code for run in found["gpusetup"]))


def _on_a_host(scratch: str, letter: str, work: Callable[[Path, Host], list[Run]]) -> list[Run]:
    """Do it on a host of its own, all of one kind; the host is gone afterwards."""
    name = f"peer{os.getpid()}-{letter}"
    folder = Path(scratch) / letter
    folder.mkdir()
    try:
        (host,) = fleet.up([HostSpec(name=name, flavour="ubuntu2404-like", machine="t4")])
        return work(folder, host)
    finally:
        fleet.down([name])
