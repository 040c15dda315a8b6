"""The Python environment: a new folder for each set of requirements, put in place by switching a symbolic link."""

import json
import os
import re
import shutil
from typing import Any, Callable, Dict, List, Optional, Sequence

from ..gpu_judge.versions import pins, python_name
from ..gpu_probe import environment
from . import alternatives, files, installer, process
from .failure import FULL, HostFailure
from .journal import Journal, State

_LIST = (
    "import importlib.metadata as m, json; "
    "print(json.dumps({(d.metadata['Name'] or '').lower(): d.version for d in m.distributions()}))"
)


def version_folder(path: str, request: Dict[str, Any]) -> str:
    """Return the folder of the environment for these requirements, next to the link to it."""
    key = files.digest(json.dumps([request["requirements"], request["interpreter"], request["find_links"]]))[:12]
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}-{key}")


def folders_of(path: str) -> List[str]:
    """Return the folders of an environment, present and earlier; not those of another one in the same place."""
    folder = os.path.dirname(path)
    mine = re.compile(r"\." + re.escape(os.path.basename(path)) + "-[0-9a-f]{12}")
    there = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [os.path.join(folder, name) for name in there if mine.fullmatch(name)]


class Link(alternatives.Link):
    """The link to an environment; its removal deletes the environment and the remains of interrupted ones."""

    kind = "Python environment"
    section = "environments"
    stays = True
    goes_back = False
    unchosen = None

    def __init__(self, path: str, environment: Optional["Environment"] = None) -> None:
        super().__init__(path)
        self.environment = environment

    def look(self) -> Optional[str]:
        """Return its target; "" if only folders of ours are left."""
        if os.path.islink(self.name):
            return os.readlink(self.name)
        return "" if folders_of(self.name) else None

    def fits(self, now: Optional[str], wanted: Any) -> bool:
        """Return whether the environment is complete, or the link as wanted."""
        if wanted and self.environment is not None:
            return self.environment.ready()
        return bool(now == wanted)

    def make(self, wanted: Any) -> None:
        if wanted and self.environment is not None:
            self.environment.make()
            return
        if os.path.islink(self.name):
            os.unlink(self.name)
        for folder in folders_of(self.name):
            shutil.rmtree(folder)
        if wanted:
            files.link_atomically(self.name, wanted)

    def aim(self, wanted: Any) -> str:
        return "be made" if wanted else "go"

    def failure(self, now: Any, wanted: Any) -> HostFailure:
        said = f"it is {now or 'nothing'}, and was to become {wanted or 'nothing'}"
        return HostFailure("GS-486", "the Python environment could not be made", self.name, said)

    def note(self, state: State, before: Any, wanted: Any) -> None:
        """Record the earlier target, unless it was a folder of ours."""
        ours = not before or os.path.basename(before) in map(os.path.basename, folders_of(self.name))
        super().note(state, None if ours else before, wanted)


def remove(ledger: Journal, path: str) -> bool:
    """Delete an environment; return whether it existed."""
    link = Link(path)
    link.note(ledger.state, link.look(), None)  # the record of it may be lost
    return ledger.undo(link)


def compare(interpreter: str, wanted: Dict[str, str], env: Dict[str, str]) -> List[str]:
    """Return as texts which wanted pins an interpreter lacks."""
    code, text, error = process.output([interpreter, "-c", _LIST], env, 60)
    listed = None if code else text.rstrip().rpartition("\n")[2]  # a sitecustomize may print something before it
    if not (listed or "").startswith("{"):
        raise HostFailure("GS-485", "the Python to adopt does not answer", interpreter, (error or text).strip()[-500:])
    there = {python_name(name): version for name, version in json.loads(listed or "").items()}
    lacking = []
    for name, version in sorted(wanted.items()):
        if there.get(name) != version and (there.get(name) or "").split("+")[0] != version:
            lacking.append("{} {} (is {})".format(name, version, there.get(name) or "missing"))
    return lacking


