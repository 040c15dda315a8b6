"""Desktops of several users on one host: a VNC server, a page and a password each, as systemd units."""

import base64
import glob
import grp
import os
import pwd
import re
import socket
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from . import desktop_texts as texts
from . import files, followers, ports, process, services, systemd
from .failure import HostFailure
from .ledger import Ledger

SYSTEMD = "/etc/systemd/system"
FOLDER = "/etc/gpusetup/desktops"
LAUNCHER = "/usr/local/lib/gpusetup/desktop"
XORG = FOLDER + "/xorg.conf"
UDEV = "/etc/udev/rules.d/72-gpusetup-desktops.rules"
MODPROBE = "/etc/modprobe.d/gpusetup-desktops.conf"
DRM, DEVICES = "/sys/class/drm/*/device/driver", "/dev/dri"
PAGES = "/usr/share/novnc"
SERVERS = ("/opt/TurboVNC/bin/Xvnc", "/usr/bin/Xtigervnc", "/usr/bin/Xvnc")
OBFUSCATORS = ("/opt/TurboVNC/bin/vncpasswd", "tigervncpasswd", "vncpasswd")
X_UNIT = "gpusetup-desktop-x.service"
_FIRST_DISPLAY, _VNC_PORT = 20, 5920
_X_DISPLAY = 19
_GROUPS = ("video", "render")
"""Groups that may open /dev/dri by default."""
_PATIENCE = 30.0


class Asked(NamedTuple):
    """Who is to have a desktop, and how."""

    users: Tuple[str, ...]
    size: str
    session: str
    listen: str
    port: int
    certificate: str
    key: str
    group: str
    backend: str
    gpus: Tuple[str, ...]


def asked(params: Dict[str, Any]) -> Asked:
    told: Dict[str, Any] = {name: params.get(name) or "" for name in Asked._fields}
    told.update(port=int(told["port"] or 0), users=tuple(told["users"]), gpus=tuple(told["gpus"]))
    return Asked(**told)


def unit_of(user: str) -> str:
    return f"gpusetup-desktop-of-{user}.service"


def page_of(user: str) -> str:
    return f"gpusetup-desktop-page-{user}.service"


def _place(unit: str) -> str:
    return os.path.join(SYSTEMD, unit)


def _listens(wish: Asked, number: int) -> str:
    address = f"[{wish.listen}]" if ":" in wish.listen else wish.listen
    return f"{address}:{wish.port + number}"


# --- before anything is touched ------------------------------------------------------------------------------------


def in_the_way(params: Dict[str, Any]) -> List[HostFailure]:
    """Return the obstacles for a preview, none if no desktops are wanted."""
    told = params.get("desktops") or {}
    return list(obstacles(asked(told), process.environment())) if told.get("users") else []


def obstacles(wish: Asked, env: Dict[str, str]) -> Iterator[HostFailure]:
    """Yield what prevents it on this host: a missing user, a port in use, unsuitable secrets."""
    for number, user in enumerate(wish.users):
        try:
            home = pwd.getpwnam(user).pw_dir
        except KeyError:
            yield _in_the_way(f"there is no user {user} on this host", f"useradd --create-home {user}")
            continue
        if not os.path.isdir(home):
            yield _in_the_way(f"{user} has no home folder: {home}", f"mkhomedir_helper {user}")
        ours = {unit_of(user), page_of(user)}
        for place in (_listens(wish, number), f"127.0.0.1:{_VNC_PORT + number}"):
            for found in ports.listeners(place):
                if found.unit not in ours and not found.unit.startswith("gpusetup-desktop-"):
                    by = f"{found.program} (process {found.pid}{', ' + found.unit if found.unit else ''})"
                    hint = "stop it, or set another port in gpusetup_desktops"
                    yield _in_the_way(f"{place} is in use by {by}, and the desktop of {user} needs it", hint)
    if wish.group and not _number_of(wish.group):
        yield _in_the_way(f"there is no group {wish.group} on this host", f"groupadd --system {wish.group}")
    if wish.session and not process.which(wish.session, env):
        yield _in_the_way(
            f"{wish.session} is not on this host", "install the desktop that has it, or leave session out"
        )
    if wish.backend == "x" and not wish.gpus:
        yield _in_the_way("an X server needs a GPU, and this host has none", "leave backend out")
    if wish.certificate:
        yield from _unfit_secrets(wish, env)


