"""The exporter of the GPUs' metrics: its files, its units, and whether it answers."""

import os
import re
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

from ..gpu_judge.names import MONITORING_UNITS
from ..gpu_probe.services import scrape
from . import dcgm_counters, files, followers, ports, process, services, systemd
from .failure import HostFailure
from .ledger import Ledger

SYSTEMD = "/etc/systemd/system"
COUNTERS = "/etc/gpusetup/dcgm-counters.csv"
WEB = "/etc/gpusetup/monitoring-web.yml"
COLLECTOR = "/usr/local/lib/gpusetup/gpu"
TEXTFILE = "gpusetup-gpu.prom"
SOCKET = "/run/nvidia-dcgm/nv-hostengine.sock"
TIMER, LOOK = "gpusetup-gpu-textfile.timer", "gpusetup-gpu-textfile.service"
ENGINE, DCGM, SMI = "nvidia-dcgm.service", "nvidia-dcgm-exporter.service", "nvidia_gpu_exporter.service"
NODE = ("prometheus-node-exporter.service", "prometheus-node_exporter.service")
_PATIENCE = 30.0
_BCRYPT = re.compile(r"^([A-Za-z0-9._@-]+):(\$2[abxy]\$\d\d\$[./A-Za-z0-9]{53})$")
_SIGNED = "# Written by gpusetup: changes here are lost at the next apply.\n"
_ENGINE = (
    _SIGNED
    + """[Service]
RuntimeDirectory=nvidia-dcgm
RuntimeDirectoryMode=0755
ExecStart=
ExecStart={program} -n --service-account nvidia-dcgm --domain-socket {socket}
"""
)
_DAEMON = (
    _SIGNED
    + """{more}[Service]
{credentials}ExecStart=
ExecStart={command}
"""
)
_AFTER_ENGINE = "[Unit]\nRequires=nvidia-dcgm.service\nAfter=nvidia-dcgm.service\n\n"
_LOOK = (
    _SIGNED
    + """[Unit]
Description=Figures of the GPUs for node_exporter

[Service]
Type=oneshot
TimeoutStartSec=30
Nice=10
LogLevelMax=notice
NoNewPrivileges=yes
CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_MKNOD CAP_SYSLOG CAP_SYS_MODULE
ProtectSystem=strict
ReadWritePaths=-{folder}
ProtectHome=yes
PrivateTmp=yes
ProtectHostname=yes
LockPersonality=yes
RestrictAddressFamilies=AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
WorkingDirectory={place}
ExecStart={python} -S -m gpu_textfile.look --folder {folder}
"""
)
_TIMER = (
    _SIGNED
    + """[Unit]
Description=Figures of the GPUs for node_exporter, every 15 seconds

[Timer]
OnBootSec=10
OnUnitActiveSec=15
AccuracySec=1

[Install]
WantedBy=timers.target
"""
)


class Asked(NamedTuple):
    """Which exporter is wanted, and how."""

    kind: str
    listen: str
    folder: str
    dcgm: str
    certificate: str
    key: str
    passwords: str

    @property
    def secured(self) -> bool:
        """Whether it serves other hosts: over TLS, with a password."""
        return bool(self.certificate)


def asked(params: Dict[str, Any]) -> Asked:
    return Asked(**{name: params.get(name) or "" for name in Asked._fields if name != "kind"}, kind=params["exporter"])


# --- before anything is touched ------------------------------------------------------------------------------------


def in_the_way(params: Dict[str, Any]) -> List[HostFailure]:
    """Return the obstacles for a preview, none if no exporter is wanted."""
    told = params.get("monitoring") or {}
    return list(obstacles(asked(told), process.environment())) if told.get("exporter") else []


