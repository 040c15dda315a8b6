"""Which of the slow stages a change touches: what CI runs beside the default ones.

`./dev test changed` compares with the commit that was tested last: GPUSETUP_TESTED, which CI sets, else where this branch left the
main one. Without either, commits take turns: in four of them each stage runs once that needs no other machine and no booted guest.
"""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALWAYS = ("dev", "pyproject.toml", "tests/stages.py", "tests/programs.py", "tests/changes.py", "tests/conftest.py")
"""What every stage stands on."""
TOUCH: dict[str, tuple[str, ...]] = {
    "fleet": ("gpusetup_fleet/", "gpusetup/", "plugins/", "tests/fleet/", "docs/guides/"),
    "drive": (
        "gpusetup/drive/", "gpusetup/rollout/", "gpusetup_fleet/handover/", "gpusetup/cli/", "gpusetup/callback_plugins/", "gpusetup/inventory_plugins/", "playbooks/",
        "plugins/", "roles/gpu_verify/", "gpusetup/verify/", "tests/drive/", "tests/modules/", "tests/awx_api.py",
    ),
    "tools": ("tools/", "gpusetup/matrix/", "gpusetup/model/", "gpusetup/components/", "roles/", "tests/tools/"),
    "lab-long": (
        "plugins/", "roles/", "playbooks/", "gpusetup/components/", "gpusetup/plan/", "gpusetup/rollout/", "gpusetup/drive/", "tests/lab/",
    ),
    "site": (
        "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs/", "tools/", "gpusetup/matrix/", "gpusetup/resolve/", "gpusetup/doctor/",
        "gpusetup/verify/", "gpusetup/cli/", "gpusetup/model/", "gpusetup_fleet/", "tests/site/", "tests/lab/browser.py",
    ),
    "vm": (
        "gpusetup/bootstrap/", "gpusetup/components/", "gpusetup/plan/", "plugins/", "roles/", "playbooks/", "tests/vm/", "tests/lab/repository/", "tests/lab/rootfs/",
        "tests/lab/network.py", "tests/lab/host.py",
    ),
    "molecule": ("roles/", "plugins/", "playbooks/", ".config/", ".collections/", "tests/lab/"),
}  # fmt: skip
TOUCH["lab-slow"] = TOUCH["lab-long"]
"""Slow stage → the files and folders whose changes can break it."""
UNKNOWN = ({"fleet", "tools", "lab-slow"}, {"site", "lab-slow"}, {"drive"}, {"lab-long"})
"""What runs by turns when nobody knows what changed."""


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, check=False, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def commits() -> str:
    """The number of commits up to this one, which chooses the turn of lab-slow."""
    return _git("rev-list", "--count", "HEAD") or "1"


def base() -> str:
    """The commit that was tested last, or nothing."""
    named = os.environ.get("GPUSETUP_TESTED", "")
    if named:
        return _git("rev-parse", "--verify", "--quiet", f"{named}^{{commit}}")
    head = _git("rev-parse", "HEAD")
    for main in ("origin/main", "main"):
        left = _git("merge-base", main, "HEAD")
        if left and left != head:
            return left
    return ""


def changed(since: str) -> list[str]:
    """Files that differ from that commit, those that are not committed too."""
    tracked = _git("diff", "--name-only", "--no-renames", since)
    return sorted({*tracked.splitlines(), *_git("ls-files", "--others", "--exclude-standard").splitlines()})


def reasons(paths: list[str]) -> dict[str, str]:
    """Each slow stage that these files touch, with the first file that does."""
    found = {}
    for stage, places in TOUCH.items():
        file = next((path for path in paths for place in (*ALWAYS, *places) if path == place or (place.endswith("/") and path.startswith(place))), "")  # fmt: skip
        if file:
            found[stage] = file
    return found


def decided() -> dict[str, tuple[bool, str]]:
    """Whether each slow stage is to run, with the reason."""
    since = base()
    if not since:
        why = "no commit is known that was tested before (GPUSETUP_TESTED names one)"
        turn = UNKNOWN[int(os.environ.get("GPUSETUP_TURN") or commits()) % len(UNKNOWN)]
        return {
            stage: (True, f"{why} and it is its turn") if stage in turn else (False, f"{why}; ./dev test all runs it")
            for stage in TOUCH
        }
    touched = reasons(changed(since))
    return {
        stage: (True, f"{touched[stage]} changed since {since[:8]}")
        if stage in touched
        else (False, f"nothing changed since {since[:8]} that it depends on")
        for stage in TOUCH
    }