def _unfit_secrets(wish: Asked, env: Dict[str, str]) -> Iterator[HostFailure]:
    secrets = ((wish.certificate, False), (wish.key, True))
    instead = "listen on 127.0.0.1, and come through SSH or a proxy of your own"
    for message, hint in systemd.credential_refusals(secrets, env, instead):
        yield _in_the_way(message, hint)


def _in_the_way(message: str, hint: str) -> HostFailure:
    return HostFailure("GS-460", "desktops: " + message, hint=hint)


def _number_of(group: str) -> int:
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        return 0


# --- files ---------------------------------------------------------------------------------------------------------


def wanted_files(wish: Asked, env: Dict[str, str]) -> Dict[str, Tuple[str, int]]:
    """Return {path: (content, mode)} of everything but the passwords."""
    found = {LAUNCHER: (texts.LAUNCHER.format(servers=" ".join(SERVERS), folder=FOLDER), 0o755)}
    groups = [wish.group] if wish.group else [group for group in _GROUPS if _number_of(group)]
    through_x = wish.backend == "x"
    websockify = process.which("websockify", env) or "/usr/bin/websockify"
    secret = (
        f"LoadCredential=certificate:{wish.certificate}\nLoadCredential=key:{wish.key}\n" if wish.certificate else ""
    )
    here = "${CREDENTIALS_DIRECTORY}"
    tls = f"--ssl-only --cert {here}/certificate --key {here}/key " if wish.certificate else ""
    for number, user in enumerate(wish.users):
        gpu = number % max(1, len(wish.gpus))
        text = texts.DESKTOP.format(
            user=user, display=_FIRST_DISPLAY + number, vnc=_VNC_PORT + number, size=wish.size, session=wish.session,
            device=f":{_X_DISPLAY}.{gpu}" if through_x else f"egl{gpu}", launcher=LAUNCHER,
            groups="SupplementaryGroups={}\n".format(" ".join(groups)) if groups else "",
            after=" " + X_UNIT if through_x else "", requires=f"Wants={X_UNIT}\n" if through_x else "",
            credentials=f"LoadCredential=xauthority:{texts.COOKIE}\n" if through_x else "",
        )  # fmt: skip
        found[_place(unit_of(user))] = (text, 0o644)
        text = texts.PAGE.format(
            user=user, websockify=websockify, pages=PAGES, credentials=secret, tls=tls,
            listen=_listens(wish, number), vnc=_VNC_PORT + number,
        )  # fmt: skip
        found[_place(page_of(user))] = (text, 0o644)
    if through_x:
        found[_place(X_UNIT)] = (texts.X.format(display=_X_DISPLAY, config=XORG, cookie=texts.COOKIE), 0o644)
        found[XORG] = (texts.SIGNED + texts.xorg(wish.gpus), 0o644)
    if wish.group:
        found[UDEV] = (texts.SIGNED + texts.UDEV.format(group=wish.group), 0o644)
        found[MODPROBE] = (texts.SIGNED + texts.MODPROBE.format(number=_number_of(wish.group)), 0o644)
    return found


def _password(ledger: Ledger, user: str, env: Dict[str, str], check: bool) -> bool:
    """Give a user a password once: as plain text, and in the form that VNC servers read. Its later changes stay."""
    paths = (f"{FOLDER}/{user}.password", f"{FOLDER}/{user}.vnc")
    there = [files.read_bytes(path) for path in paths]
    if None in there and check:
        return True
    if None in there:  # the protocol allows eight letters
        word = base64.b32encode(os.urandom(5)).decode().lower()
        there = [(word + "\n").encode(), _obfuscated(word, env)]
    owner = pwd.getpwnam(user)
    told = [ledger.write(path, raw or b"", 0o600, (owner.pw_uid, owner.pw_gid)) for path, raw in zip(paths, there)]
    return any(told)


def _obfuscated(word: str, env: Dict[str, str]) -> bytes:
    program = next((found for found in (process.which(name, env) for name in OBFUSCATORS) if found), None)
    if program is None:
        raise HostFailure(
            "GS-488", "no program here writes the password of a VNC server", ", ".join(OBFUSCATORS),
            hint="its package comes with the VNC server's: gpusetup apply",
        )  # fmt: skip
    code, out, error = process.raw([program, "-f"], env, 20, (word + "\n").encode())
    if code or not out:
        raise HostFailure("GS-488", f"{program} wrote no password", error.decode("utf-8", "replace").strip())
    return out