def obstacles(wish: Asked, env: Dict[str, str]) -> Iterator[HostFailure]:
    """Yield what prevents it on this host: a port in use, unsuitable secrets."""
    ours = {"dcgm": (DCGM,), "nvidia_gpu_exporter": (SMI,), "textfile": NODE}.get(wish.kind, ())
    for found in ports.listeners(wish.listen) if wish.listen and ours else ():
        if found.unit not in ours:
            by = f"{found.program} (process {found.pid}{', ' + found.unit if found.unit else ''})"
            address, port = ports.split(wish.listen)
            yield HostFailure(
                "GS-457", f"port {port} is in use by {by}, and the exporter is to listen on {wish.listen}",
                hint=f"stop it (systemctl disable --now {found.unit or found.program}), or let the exporter listen "
                f"elsewhere: gpusetup_monitoring_listen={address}:{port + 10000 if port < 50000 else port - 10000}",
            )  # fmt: skip
    if wish.secured:
        yield from _unfit_secrets(wish, env)


def _unfit_secrets(wish: Asked, env: Dict[str, str]) -> Iterator[HostFailure]:
    secrets = ((wish.certificate, False), (wish.key, True), (wish.passwords, True))
    instead = "let the exporter listen on 127.0.0.1, behind a proxy of your own"
    for message, hint in systemd.credential_refusals(secrets, env, instead):
        yield HostFailure("GS-458", message, hint=hint)
    try:
        _users(wish.passwords)
    except HostFailure as failure:
        yield failure


