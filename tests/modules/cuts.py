"""A generator of cuts: every call that writes or runs something is a point at which a command can be cut or fail.

The host is one in memory with a folder as its file system; packages, units, boot arguments, alternatives and GPUs are
kept in it, and survive a cut as they would on a real one. What the process does after its cut is nothing: every further
write of it is refused, as that of a process that is dead.
"""

import copy
import errno
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import (
    alternatives,
    apt,
    cdi,
    files,
    lifecycle,
    mig_kept,
    monitoring,
    owner,
    process,
    services,
    systemd,
    transaction,
    venv,
)
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import driver
from ansible_collections.gpusetup.stack.plugins.modules import gpu_nouveau

from tests.modules.deb_host import DebHost
from tests.modules.stand_ins import below, replace, write
from tests.modules.transactions import Job, asked

GPU = "0000:06:00.0"
NO_ANSWER = {"hangs": (process.TIMED_OUT, "", "no answer"), "refuses": (1, "", "it cannot be read")}
WAYS = ("before", "after", "full", "read-only", "fails", *NO_ANSWER)
COMMANDS = ("apply", "update", "rollback", "remove")
_WRITES = ("rename", "unlink", "symlink", "chmod", "chown", "mkdir", "rmdir", "setxattr")
_UNITS = "etc/systemd/system"
_PACKAGED = ("theirs.service", "driver.service", "nvidia-dcgm.service", "nvidia-imex.service", "nvidia-gridd.service")
_READS = {"show", "is-active", "--info=ALL", "--display", "--get-option"}
_CHOICES = "".join(f"/usr/local/cuda-{release} - priority 1\n" for release in ("11.8", "12.8", "13.0"))
_ERRORS = {"full": errno.ENOSPC, "read-only": errno.EROFS}
_FIRST = {"driver": "1", "unit": "first", "mig": 7, "cuda": "12.8", "requirements": ["numpy==1"]}
_SECOND = {"driver": "2", "unit": "second", "mig": 2, "cuda": "13.0", "requirements": ["numpy==2"]}


class Cut(BaseException):
    """The process is gone: nothing catches it."""


@dataclass
class Memory:
    """What of the host is no file."""

    packages: DebHost = field(default_factory=lambda: DebHost({"libc": "1"}, {"driver": ["1", "2"], "cuda": ["12"]}))
    enabled: set[str] = field(default_factory=set)
    active: set[str] = field(default_factory=lambda: {"theirs.service", "nvidia-dcgm.service"})
    arguments: dict[str, str] = field(default_factory=lambda: {"6.1": "quiet", "6.2": "quiet"})
    chosen: str = "/usr/local/cuda-11.8"  # by hand
    gpu: dict[str, Any] = field(default_factory=lambda: {"enabled": False, "instances": []})
    read: dict[str, bytes] = field(default_factory=dict)  # units' files as systemd read them
    since: dict[str, float] = field(default_factory=dict)  # when a unit started
    more: dict[str, Any] = field(default_factory=dict)