class Environment:
    """An environment to be made."""

    def __init__(
        self,
        request: Dict[str, Any],
        tell: Optional[Callable[..., None]] = None,
        log: Optional[Callable[[str], None]] = None,
    ) -> None:
        self.request = request
        self.path: str = request["path"]
        self.folder = version_folder(self.path, request)
        self.env = process.environment(request["network"])
        self.tell = tell or (lambda *_words: None)
        self.log = log

    def expected(self) -> Dict[str, Any]:
        """Return what `environment.problem` compares with."""
        return {"path": self.path, "packages": pins(self.request["requirements"])}

    def ready(self) -> bool:
        """Return whether the link points to a complete environment for these requirements."""
        return (
            os.path.islink(self.path)
            and os.path.realpath(self.path) == os.path.realpath(self.folder)
            and environment.problem(self.expected()) is None
        )

    def make(self) -> Optional[str]:
        """Build the environment in its folder, then switch the link; return the link's earlier target."""
        if os.path.lexists(self.path) and not os.path.islink(self.path):
            raise HostFailure(
                "GS-484",
                f"{self.path} exists and was not made by gpusetup",
                hint="set gpu_python_path to another place",
            )
        if environment.problem({"path": self.folder, "packages": pins(self.request["requirements"])}) is not None:
            self._build()
        before = os.readlink(self.path) if os.path.islink(self.path) else None
        files.link_atomically(self.path, os.path.basename(self.folder))
        self._drop_older(keep=(os.path.basename(self.folder), before))
        return before

    def _build(self) -> None:
        if os.path.exists(self.folder):
            shutil.rmtree(self.folder)
        self.tell("python", "making the environment")
        python = os.path.join(self.folder, "bin", "python")
        try:
            os.makedirs(self.folder)
            os.chmod(self.folder, 0o755)  # noqa: S103 - everybody may run programs in it
            # Gigabytes are unpacked here; /tmp is in memory on many systems.
            self.env = dict(self.env, TMPDIR=os.path.join(self.folder, "tmp"))
            os.mkdir(self.env["TMPDIR"], 0o700)
            links = installer.page_of(self.request, self.env["TMPDIR"], self.env)
            self._run(
                [self.request["interpreter"], "-m", "venv", self.folder],
                "install the distribution's venv package (python3-venv)",
            )
            path = os.path.join(self.folder, "requirements.txt")
            files.write_atomically(path, installer.text_of(self.request["requirements"]), 0o600)
            page = links != self.request["find_links"]
            chosen = installer.choose(self.request.get("installer") or "pip", python, self.env, page=page)
            for argv in installer.steps(chosen, python, self.folder, dict(self.request, find_links=links)):
                self._run(argv, "check the pins, the index and the proxy; gpusetup lock --pip shows them")
            lacking = compare(python, pins(self.request["requirements"]), self.env)
            if lacking:
                text = "pip installed other versions than requested"
                raise HostFailure("GS-485", text, "", "; ".join(lacking))  # noqa: TRY301 - half of it goes as well
            installer.write_lock(chosen, self.folder)
            shutil.rmtree(self.env["TMPDIR"])
            mark = {"packages": pins(self.request["requirements"]), "listing": environment.listing(self.folder)}
            os.sync()  # a power cut must not leave the mark without the packages
            files.write_json(os.path.join(self.folder, environment.MARK), mark, 0o644)
        except (HostFailure, OSError):
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def _run(self, argv: Sequence[str], hint: str) -> None:
        code, tail = process.stream(argv, self.env, self._line, log=self.log)
        if code:
            telling = [line for line in tail if line.startswith(("ERROR", "Error"))] or tail[-4:]
            away = [line for line in tail if "connection broken by" in line][-1:]
            if away:
                telling = away + telling
                hint = "check the host's network and gpusetup_proxy, or name a mirror in its /etc/pip.conf"
            if FULL.search("\n".join(telling)):
                hint = f"free some space for {self.path}; installing CuPy with its CUDA libraries takes about 8 GB"
            raise HostFailure(
                "GS-486", "the Python environment could not be made", self.path, " | ".join(telling)[-900:], hint
            )

    def _line(self, line: str) -> None:
        match = re.match(
            r"^\s*(Collecting|Downloading|Using cached|Installing collected packages|Building wheel)\b:?\s*(\S*)(.*)$",
            line,
        )
        if match:
            name = match.group(2).rsplit("/", 1)[-1]
            size = match.group(3) if "(" in match.group(3) else ""
            self.tell("python", f"{match.group(1)} {name}{size}"[:120].strip())

    def _drop_older(self, keep: Sequence[Optional[str]]) -> None:
        for folder in folders_of(self.path):
            if os.path.basename(folder) not in keep:
                shutil.rmtree(folder, ignore_errors=True)