def _users(path: str) -> Dict[str, str]:
    users = {}
    for number, line in enumerate((files.read_text(path) or "").splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            match = _BCRYPT.match(line.strip())
            if match is None:
                raise HostFailure(
                    "GS-458", "a line of the password file is not a user with a bcrypt hash", f"{path}, line {number}",
                    hint=f"write it with: htpasswd -B {path} USER",
                )  # fmt: skip
            users[match.group(1)] = match.group(2)
    if not users and os.path.isfile(path):
        raise HostFailure("GS-458", "the password file has no user", path, hint=f"htpasswd -B {path} prometheus")
    return users


# --- files ---------------------------------------------------------------------------------------------------------


def units(wish: Asked, env: Dict[str, str]) -> List[str]:
    """Return the units that must run; node_exporter's is the one from its package."""
    if wish.kind == "dcgm":
        return [ENGINE, DCGM]
    if wish.kind == "nvidia_gpu_exporter":
        return [SMI]
    if wish.kind != "textfile":
        return []
    if not wish.listen:
        return [TIMER]
    seen = services.look(NODE, env)
    # Before the package is installed, use Debian's name, because Debian starts new services at once.
    return [TIMER, next((unit for unit in NODE if seen[unit]["exists"]), NODE[0])]


def wanted_files(wish: Asked, env: Dict[str, str], collector: Dict[str, str]) -> Dict[str, Tuple[str, int]]:
    """Return {path: (content, mode)} of everything that the exporter needs besides its package."""
    found: Dict[str, Tuple[str, int]] = {}
    if not wish.kind or wish.kind == "none":
        return found
    if wish.secured:
        found[WEB] = (_web(wish), 0o600)
    if wish.kind == "dcgm":
        program = process.which("nv-hostengine", env) or "/usr/bin/nv-hostengine"
        found[_drop_in(ENGINE)] = (_ENGINE.format(program=program, socket=SOCKET), 0o644)
        exporter = process.which("dcgm-exporter", env) or "/usr/bin/dcgm-exporter"
        command = [exporter, "-f", COUNTERS, "-r", "unix://" + SOCKET, "-a", wish.listen]
        found[_drop_in(DCGM)] = (_daemon(wish, command, "--web-config-file", _AFTER_ENGINE), 0o644)
        found[COUNTERS] = (_SIGNED + dcgm_counters.of(wish.dcgm), 0o644)
    elif wish.kind == "nvidia_gpu_exporter":
        program = process.which("nvidia_gpu_exporter", env) or "/usr/bin/nvidia_gpu_exporter"
        command = [program, "--web.listen-address=" + wish.listen]
        found[_drop_in(SMI)] = (_daemon(wish, command, "--web.config.file"), 0o644)
    elif wish.kind == "textfile":
        python = process.which("python3", env) or "/usr/libexec/platform-python"
        found.update({os.path.join(COLLECTOR, name): (text, 0o644) for name, text in collector.items()})
        found[os.path.join(SYSTEMD, LOOK)] = (_LOOK.format(place=COLLECTOR, python=python, folder=wish.folder), 0o644)
        found[os.path.join(SYSTEMD, TIMER)] = (_TIMER, 0o644)
        node = [unit for unit in units(wish, env) if unit in NODE]
        if node:
            command = _command_of(node[0], env)
            program = command[0]
            command += ["--web.listen-address=" + wish.listen, "--collector.textfile.directory=" + wish.folder]
            found[_drop_in(node[0])] = (_daemon(wish, command, _web_option(program, env)), 0o644)
    return found


def _drop_in(unit: str) -> str:
    return f"{SYSTEMD}/{unit}.d/gpusetup.conf"


def _daemon(wish: Asked, command: List[str], web: str, more: str = "") -> str:
    """Return a drop-in that makes a unit listen at its address, with secrets passed by systemd."""
    credentials = ""
    if wish.secured:
        for handed, path in (("web.yml", WEB), ("tls.crt", wish.certificate), ("tls.key", wish.key)):
            credentials += f"LoadCredential={handed}:{path}\n"
        command = [*command, web + "=${CREDENTIALS_DIRECTORY}/web.yml"]
    return _DAEMON.format(more=more, credentials=credentials, command=" ".join(command))


def _web_option(program: str, env: Dict[str, str]) -> str:
    """Return this node_exporter's option for web settings, which had another name before 1.5."""
    _code, out, error = process.output([program, "--help"], env, 20)
    told = out + error
    return "--web.config" if "--web.config" in told and "--web.config.file" not in told else "--web.config.file"


def _command_of(unit: str, env: Dict[str, str]) -> List[str]:
    """Return a unit's program, and the variables with an administrator's options for it, such as $ARGS."""
    _code, text, _error = process.output(["systemctl", "cat", unit], env, 20)
    found = re.findall(r"^ExecStart=[-@:+!]*(/.+)", text, re.MULTILINE) or [unit.rpartition(".")[0]]
    program, *options = found[0].split()
    return [program, *(word for word in options if word.startswith("$"))]


def _web(wish: Asked) -> str:
    """Return the settings for TLS and passwords that every exporter of the Prometheus family reads.

    The certificate and its key are in the same folder when the service reads it.
    """
    lines = ["tls_server_config:", "  cert_file: tls.crt", "  key_file: tls.key", "basic_auth_users:"]
    lines += [f"  {user}: '{secret}'" for user, secret in sorted(_users(wish.passwords).items())]
    return _SIGNED + "\n".join(lines) + "\n"


# --- what is done --------------------------------------------------------------------------------------------------


def is_ours(path: str) -> bool:
    """Return whether a recorded file belongs to monitoring."""
    drop_ins = {_drop_in(unit) for unit in MONITORING_UNITS}
    own = {COUNTERS, WEB, os.path.join(SYSTEMD, LOOK), os.path.join(SYSTEMD, TIMER)}
    return path in drop_ins | own or path.startswith(COLLECTOR + "/")


def prepare(ledger: Ledger, wish: Asked, collector: Dict[str, str], env: Dict[str, str]) -> bool:
    """Write the files before the packages come, whose services then start with the right settings."""
    for failure in obstacles(wish, env):
        raise failure
    texts = wanted_files(wish, env, collector)
    moved = ledger.arrange(texts) if not ledger.check else []
    systemd.read_again(units(wish, env), env)
    return bool(moved)


def set_up(ledger: Ledger, wish: Asked, collector: Dict[str, str], start: bool, env: Dict[str, str]) -> bool:
    """Set up this exporter and remove our other ones; return whether anything changed."""
    check = ledger.check
    for failure in obstacles(wish, env):
        raise failure
    if check and not _is_installed(wish, env):
        return True  # its package comes in the transaction, which a check skips
    wanted, texts = units(wish, env), wanted_files(wish, env, collector)
    gone = [unit for unit in ledger.state["services"] if unit in MONITORING_UNITS and unit not in wanted]
    changed = bool(gone and services.take_down(ledger, env, gone))
    folder = folder_of_unit()
    if folder and folder != wish.folder:
        changed = forget(folder, ledger) or changed
    changed = bool(ledger.arrange(texts, is_ours)) or changed
    if check:
        return changed
    systemd.read_again(wanted, env)
    if wish.kind == "textfile":
        ledger.make_folder(wish.folder)
    again = [followers.Restart(unit, _files_of(unit, texts), env) for unit in wanted if start]
    stale = followers.settle(again, check)
    up = bool(wanted) and services.bring_up(ledger, wanted, start, env)
    if start and wanted:
        _prove(wish, env)
    return bool(changed or stale or up)


def _is_installed(wish: Asked, env: Dict[str, str]) -> bool:
    programs = {"dcgm": "dcgm-exporter", "nvidia_gpu_exporter": "nvidia_gpu_exporter"}
    if wish.kind in programs:
        return process.which(programs[wish.kind], env) is not None
    return not wish.listen or any(found["exists"] for found in services.look(NODE, env).values())


def _files_of(unit: str, texts: Dict[str, Tuple[str, int]]) -> List[str]:
    shared = {WEB} | ({COUNTERS} if unit == DCGM else set())
    mine = {_drop_in(unit), os.path.join(SYSTEMD, unit)} | (shared if not unit.endswith(".timer") else set())
    return sorted(mine & set(texts))


def _prove(wish: Asked, env: Dict[str, str]) -> None:
    """Fail unless the exporter answers and our collector now writes its file."""
    if wish.kind == "textfile":
        path = os.path.join(wish.folder, TEXTFILE)
        earlier = files.changed_at(path)
        process.output(["systemctl", "start", LOOK], env, 60)
        if not os.path.exists(path) or files.changed_at(path) == earlier:
            raise _silent(LOOK, "it has not written " + path, env)
    if not wish.listen:
        return
    unit = {"dcgm": DCGM, "nvidia_gpu_exporter": SMI}.get(wish.kind) or units(wish, env)[-1]
    deadline = time.monotonic() + _PATIENCE
    while True:
        answer = scrape(wish.listen, wish.secured, 5)
        if answer["status"] in (200, 401):
            return
        if time.monotonic() > deadline:
            raise _silent(unit, "it does not answer on {}: {}".format(wish.listen, answer["error"]), env)
        time.sleep(0.3)


def _silent(unit: str, what: str, env: Dict[str, str]) -> HostFailure:
    return HostFailure("GS-459", f"{unit}: {what}", note=systemd.last_words(unit, env), hint="journalctl -u " + unit)


# --- removal -------------------------------------------------------------------------------------------------------


def recorded(ledger: Ledger) -> bool:
    """Return whether the unit that writes the textfile is ours."""
    return os.path.join(SYSTEMD, LOOK) in ledger.state["files"]


def folder_of_unit() -> str:
    """Return the folder into which the installed unit writes, empty without one."""
    text = files.read_text(os.path.join(SYSTEMD, LOOK)) or ""
    found = re.search(r"--folder (\S+)$", text, re.MULTILINE)
    return found.group(1) if found else ""


def forget(folder: str, ledger: Ledger) -> bool:
    """Delete the textfile: nobody would update it, and its last values would be exported for ever."""
    there = [name for name in (TEXTFILE, TEXTFILE + ".new") if folder and os.path.exists(os.path.join(folder, name))]
    if not ledger.check:
        for name in there:
            os.unlink(os.path.join(folder, name))
        ledger.drop_folder(folder)
    return bool(there)