class Host:
    """A host, and the commands that change it. `point` is the call at which `way` happens; 0 is none."""

    what = ""
    """What of a host is changed here, where it is not the usual."""
    manager = "apt"
    lacks = ("pbl",)
    """Programs that are not there."""
    wishes: tuple[dict[str, Any], dict[str, Any]] = (_FIRST, _SECOND)

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.state = root, str(root / "var/lib/gpusetup")
        self.memory = Memory()
        own = {"systemctl": self._systemctl, "grubby": self._grubby, "update-alternatives": self._alternatives}
        self.programs: dict[str, Callable[[list[str]], tuple[int, str, str]]] = own
        self.seen = self.point = 0
        self.way = ""
        self.armed = self.dead = False
        self.calls: list[str] = []
        self._stand_in(monkeypatch)
        self._files_of_others()

    # points

    def _at_point(self, what: str) -> str:
        """Count a call; return what happens to it."""
        if self.dead:
            raise Cut
        if not self.armed:
            return ""
        self.seen += 1
        self.calls.append(what)
        return self.way if self.seen == self.point else ""

    def _cut(self) -> None:
        self.dead = True
        raise Cut

    def _written(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any, **named: Any) -> Any:
            way = self._at_point(f"{name} {words[0]}")
            if way in _ERRORS:
                raise OSError(_ERRORS[way], os.strerror(_ERRORS[way]), str(words[0]))
            if way == "before":
                self._cut()
            done = real(*words, **named)
            if way == "after":
                self._cut()
            return done

        return call

    def _ran(self, argv: Sequence[str], act: Callable[[], Any], failed: Any) -> Any:
        way = self._at_point(" ".join(argv))
        if way == "before":
            self._cut()
        if way == "fails":
            return failed
        done = act()
        if way == "after":
            self._cut()
        return done

    def _done(self, argv: Sequence[str], act: Callable[[], Any], failure: HostFailure) -> None:
        if self._ran(argv, act, failure) is failure:
            raise failure

    # what runs

    def output(self, argv: Sequence[str], env: Any, _seconds: Any = 0, text: str | None = None) -> tuple[int, str, str]:
        words = list(argv)
        if words[0] in self.programs:
            reads = words[1] in _READS or not set(words[1:]) - {"show", "-q"}
            act = partial(self.programs[words[0]], words[1:])
        elif words[0] in {"ldconfig", "journalctl"}:
            return 0, "", ""
        else:
            reads, packages = not _changes_packages(words), self.memory.packages
            act = partial(packages.output, words, env, text=text)
        if not reads:
            return self._ran(words, act, (2, "", "it failed"))
        return NO_ANSWER.get(self._at_point(f"look {words[0]}")) or act()

    def stream(self, argv: Sequence[str], env: Any, *more: Any, **named: Any) -> tuple[int, list[str]]:
        if argv[0] in self.programs:
            code, out, _error = self.output(argv, env)
            return code, [out]
        packages = self.memory.packages
        return self._ran(argv, lambda: packages.stream(argv, env, *more, **named), (100, ["E: it failed"]))

    def _systemctl(self, words: list[str]) -> tuple[int, str, str]:
        verb, now, units = words[0], "--now" in words, [word for word in words[1:] if not word.startswith("--")]
        memory = self.memory
        if verb == "daemon-reload":
            memory.read = {path.name: path.read_bytes() for path in (self.root / _UNITS).glob("*.*") if path.is_file()}
        for unit in units if verb not in _READS else ():
            if verb in {"enable", "disable"}:
                (memory.enabled.add if verb == "enable" else memory.enabled.discard)(unit)
            starts = verb in {"enable", "start", "restart"}
            if now or verb in {"start", "stop", "restart"}:
                if starts and (verb == "restart" or unit not in memory.active):
                    memory.since[unit] = time.time()
                (memory.active.add if starts else memory.active.discard)(unit)
        code = 0 if verb != "is-active" or memory.active.issuperset(units) else 3
        return code, "\n".join(map(self._shown, units)) if verb == "show" else "", ""

    def _shown(self, unit: str) -> str:
        memory, known = self.memory, unit in {*_PACKAGED, *self.memory.read}
        began = memory.since.get(unit, 1.0) - time.time() + time.monotonic()
        return (
            f"Id={unit}\nLoadState={'loaded' if known else 'not-found'}\n"
            f"NeedDaemonReload={'yes' if unit in self._stale() else 'no'}\n"
            f"ActiveState={'active' if unit in memory.active else 'inactive'}\n"
            f"UnitFileState={'enabled' if unit in memory.enabled else 'disabled'}\n"
            f"ActiveEnterTimestampMonotonic={began * 1e6:.0f}\n"
        )

    def _stale(self) -> list[str]:
        """Return the units whose files are no longer as systemd read them."""
        there = {name: _text(self.root / _UNITS / name) for name in self.memory.read}
        return sorted(name for name, text in self.memory.read.items() if text != there[name])

    def _grubby(self, words: list[str]) -> tuple[int, str, str]:
        for option in words:
            verb, _equals, argument = option.partition("=")
            for kernel, there in self.memory.arguments.items():
                rest = [word for word in there.split() if word.partition("=")[0] != argument.partition("=")[0]]
                if verb in {"--args", "--remove-args"}:
                    self.memory.arguments[kernel] = " ".join(rest + [argument] * (verb == "--args"))
        return 0, "".join(f'args="{there}"\n' for there in self.memory.arguments.values()), ""

    def _alternatives(self, words: list[str]) -> tuple[int, str, str]:
        if words[0] != "--display":
            self.memory.chosen = words[2] if words[0] == "--set" else "auto"
        auto = self.memory.chosen == "auto"
        path = "/usr/local/cuda-13.0" if auto else self.memory.chosen
        return 0, f"cuda - {'auto' if auto else 'manual'} mode\n  link currently points to {path}\n{_CHOICES}", ""

    def _lay(self, wishes: Any, env: Any, *, check: bool = False, record: Any = None) -> dict[str, Any]:
        found, wanted = copy.deepcopy(self.memory.gpu), copy.deepcopy(wishes[GPU])
        changed = found != wanted
        if changed and not check:
            failure = HostFailure("GS-437", "it cannot be cut")
            with systemd.Stopped(driver.WATCHERS, env, record):
                self._done(["nvidia-smi", "mig"], lambda: setattr(self.memory, "gpu", wanted), failure)
        return {"changed": changed, "found": {GPU: found}, "made": {GPU: wanted}, "reboot": []}

    # the host

    def _stand_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in _WRITES:
            monkeypatch.setattr(os, name, self._written(name, getattr(os, name)))
        monkeypatch.setattr(os, "fsync", lambda _handle: None)
        which = lambda name, _env: None if name in self.lacks else "/usr/bin/" + name  # noqa: E731
        replace(monkeypatch, process, output=self.output, stream=self.stream, which=which)
        replace(monkeypatch, gpu_nouveau.Nouveau, _has_menu=_gives(False))
        replace(monkeypatch, transaction.package_manager, lock_holder=_gives(None))
        replace(monkeypatch, transaction.time, sleep=_gives(None))
        replace(monkeypatch, transaction.dkms, build_error=_gives(None), mend=_gives(None), missing=_gives(None))
        replace(monkeypatch, apt, UNATTENDED_FILE=str(self.root / "etc/apt/apt.conf.d/52gpusetup"))
        replace(monkeypatch, owner, take=_gives(""), release=_gives(None))
        replace(monkeypatch, lifecycle, deviations=self._deviations)
        replace(monkeypatch, lifecycle.lost, reason=_gives(""))
        replace(monkeypatch, lifecycle.jobs, refuse_while_running=_gives(None))
        replace(monkeypatch, lifecycle.driver, reboot_reasons=lambda *_words: [])
        replace(monkeypatch, lifecycle.fetched, sweep=_gives(None))
        replace(monkeypatch, lifecycle.Machine, facts=_gives({}), kernels=_gives({"running": "6.1", "next": "6.1"}))
        replace(monkeypatch, cdi, forget=lambda *_words: [], describe_again=_gives(False))
        replace(monkeypatch, mig_kept.mig, lay=self._lay)
        replace(monkeypatch, mig_kept.probe, look=_gives([{}]))
        kept = "LAYOUT FOLDER UNIT MANAGER_CONFIG MANAGER_DROP_INS"
        below(self.root, monkeypatch, {mig_kept: kept, systemd: "FOLDER", monitoring: "SYSTEMD"})
        replace(monkeypatch, systemd, RUNNING=str(self.root))
        replace(monkeypatch, mig_kept.params, program=_gives({"mig_at_boot.py": "pass\n"}))
        replace(monkeypatch, venv.Environment, _build=_build)
        replace(monkeypatch, venv.environment, problem=_problem)

    def _deviations(self, *_words: Any) -> list[dict[str, Any]]:
        return list(Ledger(self.state).state["open"].values())

    def _files_of_others(self) -> None:
        write(self.root, {"etc/apt/sources.list.d/theirs.list": "deb x\n", "usr/local/cuda-12.8/version": ""})
        write(self.root, {"etc/docker/daemon.json": "{}\n"}, 0o640)
        for folder in ("var/lib", "opt", "etc/systemd/system", "etc/modprobe.d"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        (self.root / "usr/local/cuda").symlink_to("cuda-11.8")

    # commands

    def apply(self, wish: dict[str, Any]) -> None:
        """Do what a play does."""
        if not lifecycle.Lifecycle(self._request("begin", wish)).begin()["converged"]:
            self.work(wish)
            lifecycle.Lifecycle(self._request("finish", wish)).finish()

    def work(self, wish: dict[str, Any]) -> None:
        """Do what the roles do, in their order."""
        env, etc = process.environment(), self.root / "etc"
        ledger = Ledger(self.state)
        ledger.write(str(etc / "apt/sources.list.d/ours.sources"), f"# Written by gpusetup\n{wish['driver']}\n")
        ledger.delete(str(etc / "apt/sources.list.d/theirs.list"))
        self.run_packages(("driver", wish["driver"]), ("cuda", "12"), hold=["driver"], auto_upgrades_block=True)
        ledger = Ledger(self.state)
        ledger.write(str(etc / "modprobe.d/gpusetup-nouveau.conf"), "blacklist nouveau\n")
        self._nouveau("present")._argument(True)
        ledger = Ledger(self.state)
        ledger.write(str(etc / "systemd/system/ours.service"), f"# Written by gpusetup\n{wish['unit']}\n")
        services.bring_up(ledger, ["ours", "driver", "theirs"], True, env)
        ledger.write(str(etc / "docker/daemon.json"), json.dumps({"runtimes": {"nvidia": wish["driver"]}}))
        ledger.link(str(self.root / "usr/local/cuda"), "cuda-" + wish["cuda"])
        ledger.change(alternatives.Alternative("cuda", env), "/usr/local/cuda-" + wish["cuda"])
        layout = {"enabled": True, "instances": [{"profile": "1g", "compute": ["1g"], "count": wish["mig"]}]}
        mig_kept.lay(ledger, {GPU: layout}, [GPU], env, check=False, program="")
        made = venv.Environment(
            {"path": str(self.root / "opt/gpusetup"), "requirements": wish["requirements"], "interpreter": "python3",
             "find_links": "", "network": {}}
        )  # fmt: skip
        ledger.change(venv.Link(made.path, made), os.path.basename(made.folder))

    def remove(self, _wish: dict[str, Any]) -> None:
        """Do what the removal's tasks do."""
        state = lifecycle.Lifecycle(self._request("removal", {}))
        told = state.removal()
        if not told["known"]:
            return
        lifecycle.Lifecycle(self._request("stop", {})).stop_services()
        back = [(item["name"], item["version"]) for item in told["restore"]]
        if told["remove"] or back or told["holds"]:
            self.run_packages(*back, optional=True, remove=told["remove"], may_remove=told["remove"])
        self._nouveau("absent")._argument(False)
        answer = lifecycle.Lifecycle(self._request("clean", {})).clean()
        if answer["ours"]:
            raise HostFailure("GS-499", f"left: {answer['ours']}")

    def _request(self, mode: str, wish: dict[str, Any]) -> dict[str, Any]:
        python = {"path": str(self.root / "opt/gpusetup"), "packages": {}}
        return {
            "mode": mode, "state_dir": self.state, "simulated_root": "", "manager": self.manager, "network": {}, "id": "",
            "wanted": wish, "lock": {}, "keep": 5, "remove": [], "driver_version": "", "driver_module": "",
            "kernels": [], "pending": [], "python": python if wish else None, "environments": [],
        }  # fmt: skip

    def _nouveau(self, state: str) -> gpu_nouveau.Nouveau:
        return gpu_nouveau.Nouveau({"state": state, "state_dir": self.state, "simulated_root": "", "kernels": []})

    def run_packages(self, *wanted: tuple[str, str], **params: Any) -> None:
        request = asked(self.state, self.manager, *wanted, **{"auto_upgrades_block": True, **params})
        transaction.Transaction(self.job(), request).run()

    def job(self) -> Job:
        folder = self.root / "var/job"
        folder.mkdir(parents=True, exist_ok=True)
        return Job(str(folder))

    def run(self, command: str, point: int = 0, way: str = "") -> BaseException | None:
        """Run a command, undisturbed or with something happening at one point; return what ended it."""
        first, second = self.wishes
        wish = copy.deepcopy({"apply": first, "update": second, "rollback": first, "remove": {}}[command])
        self.seen, self.point, self.way, self.calls = 0, point, way, []
        self.armed, self.dead = True, False
        try:
            (self.remove if command == "remove" else self.apply)(wish)
        except (Cut, HostFailure, OSError) as ended:
            return ended
        finally:
            self.armed = self.dead = False
        return None

    # what is compared

    def snapshot(self) -> dict[str, Any]:
        """Return all that a command leaves, but for times."""
        memory, tree = self.memory, {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            if not name.startswith("var/"):  # the record has its own line, a job's folder is no part of the host
                tree[name] = path.readlink() if path.is_symlink() else (path.stat().st_mode, _text(path))
        state = Ledger(self.state).state if Path(self.state, "state.json").exists() else {}
        kept = {
            name: {path: (entry["original"], entry["sha256"], entry["folders"]) for path, entry in part.items()}
            if name == "files" else part
            for name, part in state.items() if name not in {"apply", "expect", "lost", "counted"}
        }  # fmt: skip
        return {
            "tree": tree, "record": copy.deepcopy(kept), "installed": dict(memory.packages.installed),
            "held": set(memory.packages.seen[1]), "enabled": set(memory.enabled), "active": set(memory.active),
            "arguments": dict(memory.arguments), "chosen": memory.chosen, "gpu": copy.deepcopy(memory.gpu),
            "stale": self._stale(), "more": copy.deepcopy(memory.more),
            "finished": bool(state.get("apply", {}).get("finished")), "digest": state.get("expect", {}).get("digest"),
        }  # fmt: skip

    def keep(self, place: Path) -> Memory:
        shutil.copytree(self.root, place, symlinks=True)
        return copy.deepcopy(self.memory)

    def back(self, place: Path, memory: Memory) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(place, self.root, symlinks=True)
        self.memory = copy.deepcopy(memory)


def _gives(answer: Any) -> Callable[..., Any]:
    return lambda *_words, **_named: answer


def _changes_packages(words: list[str]) -> bool:
    lock = "versionlock" in words and "--help" not in words
    return lock or any(word in words for word in ("--set-selections", "module", "addlock", "removelock"))


def _build(environment: venv.Environment) -> None:
    if os.path.exists(environment.folder):
        shutil.rmtree(environment.folder)
    os.mkdir(environment.folder)
    files.write_atomically(os.path.join(environment.folder, "done"), "", 0o644)


def _problem(entry: dict[str, Any]) -> str | None:
    return None if os.path.exists(os.path.join(entry["path"], "done")) else "it is not whole"


def _text(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


@dataclass(frozen=True)
class Point:
    command: str
    number: int
    way: str
    what: str


class Points:
    """All points of all commands, and what becomes of a host at each."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Host] = Host) -> None:
        self.host = kind(folder / "host", monkeypatch)
        self.untouched = self.host.snapshot()
        self.starts: dict[str, tuple[Path, Memory]] = {}
        self.ends: dict[str, dict[str, Any]] = {}
        self.all: list[Point] = []
        for command in COMMANDS:
            place = folder / ("before-" + command)
            self.starts[command] = (place, self.host.keep(place))
            ended = self.host.run(command)
            assert ended is None, (command, ended)
            self.ends[command] = self.host.snapshot()
            for number, what in enumerate(self.host.calls, 1):
                ways = [way for way in WAYS if _can(way, what)]
                self.all += [Point(command, number, way, what) for way in ways]

    def try_one(self, point: Point) -> Iterator[str]:
        """Yield what is wrong after a command was cut at a point, run again, and taken back."""
        self.host.back(*self.starts[point.command])
        self.host.run(point.command, point.number, point.way)
        place = self.starts[point.command][0].with_name("cut")
        memory = self.host.keep(place)
        ended = self.host.run(point.command)
        if ended is not None:
            yield f"the same command again: {ended!r}"
        yield from differences(self.ends[point.command], self.host.snapshot(), "again: ")
        self.host.back(place, memory)
        if point.command == "remove":
            self.host.run("apply")
            found = differences(self.ends["apply"], self.host.snapshot(), "applied: ")
            yield from (text for text in found if "opt/.gpusetup-" not in text and "environments" not in text)
            self.host.back(place, memory)
        ended = self.host.run("remove")
        if ended is not None:
            yield f"removal: {ended!r}"
        yield from differences(self.untouched, self.host.snapshot(), "removed: ")
        yield from (str(left) for left in Path(self.host.state).glob("*") if left.name != "lock")
        shutil.rmtree(place)


def _can(way: str, what: str) -> bool:
    verb = what.split(" ", 1)[0]
    if verb == "look" or way in NO_ANSWER:
        return verb == "look" and way in NO_ANSWER
    return way in {"before", "after"} or (way == "fails") != (verb in _WRITES)


def differences(wanted: Any, found: Any, where: str) -> Iterator[str]:
    """Yield where two snapshots differ."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for name in sorted(set(wanted) | set(found)):
            yield from differences(wanted.get(name), found.get(name), f"{where}{name} ")
    elif wanted != found:
        yield f"{where}is {found!r}, not {wanted!r}"[:400]
