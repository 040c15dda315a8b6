"""Remote desktops: the setting's parser, the packages that draw and show them, the actions of a plan."""

import ipaddress
import re
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any, get_args

from gpusetup.components import judge
from gpusetup.components.base import Brought, Component, Context, Group, Wanted, action
from gpusetup.components.judge import Judged
from gpusetup.components.parsing import members, path, refusing
from gpusetup.components.record import wish_on_record
from gpusetup.errors import PreflightError
from gpusetup.matrix.load import Matrix
from gpusetup.model.facts import HostFacts
from gpusetup.model.package import Manager, Package
from gpusetup.model.plan import Action
from gpusetup.model.settings import BackEnd, DesktopsWish
from gpusetup.model.stack import Stack

_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_SIZE = re.compile(r"[1-9][0-9]{2,4}x[1-9][0-9]{2,4}")
_SESSION = re.compile(r"/?[A-Za-z0-9][A-Za-z0-9_./+-]*")
_FIELDS = frozenset(DesktopsWish.__struct_fields__)
_MOST = 64
"""The most users, each of whom gets a display."""


def _wish(value: Any, label: str) -> DesktopsWish | None:
    """Read who gets a desktop: names, or {users, size, listen, …}; None for false."""
    try:
        told = members(value, "users")
    except ValueError:
        raise _wrong(label, value) from None
    if told is None:
        return None
    if not set(told) <= _FIELDS:
        raise _wrong(label, value)
    users = told["users"]
    if not isinstance(users, list | tuple) or not 0 < len(users) <= _MOST:
        raise _wrong(label, users, f"name 1 to {_MOST} users")
    for user in users:
        if not isinstance(user, str) or not _USER.fullmatch(user) or user == "root":
            raise _wrong(
                label, user, "name users of the host, and not root: programs of a desktop have its user's rights"
            )
    if len(set(users)) < len(users):
        raise _wrong(label, users, "name each user once")
    wish = DesktopsWish(
        users=tuple(users), **{name: _read(name, item, label) for name, item in told.items() if name != "users"}
    )
    if wish.port + len(users) > 65536:
        raise _wrong(label, wish.port, f"leave room for {len(users)} ports, one for each user")
    if bool(wish.certificate) != bool(wish.key):
        raise _wrong(label, wish.certificate or wish.key, "give both, certificate and key")
    if not wish.certificate and not ipaddress.ip_address(wish.listen).is_loopback:
        hint = "give certificate and key, paths on the host; or listen on 127.0.0.1 and come through SSH"
        raise _wrong(
            label,
            wish.listen,
            f"others can reach this address, and passwords would cross the network in the clear: {hint}",
        )
    return wish


def _read(name: str, value: Any, label: str) -> Any:
    """Read one field other than the users."""
    if name == "size" and isinstance(value, str) and _SIZE.fullmatch(value):
        return value
    if name == "session" and isinstance(value, str) and (not value or _SESSION.fullmatch(value)) and ".." not in value:
        return value
    if name == "listen":
        try:
            return str(ipaddress.ip_address(value)) if isinstance(value, str) else _fail(label, value)
        except ValueError:
            raise _wrong(label, value, "write an address in numbers: 127.0.0.1, 0.0.0.0, ::") from None
    if name == "port" and isinstance(value, int) and not isinstance(value, bool) and 1024 <= value < 65536:
        return value
    if name in {"certificate", "key"}:
        return path(value, f"{label}: {name}") if value else ""
    if name == "group" and isinstance(value, str) and (not value or _USER.fullmatch(value)):
        return value
    if name == "backend" and value in get_args(BackEnd):
        return value
    return _fail(label, value, _WANTED.get(name, ""))


_WANTED = {
    "size": "write width and height: 1920x1080",
    "session": "write one program, for example startxfce4",
    "port": "write the first port, 1024 or above",
    "group": "write the name of a group",
    "backend": "write egl (no X server on the GPU) or x (one without a screen)",
}


def _fail(label: str, value: object, hint: str = "") -> Any:
    raise _wrong(label, value, hint)


_EXAMPLE = 'for example ["alice", "bob"] or {"users": ["alice", "bob"], "size": "2560x1440"}'
_wrong = refusing("GS-386", "cannot be used for desktops", _EXAMPLE)


# --- packages ------------------------------------------------------------------------------------------------------


def _patterns(context: Context, _matrix: Matrix) -> tuple[str, ...]:
    """Return the package names to search for."""
    table = context.repos.desktops
    if context.settings.desktops is None:
        return ()
    servers = (name for server in table.servers for name in server)
    graphics = (f"{name}*" if name.endswith("-gl") else name for name in table.graphics)
    return (*table.packages, *servers, *table.session, *table.x_server, *graphics)