# --- what a module does --------------------------------------------------------------------------------------------


def configure(wish: Asked, ledger: Ledger, env: Dict[str, str], check: bool) -> Dict[str, Any]:
    """Set up desktops; return {"changed", "pending"}: units that still run with what they were started with."""
    for failure in obstacles(wish, env):
        raise failure
    wanted = wanted_files(wish, env)
    pages = [page_of(user) for user in wish.users]
    units = ([X_UNIT] if wish.backend == "x" else []) + [unit_of(user) for user in wish.users] + pages
    secrets = [f"{FOLDER}/{user}.{kind}" for user in wish.users for kind in ("password", "vnc")]
    changed = forget(ledger, env, check, keep=[*units, *wanted, *secrets])
    written = ledger.arrange(wanted)
    made = [user for user in wish.users if _password(ledger, user, env, check)]
    if check:
        return {"changed": bool(changed or written or made), "pending": []}
    systemd.read_again(units, env)
    _permissions(env)
    again = {unit: followers.Restart(unit, [_place(unit)], env) for unit in units}
    pending = [unit for unit, restart in again.items() if unit not in pages and restart.due()]
    followers.settle([again[page] for page in pages], check)
    started = services.bring_up(ledger, units, True, env)
    for number, user in enumerate(wish.users):
        _await(f"127.0.0.1:{_VNC_PORT + number}", unit_of(user), b"RFB ", env)
        _await(_reached(wish, number), page_of(user), b"", env)
    # Restarting the others would end their users' programs.
    return {"changed": bool(changed or written or made or started), "pending": pending}


def forget(ledger: Ledger, env: Dict[str, str], check: bool, keep: Sequence[str] = ()) -> bool:
    """Remove what an earlier apply set up and nobody wants now."""
    ours = [unit for unit in ledger.state["services"] if unit.startswith("gpusetup-desktop-") and unit not in keep]
    changes: List[Any] = list(services.take_down(ledger, env, ours))
    back = ledger.arrange({}, lambda path: _is_ours(path) and path not in keep)
    if not check:
        systemd.read_again([*ours, *systemd.units_of(back)], env)
        _permissions(env)
    return bool(changes or back)


def _is_ours(path: str) -> bool:
    units = os.path.dirname(path) == SYSTEMD and os.path.basename(path).startswith("gpusetup-desktop-")
    return units or path.startswith(FOLDER + "/") or path in (LAUNCHER, UDEV, MODPROBE)


def _permissions(env: Dict[str, str]) -> None:
    """Have udev give the GPUs' devices the group of our rule, or their own group once the rule is gone."""
    rule = re.search(r'GROUP="(.+?)"', files.read_text(UDEV) or "")
    own = {_number_of(group) for group in (rule.groups() if rule else ("root", *_GROUPS))}
    drivers = [path for path in glob.glob(DRM) if os.path.basename(os.path.realpath(path)) == "nvidia"]
    devices = [os.path.join(DEVICES, path.split("/")[-3]) for path in drivers]
    if any(os.stat(path).st_gid not in own for path in devices if os.path.exists(path)):
        process.output(["udevadm", "control", "--reload"], env, 30)
        process.output(["udevadm", "trigger", "--subsystem-match=drm", "--action=change"], env, 30)


def _reached(wish: Asked, number: int) -> str:
    everybody = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - as the inventory has it
    return _listens(wish._replace(listen=everybody.get(wish.listen, wish.listen)), number)


def _await(place: str, unit: str, greeting: bytes, env: Dict[str, str]) -> None:
    end, said = time.monotonic() + _PATIENCE, None  # type: Tuple[float, Optional[bytes]]
    while time.monotonic() < end:
        said = _greeting(place, len(greeting))
        if said == greeting:
            return
        time.sleep(0.2)
    where = f"{place}: " + ("nothing listens" if said is None else "something else answers")
    journal = systemd.last_words(unit, env)
    raise HostFailure("GS-488", f"{unit} does not serve its desktop", where, journal, f"journalctl -u {unit}")


def _greeting(place: str, count: int) -> Optional[bytes]:
    try:
        with socket.create_connection(ports.split(place), 5) as stream:
            return stream.recv(count) if count else b""
    except OSError:
        return None
