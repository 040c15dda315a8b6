"""The options of a rollout: from the command line, gpusetup.toml next to the inventory, inventory variables."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from gpusetup.drive.events import HostProgress, Track
from gpusetup.drive.playbook import Observer
from gpusetup.errors import BadInputError, wrong_field
from gpusetup.model import Reading, toml
from gpusetup.model.applied import Applied
from gpusetup.model.facts import HostFacts
from gpusetup.model.lock import Lock
from gpusetup.model.plan import HostPlan, Plan
from gpusetup.model.request import SITE_FILE, Policy, Requirement
from gpusetup.model.settings import RebootPolicy, Settings
from gpusetup.plan.settings import PREFIX, overruled, read_level, settings_for

Recorded = Callable[[str, "HostFacts"], "Applied"]


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """Settings of the command line for all hosts; gpusetup.toml and the inventory override them."""

    requirements: tuple[Requirement, ...] = ()
    source: str | None = None
    reboot: RebootPolicy | None = None
    replace: bool = False
    no_way_back: bool = False
    older_source: bool = False
    despite_maintenance: bool = False
    upgrade: bool = False
    allow_vulnerable: bool = False


@dataclass(frozen=True, kw_only=True)
class Planning:
    """How hosts are planned: freely, to a lock, from an existing plan, or from a record on the host."""

    wishes: Wishes = Wishes()
    lock: Lock | None = None
    keep_driver: bool = False
    """With a lock: keep a working driver that is compatible with the rest."""
    image: bool = False
    """With a lock: use the GPUs of the lock instead of the host's."""
    made: Plan | None = None
    recorded: Recorded | None = None
    only: tuple[str, ...] | None = None
    """None: all hosts of the inventory."""
    to_apply: bool = True
    """Whether apply follows: then the package lists that the preview fetched stay on the hosts."""


@dataclass(frozen=True, kw_only=True)
class Freeing:
    """How hosts are drained before they change."""

    drain: str = ""
    undrain: str = ""
    via: str = ""
    drain_minutes: float = 0.0
    busy_minutes: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Applying:
    """How plans are carried out."""

    check: bool = False
    verify: Literal["auto", "always", "never"] = "auto"
    batch: str = ""
    max_fail: int = 0
    max_fail_domain: int | None = None
    """After more failures than this in a domain, no other host of it is started."""
    keep: Literal["", "anew", "on"] = "anew"
    """Record the remaining hosts for --resume: not at all, of the changing hosts, or (`on`) of all hosts."""
    freeing: Freeing = Freeing()


class Reporter(Protocol):
    """Reports the progress of a rollout."""

    def watch(self, phase: str) -> AbstractContextManager[Observer]:
        """Return an observer for the playbook of a phase."""

    def begins(self, changes: Mapping[str, HostPlan]) -> None:
        """Report the hosts that are about to change, and how."""

    def say(self, text: str) -> None:
        """Report a line of text."""


def settings_of_hosts(
    wishes: Wishes, inventory: str | None, track: Track
) -> tuple[dict[str, Settings], dict[str, tuple[str, ...]]]:
    """Return each host's settings, and the settings of the command line that have no effect on it.

    Raises for a wrong or unknown setting, before anything is done.
    """
    said = {field.name: getattr(wishes, field.name) for field in fields(wishes) if field.name != "requirements"}
    line = read_level({name: value for name, value in said.items() if value}, "command line")
    path = beside(inventory)
    document = dict(read_toml(path)) if path.is_file() else {}
    policy = read_policy(document.pop("policy", None), path)
    file = read_level(document, str(path)) if inventory is not None and "," not in inventory else {}
    settings, lost = {}, {}
    for name, host in track.hosts.items():
        if host.problem:
            raise BadInputError(
                "GS-315", f"{name}: cannot read a variable: {host.problem}", path=name,
                hint=f"check it with: ansible-inventory -i {inventory or 'INVENTORY'} --host {name}",
            )  # fmt: skip
        variables = {key: value for key, value in host.variables.items() if key.startswith(PREFIX)}
        own = read_level(variables, name, prefix=PREFIX)
        wanted = settings_for(own, file, line, wishes.requirements)
        settings[name] = msgspec.structs.replace(_with_token(wanted), policy=policy)
        lost[name] = (*_rivals(host), *overruled(own, file, wishes.requirements, settings[name]))
    return settings, lost