def _packages(context: Context, manager: Manager) -> tuple[Package, ...]:
    """Return the packages that draw and show desktops; raise if the repositories lack one."""
    wish, table = context.settings.desktops, context.repos.desktops
    if wish is None:
        return ()
    if manager != table.manager:
        raise PreflightError(
            "GS-387",
            "gpusetup_desktops: desktops are set up on Debian and Ubuntu only",
            note="elsewhere the names of the packages are not known",
            hint="unset gpusetup_desktops for this host",
        )
    there, offers = context.facts.packages.installed, context.offers
    servers = table.servers
    server = next((names for names in servers if all(name in there or offers.has(name) for name in names)), servers[-1])
    names = [*table.packages, *server]
    names += [] if wish.session else table.session
    names += table.x_server if wish.backend == "x" else ()
    lacking = [name for name in names if name not in there and not offers.has(name)]
    if offers.known and lacking:
        site = "virtualgl" in lacking
        raise PreflightError(
            "GS-387",
            f"gpusetup_desktops needs {', '.join(lacking)}, which no repository of this host has",
            note="no distribution packages VirtualGL and TurboVNC; their project has a repository" if site else "",
            hint="add a mirror of it to gpusetup_extra_sources (docs/guides/desktops.md), or unset gpusetup_desktops",
        )
    return tuple(Package(name=name) for name in names)


def graphics_of(context: Context, series: str, version: str, others: Iterable[Package] = ()) -> tuple[Package, ...]:
    """Return the offered driver packages that draw, which a headless driver leaves out; `others` come anyway."""
    if context.settings.desktops is None:
        return ()
    there = {package.name for package in others}
    names = [f"{name}{series}" if name.endswith("-gl") else name for name in context.repos.desktops.graphics]
    wanted = [name for name in names if name not in there and context.offers.has(name, version)]
    return tuple(context.offers.exact(name, version) for name in wanted)


def _notes(context: Context, wanted: Wanted) -> Iterator[str]:
    """Yield a warning if the drawing half of the driver is neither installed nor wanted."""
    table, there = context.repos.desktops, context.facts.packages.installed
    if context.settings.desktops is None or not context.offers.known:
        return
    driver = wanted.packages.driver if wanted.packages is not None else ()
    names = [*(package.name for package in driver), *there]
    if not any(name.startswith(table.graphics) for name in names):
        yield (
            "gpusetup_desktops: no repository here has the half of this driver that draws "
            f"({' or '.join(table.graphics)}): programs draw in software until it is there"
        )


def _why(_host: Judged, wanted: Wanted) -> str:
    """Return which VNC server was chosen, and why."""
    packages = wanted.packages.desktops if wanted.packages is not None else ()
    if any(package.name == "turbovnc" for package in packages):
        return "VNC by TurboVNC, which a repository here has"
    return "VNC by the distribution's TigerVNC: no repository here has TurboVNC"


def _actions(host: Judged, wanted: Wanted) -> Iterator[Action]:
    """Yield the actions for desktops that are new, changed, no longer wanted or whose units do not run."""
    before, wish = wish_on_record(host.facts, "desktops"), wanted.parts.get("desktops")
    if wish is None:
        if before is not None:
            why = "gpusetup_desktops no longer lists them"
            what = f"no desktops for {', '.join(before.users)}: their programs end"
            yield action("service", "desktops", what, why)
        return
    why = "set by gpusetup_desktops"
    if before is not None and set(before.users) & set(wish.users):
        why += "; running ones stay as they are: systemctl restart gpusetup-desktop-of-USER ends their programs"
    if before == wish:
        stopped = judge.drift.desktop_units(host.probed, host.record)
        off = [item.what for item in stopped]
        if not off:
            return
        why = f"{', '.join(off)} does not run"
    where = f"{wish.listen}:{wish.port}" + (f" to {wish.port + len(wish.users) - 1}" if len(wish.users) > 1 else "")
    how = "by EGL" if wish.backend == "egl" else "through an X server without a screen"
    tls = " over TLS" if wish.certificate else ""
    what = f"a desktop of {wish.size} for {', '.join(wish.users)}, drawn on the GPU {how}, at {where}{tls}"
    yield action("service", "desktops", what, why)
    if wish.group and (before is None or before.group != wish.group):
        what = f"only the group {wish.group} may use the GPUs (/dev/nvidia*, /dev/dri)"
        yield action("file", "desktops-group", what, "gpusetup_desktops names it")


def _wants(context: Context, manager: Manager, _stack: Stack, _matrix: Matrix) -> Brought:
    return Brought(context.settings.desktops, _packages(context, manager))


def _variables(facts: HostFacts, wanted: Wanted) -> dict[str, Any]:
    """Return the role's variables; backend "none" removes what an earlier apply set up."""
    wish: DesktopsWish | None = wanted.parts.get("desktops")
    if wish is None:
        return {"gpu_desktop_backend": "none"} if wish_on_record(facts, "desktops") is not None else {}
    told: dict[str, Any] = {f"gpu_desktop_{name}": getattr(wish, name) for name in wish.__struct_fields__}
    return told | {"gpu_desktop_gpus": tuple(gpu.address for gpu in facts.gpus)}


DESKTOPS = Component(
    name="desktops",
    settings={"desktops": _wish},
    packages={"desktops": Group(_why, "gpu_desktop_packages", leaves=("*",))},
    asks=attrgetter("desktops"),
    patterns=_patterns,
    wants=_wants,
    notes=_notes,
    actions=_actions,
    variables=_variables,
    kept="desktops",
)
