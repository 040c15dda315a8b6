"""New machines for tests: a bundle that the lab serves, user-data, and real cloud-init with a NoCloud seed."""

import hashlib
import json
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab import network
from tests.lab.host import Host
from tests.lab.places import REPOSITORIES, SIMULATED_ROOT, locked
from tests.lab.process import run
from tests.lab.repository.build import Repositories

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "bootstrap-bundle"
KEPT = 6 * 3600
"""Seconds without use after which a bundle of an earlier state of the checkout goes."""
STATUS = "/var/lib/gpusetup/status.json"
FINAL = {"done", "sealed", "nothing-to-do", "pending-reboot", "failed"}
UNIT = "gpusetup-bootstrap.service"

# What the lab's own ways in need to survive a first boot under cloud-init.
CLOUD_CONFIG = "ssh_deletekeys: false\ndisable_root: false\nlocale: false\nnetwork: {config: disabled}\ndatasource_list: [NoCloud, None]\n"


@dataclass(frozen=True)
class Served:
    folder: Path
    url: str

    @property
    def manifest(self) -> Path:
        return self.folder / "manifest.json"

    def faulty(self, token: str) -> str:
        """The same bundle where `set_fault` can harm it."""
        return f"{network.REPOSITORY_URL}/with/{token}/{self.folder.name}"


def serve_bundle() -> Served:
    """Make the bundle from this checkout, for the Python of the hosts, and serve it.

    Each state of the checkout has a folder of its own: hosts that were pinned to an older one still fetch from it.
    """
    with locked("bootstrap-bundle"):
        folder = REPOSITORIES / f"{FOLDER}-{_sources()[:16]}"
        if not (folder / "manifest.json").exists():
            argv = ["bundle", "--controller-only", "--out", str(folder), "--python", "3.11"]
            run([sys.executable, "-m", "gpusetup", *argv], cwd=ROOT, timeout=900)
        folder.touch()
        for path in REPOSITORIES.glob(f"{FOLDER}-*"):
            if time.time() - path.stat().st_mtime > KEPT:
                shutil.rmtree(path)
    return Served(folder, f"{network.REPOSITORY_URL}/{folder.name}")


def _sources() -> str:
    seen = hashlib.sha256()
    folders = (ROOT / name for name in ("gpusetup", "gpusetup_fleet", "roles", "playbooks"))
    for path in sorted(path for folder in folders for path in folder.rglob("*") if path.is_file()):
        if "__pycache__" not in path.parts:
            seen.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return seen.hexdigest()


def served_lock(name: str, wish: str = "driver==580.*", more: bytes = b"") -> tuple[str, str]:
    """Serve a lock, with something wrong at its end where that is asked for; return its address and the digest it should have."""
    argv = [sys.executable, "-m", "gpusetup", "lock", wish, "--gpu", "t4", "--os", "debian12"]
    lock = run(argv, cwd=ROOT).stdout.encode()
    (REPOSITORIES / name).write_bytes(lock + more)
    return f"{network.REPOSITORY_URL}/{name}", hashlib.sha256(lock).hexdigest()


WISH = ("driver==580.*", "--gpu", "t4", "--os", "debian12")


def user_data(
    served: Served,
    repositories: Repositories,
    *words: str,
    source: str = "",
    wish: tuple[str, ...] = WISH,
) -> str:
    """User-data for a Debian 12 machine with a T4, its stack from the stand-in repositories."""
    variables = {**repositories.variables, "gpusetup_simulated_root": SIMULATED_ROOT}
    settings = [word for name, value in variables.items() for word in ("--set", f"{name}={value}")]
    wish = () if "--lock-url" in words else wish
    argv = [
        sys.executable, "-m", "gpusetup", "cloud-init", *wish, "--source", source or served.url,
        "--manifest", str(served.manifest), *settings, *words,
    ]  # fmt: skip
    return run(argv, cwd=ROOT).stdout


def seed(host: Host, text: str) -> None:
    """Put a NoCloud seed on a host (flavour debian12-cloud); its next boot is its first under cloud-init."""
    folder = host.path("/var/lib/cloud/seed/nocloud")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "user-data").write_text(text)
    (folder / "user-data").chmod(0o600)
    (folder / "meta-data").write_text(f"instance-id: {host.name}\nlocal-hostname: {host.name}\n")
    host.path("/etc/cloud/cloud.cfg.d/99-lab.cfg").write_text(CLOUD_CONFIG)


def first_boot(host: Host, text: str) -> None:
    seed(host, text)
    host.power_cut()
    host.power_on(wait=False)


def status(host: Host) -> dict[str, Any]:
    """What is on record, read from the disk: also while the host is off."""
    try:
        found: dict[str, Any] = json.loads(host.path(STATUS).read_text())
    except FileNotFoundError:
        return {"state": "none"}
    return found


def wait_for(host: Host, states: set[str], timeout: float = 900) -> dict[str, Any]:
    """Until the record says one of these; a host that powers itself off is left so."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        now = status(host)
        if now["state"] in states:
            return now
        time.sleep(0.1)
    log = host.path("/var/log/gpusetup-bootstrap.log")
    tail = log.read_text()[-3000:] if log.exists() else "(no log)"
    raise AssertionError(f"still {status(host)} after {timeout:.0f} s; log:\n{tail}")


def wait_until(what: Callable[[], object], timeout: float = 600, *, host: Host | None = None) -> None:
    """Until it is so; a bootstrap of `host` that failed meanwhile is no reason to wait any longer."""
    deadline = time.monotonic() + timeout
    while not what():
        assert time.monotonic() < deadline, f"it did not come to that; {status(host) if host else ''}"
        if host is not None:
            now = status(host)
            assert now["state"] != "failed" or what(), now
        time.sleep(0.05)


def wait_for_end(host: Host, timeout: float = 900) -> dict[str, Any]:
    """Until done or failed, the unit ended, SSH answers."""
    wait_for(host, FINAL, timeout)
    host.wait()
    wait_until(
        lambda: host.ssh("systemctl", "is-active", UNIT, check=False).stdout.strip() in {"inactive", "failed"}, 60
    )
    return status(host)