def _rivals(host: HostProgress) -> Iterator[str]:
    for name, (counts, *others) in host.rivals.items():
        told = f"{name}: the groups {', '.join(sorted([counts, *others]))} of equal rank differ, and {counts}'s counts"
        yield f"{told}; set ansible_group_priority in one of them, or {name} in the host"


def _with_token(settings: Settings) -> Settings:
    """Return the settings with the digest of the vGPU token, which is all that the plan needs of it."""
    if not settings.vgpu_token:
        return settings
    try:
        digest = hashlib.sha256(Path(settings.vgpu_token).read_bytes()).hexdigest()
    except OSError as error:
        raise BadInputError(
            "GS-433", f"cannot read the vGPU token {settings.vgpu_token}: {error.strerror}", path="gpusetup_vgpu_token"
        ) from error
    return msgspec.structs.replace(settings, vgpu_token_sha256=digest)


def beside(inventory: str | None) -> Path:
    """Return the path of gpusetup.toml: next to the inventory, else in the current folder."""
    place = Path(inventory) if inventory is not None and "," not in inventory else Path()
    return (place if place.is_dir() else place.parent) / SITE_FILE


def policy_beside(inventory: str | None) -> Policy | None:
    """Return the policy in the gpusetup.toml of an inventory."""
    path = beside(inventory)
    return read_policy(read_toml(path).get("policy"), path) if path.is_file() else None


_POLICY = (
    'newest_driver_branch = 580, oldest_driver = "570.86.15", forbid_end_of_life = ["driver", "cuda"], '
    "forbid_cvss_from = 7.0"
)
"""All keys of `[policy]`, for hints."""


def read_policy(table: Any, path: Path) -> Policy | None:
    """Parse `[policy]`, or a project's `[tool.gpusetup.policy]`; errors name the line."""
    if table is None:
        return None
    names = table if isinstance(table, dict) else ("policy",)
    places = {name: f"{path}:{_line(path, name)}" for name in names}
    try:
        policy = msgspec.convert(table, Policy)
    except msgspec.ValidationError as error:
        text, where = wrong_field(error)
        name = next((name for name in places if where.startswith(f"$.{name}") or f"`{name}`" in text), "policy")
        place = places.get(name, str(path))
        raise BadInputError(
            "GS-313", f"{place}: {name} is not valid in [policy]: {text}", path=place, hint=f"it takes: {_POLICY}"
        ) from error
    return msgspec.structs.replace(policy, places=tuple(sorted(places.items())))


def _line(path: Path, name: str) -> int:
    text = path.read_text(encoding="utf-8")
    ours = re.search(r"^\s*\[\s*tool\s*\.\s*gpusetup\b", text, re.MULTILINE)
    start = re.compile(r"^\s*\[?[\w \t.]*\bpolicy\b", re.MULTILINE).search(text, ours.start() if ours else 0)
    begins = start.start() if start else 0
    found = re.compile(rf"^[ \t]*([\w \t.]*\.\s*)?[\"']?{re.escape(name)}\b", re.MULTILINE).search(text, begins)
    return text.count("\n", 0, found.start() if found else begins) + 1


def read_toml(path: Path) -> Mapping[str, Any]:
    """Read a TOML file; raise if it is invalid."""
    with Reading(path, ("GS-316", f"{path} is not valid TOML"), ("GS-316", f"cannot read {path}")):
        return toml(path.read_text(encoding="utf-8-sig"))
