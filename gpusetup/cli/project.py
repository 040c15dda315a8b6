"""Read a project's requirements: the pins in its files, and `[tool.gpusetup]` in its pyproject.toml."""

import argparse
import os
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from packaging.markers import InvalidMarker, Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from gpusetup.bootstrap.wheels import target_environment
from gpusetup.cli.grammar import near
from gpusetup.cli.options import ARCHES
from gpusetup.cli.output import warn
from gpusetup.components.parsing import choice, texts, wrong, yes
from gpusetup.errors import BadInputError
from gpusetup.matrix.gpus import cpu_of, instance_named
from gpusetup.matrix.load import Matrix
from gpusetup.model.request import PACKAGES, Request
from gpusetup.model.request import Requirement as Requested
from gpusetup.plan.settings import read_level
from gpusetup.resolve.packages import what_packages_need
from gpusetup.resolve.requests import gpus_of, parse_requirement, parse_requirements
from gpusetup.rollout.options import read_policy, read_toml

PYPROJECT = "pyproject.toml"
_LARGEST = 16 << 20
_FRAMEWORKS = ("torch", "tensorflow", "jax")
_CUPY = re.compile(r"cupy(?:-cuda(\d+)x)?")
_INDEX = re.compile(r"download\.pytorch\.org/whl/(?:\w+/)?(cu\d+|cpu)\b")
_WHEEL = re.compile(r"(?:[^@\s]*/)?([\w.]+)-[^/\s]+\.whl\b")
_NAME = re.compile(r"(?:[^\s:]+::)?([\w.-]+)")
_CONDA = re.compile(_NAME.pattern + r"\s*(={0,2}[\d.*]+|[<>!~][^\s|]*)?(?:[=\s][^|]*)?")
_POETRY = re.compile(r"\^\s*((?:0\.)*)(\d+)|~\s*((?:\d+\.(?=\d))?)(\d+)")
_OF_CONDA = {
    "pytorch": "torch", "pytorch-gpu": "torch", "tensorflow": "tensorflow", "tensorflow-gpu": "tensorflow",
    "jax": "jax", "cupy": "cupy", "cuda-version": "cuda", "cudatoolkit": "cuda", "cuda-toolkit": "cuda",
    "pytorch-cuda": "cu", "python": "python",
}  # fmt: skip


def take_project(arguments: argparse.Namespace, matrix: Matrix) -> None:
    """Replace the project file in `--from` by its requirements; the command line takes precedence."""
    path, arguments.facts = Path(arguments.facts), None
    if path.is_file() and path.stat().st_size > _LARGEST:
        raise BadInputError(
            "GS-131", f"{path} is larger than {_LARGEST >> 20} MB: it lists no packages", path=str(path)
        )
    level = _take_machine(arguments, path.with_name(PYPROJECT), required=path.name == PYPROJECT)
    said = parse_requirements([*arguments.requirements, *([f"python=={arguments.python}"] if arguments.python else [])])
    named = level.get("versions", {})
    without = {wish.component for wish in said} | {name for name, wish in named.items() if wish is None}
    gpus = gpus_of(arguments.gpu)[0] or ((instance_named(matrix, arguments.on).gpu,) if arguments.on else ())
    arch = arguments.arch or cpu_of(matrix, gpus) or ARCHES[0]
    pins = _Pins(path, arch, arguments.python, matrix, without)
    own = [*pins.wishes(), *(str(wish) for wish in named.values() if wish), *level.get("components", ())]
    found = parse_requirements([*own, *pins.narrowing((*said, *parse_requirements(own)))])
    kept = [str(wish) for wish in found if wish.component not in without]
    if not {text for text in (*kept, *map(str, said)) if not text.startswith("python")}:
        raise BadInputError("GS-132", f"{path} names no package that uses a GPU", path=str(path))
    arguments.requirements = [*arguments.requirements, *kept]


def _take_machine(arguments: argparse.Namespace, path: Path, *, required: bool) -> dict[str, Any]:
    """Copy the policy and machine of `[tool.gpusetup]` into the arguments; return its versions."""
    tools = read_toml(path).get("tool", {}) if required or path.is_file() else {}
    table = tools.get("gpusetup", {}) if isinstance(tools, dict) else {}
    where = f"{path} [tool.gpusetup]"
    if not isinstance(table, dict):
        raise wrong(where, table, 'a table: [tool.gpusetup], then torch = "2.9.*"')
    arguments.policy = read_policy(table.pop("policy", None), path)
    for name in table.keys() & _MACHINE.keys():
        kind, read = _MACHINE[name]
        value = read(table[name], f"{where}: {name}")
        setattr(arguments, kind, getattr(arguments, kind) or value)
    level = read_level({name: value for name, value in table.items() if name not in _MACHINE}, where, also=_MACHINE)
    for name in level.keys() - {"versions", "components", "native", "forward"}:
        close = near(name, _MACHINE)
        raise BadInputError(
            "GS-311", f"{where}: {name} is a setting of hosts, not of a project", path=f"{where}: {name}",
            hint=f"did you mean {close}?" if close else "move it to gpusetup.toml beside the inventory",
        )  # fmt: skip
    for name in ("native", "forward"):
        setattr(arguments, name, getattr(arguments, name) or level.get(name, False))
    return level


def _word(value: Any, label: str) -> str:
    if not isinstance(value, str) or not value:
        raise wrong(label, value, 'it in quotes: "ubuntu24.04"')
    return value


def _names(value: Any, label: str) -> list[str]:
    return [value] if isinstance(value, str) else list(texts(value, label))


_MACHINE = {
    "gpu": ("gpu", _names),
    "os": ("os", _word),
    "arch": ("arch", choice(*ARCHES)),
    "installed_driver": ("driver", _word),
    "allow_builds": ("allow_builds", yes),
}
"""A key of `[tool.gpusetup]` → its argument, and the function that reads it."""


class _Pins:
    """Reads a project file's requirements as words of the command line."""

    def __init__(self, path: Path, arch: str, python: str | None, matrix: Matrix, without: set[str]) -> None:
        self.path, self.arch, self.python, self.matrix, self.without = path, arch, python, matrix, without
        self.seen: set[tuple[str, bool]] = set()
        self.constraints: list[str] = []
        self.builds: set[str] = set()

    def wishes(self) -> Iterator[str]:
        """Return an iterator over all requirements."""
        if self.path.suffix in {".yml", ".yaml"}:
            return self._conda()
        if self.path.suffix not in {".toml", ".lock"}:
            return self._pip(self._lines(self.path))
        document = read_toml(self.path)
        locked = document.get("package") or document.get("packages")
        if locked is not None:
            return chain(self._python(document.get("requires-python")), self._locked(locked))
        self._text(self.path)  # collects the package indexes in it
        project, poetry = _table(document, "project"), _table(document, "tool", "poetry")
        python = project.get("requires-python") or _pep440(_table(poetry, "dependencies").get("python"))
        return chain(self._python(python), self._listed(_lists(document, project, poetry)))

    def _listed(self, lists: Iterable[tuple[str, list[str]]]) -> Iterator[str]:
        """Yield the requirements of the project's lists; earlier lists take precedence."""
        asked: set[str] = set()
        for name, lines in lists:
            wishes = [wish for wish in self._pip(lines) if re.split(r"[^\w-]", wish)[0] not in asked]
            if wishes and name:
                warn(f"{self.path.name}: {name} is taken too: {', '.join(wishes)}")
            asked |= {re.split(r"[^\w-]", wish)[0] for wish in wishes}
            yield from wishes

    def _unreadable(self, line: str, name: str) -> BadInputError:
        return BadInputError(
            "GS-131", f"{self.path} asks for {name} in a way that gpusetup cannot read: {line!r}", path=str(self.path),
            hint=f"correct it, or say which: gpusetup resolve '{name}==VERSION' --from {self.path}",
        )  # fmt: skip

    def _text(self, path: Path) -> str:
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
            raise BadInputError("GS-131", f"cannot read {path}: {reason}", path=str(path)) from error
        self.builds.update(_INDEX.findall(text))
        return text

    def _python(self, range_: Any) -> Iterator[str]:
        """Yield the project's range of Pythons; markers are evaluated for the oldest of them."""
        try:
            wanted = SpecifierSet(range_ if isinstance(range_, str) else "")
        except InvalidSpecifier:
            return
        self.python = self.python or next((f"3.{n}" for n in range(9, 40) if f"3.{n}.99" in wanted), None)
        if wanted:
            yield f"python{wanted}"

    def _applies(self, *markers: Any) -> bool:
        environment = target_environment(self.python or "3.12", self.arch)
        told = [marker for marker in markers if isinstance(marker, str) and marker]
        try:
            return not told or any(Marker(marker).evaluate(environment) for marker in told)
        except InvalidMarker:
            return True

    def narrowing(self, asked: tuple[Requested, ...]) -> Iterator[str]:
        """Return the constraints on the requested components and on those that they need."""
        needed = what_packages_need(self.matrix, Request(requirements=asked), self.arch)
        known = needed | {wish.component for wish in asked}
        self.without |= {*PACKAGES, *_FRAMEWORKS} - known
        return (wish for wish in self._pip(self.constraints) if parse_requirement(wish).component in known)

    def _lines(self, path: Path, *, narrows: bool = False) -> Iterator[str]:
        """Yield the requirements of a file and of the files that it includes."""
        if (place := (os.path.realpath(path), narrows)) not in self.seen:
            self.seen.add(place)
            yield from self._each(re.sub(r"\\\r?\n", " ", self._text(path)).splitlines(), path.parent)

    def _each(self, lines: Iterable[str], folder: Path) -> Iterator[str]:
        for line in lines:
            words = re.sub(r"(^|\s)#.*", "", line).strip()
            if include := re.fullmatch(r"(?:-r|(-c)|--requirement|(--constraint))[\s=]*(\S+)", words):
                if "://" in include[3]:
                    warn(f"{include[3]} is left out of the question: gpusetup fetches no requirements")
                elif include[1] or include[2]:
                    self.constraints += [*self._lines(folder / include[3], narrows=True)]
                else:
                    yield from self._lines(folder / include[3])
            elif words and not words.startswith("-"):
                yield re.split(r"\s--", words)[0]

    def _pip(self, lines: Iterable[str]) -> Iterator[str]:
        for line in list(lines):  # read them all first: an index may follow its package
            wheel = _WHEEL.match(line)
            named = wheel or _NAME.match(line)
            name = canonicalize_name(named[1]) if named else ""
            if not (name in _FRAMEWORKS or name in PACKAGES or _CUPY.fullmatch(name)) or name in self.without:
                continue
            try:
                told = Requirement(f"{name} @ {line}" if wheel else line)
                version = str(parse_wheel_filename(unquote(told.url).rpartition("/")[2])[1]) if told.url else ""
            except InvalidWheelFilename:
                continue  # a path or a repository, which names no release
            except InvalidRequirement as error:
                if re.match(r"[\w.-]+/", line):
                    continue
                raise self._unreadable(line, name) from error
            if self._applies(str(told.marker) if told.marker else None):
                exact = re.fullmatch(r"==([^*,]+)", str(told.specifier))
                version = version or (exact[1] if exact else "")
                build = next(iter(self.builds)) if len(self.builds) == 1 else None if self.builds else "index"
                yield from self._wish(told.name, f"=={version}" if version else str(told.specifier), version, build)
                if name == "jax":
                    extras = (re.match(r"cuda(\d+)", extra) for extra in sorted(told.extras))
                    yield from (f"cuda=={extra[1]}.*" for extra in extras if extra)

    def _locked(self, packages: Any) -> Iterator[str]:
        """Yield requirements for the packages in uv.lock, pylock.toml or poetry.lock that apply to the machine."""
        found: dict[str, set[str]] = {}
        for item in packages if isinstance(packages, list) else ():
            name, version = (item.get(key) for key in ("name", "version")) if isinstance(item, dict) else ("", "")
            if not (isinstance(name, str) and isinstance(version, str)) or name in self.without:
                continue
            if self._applies(*_strings(item.get("resolution-markers")), item.get("marker"), item.get("markers")):
                found.setdefault(name, set()).add(version)
        for name, versions in found.items():
            wishes = [[*self._wish(name, f"=={version}", version, "index")] for version in sorted(versions)]
            if len(wishes) > 1 and wishes[0]:
                raise BadInputError(
                    "GS-131", f"{self.path} locks {name} more than once for one machine: {', '.join(sorted(versions))}",
                    path=str(self.path), hint=f"say which: gpusetup resolve {wishes[-1][0]} --from {self.path}",
                )  # fmt: skip
            yield from wishes[0]

    def _conda(self) -> Iterator[str]:
        import yaml

        try:
            document = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(self._text(self.path)).get_single_data()
        except (yaml.YAMLError, ValueError, RecursionError) as error:  # an impossible date is a ValueError
            raise BadInputError(
                "GS-131", f"{self.path} is not valid YAML: {' '.join(str(error).split())}", path=str(self.path),
                hint="check it with: conda env create --dry-run --file " + self.path.name,
            ) from error  # fmt: skip
        listed = document.get("dependencies") if isinstance(document, dict) else None
        for item in listed if isinstance(listed, list) else ():
            if isinstance(item, dict):
                yield from self._pip(self._each(_strings(item.get("pip")), self.path.parent))
                continue
            if not isinstance(item, str):
                continue
            line = re.sub(r"\[.*?version\s*=\s*['\"]?([^'\"\]]*).*", r" \1", item)
            line = re.sub(r"\s*,\s*|(?<=[<>=!~])\s+", lambda found: found[0].strip(), line)
            named, match = _NAME.match(line), _CONDA.fullmatch(line.strip())
            component = _OF_CONDA.get(named[1].lower()) if named else None
            if component is None or component in self.without:
                continue
            if match is None:
                raise self._unreadable(item, component)
            version = match[2] or ""
            number = version.lstrip("=")
            wanted = "==" + number if version == number and number[:1].isdigit() else version
            yield "cu" + number.replace(".", "") if component == "cu" else component + wanted

    def _wish(self, name: str, specifier: str, version: str, build: str | None) -> Iterator[str]:
        """Yield the requirements for one Python package; `build` is the package index that has it."""
        name = canonicalize_name(name)
        if cupy := _CUPY.fullmatch(name):
            yield f"cupy{specifier}"
            yield from (f"cuda=={major}.*" for major in cupy.groups() if major)
        elif name in _FRAMEWORKS:
            usual = self._usual(version) if build == "index" else build
            plain = name == "torch" and "+" not in version and usual and (version or usual != "cpu")
            plus = f"+{usual}" if plain else ""
            yield name + specifier + plus
        elif name in PACKAGES:
            public = specifier.partition("+")[0]
            if self._known(name, public):
                yield name + public
            else:
                warn(f"the matrix has no {name}{public}: it is left out of the question")

    def _usual(self, version: str) -> str:
        torch = self.matrix.torch
        if self.arch == ARCHES[0]:
            return next((one.variant for one in torch.builds if one.version == version and one.default), "")
        return next((one.aarch64_default for one in torch.releases if one.version == version), "")

    def _known(self, name: str, specifier: str) -> bool:
        try:
            wanted = SpecifierSet(specifier)
            return any(Version(one.version) in wanted for one in self.matrix.package(name).releases)
        except (InvalidSpecifier, InvalidVersion):
            return True


def _strings(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _table(value: Any, *names: str) -> dict[str, Any]:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _lists(document: Any, project: dict[str, Any], poetry: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield a project's lists of requirements with their names; mandatory lists have no name and come first."""
    yield "", _strings(project.get("dependencies"))
    yield "", [*_of_poetry(_table(poetry, "dependencies"))]
    for name, listed in _table(document, "dependency-groups").items():
        yield f"dependency group {name}", _strings(listed)
    for name in _table(poetry, "group"):
        yield f"dependency group {name}", [*_of_poetry(_table(poetry, "group", name, "dependencies"))]
    for name, listed in _table(project, "optional-dependencies").items():
        yield f"extra {name}", _strings(listed)


def _of_poetry(table: dict[str, Any]) -> Iterator[str]:
    for name, wishes in table.items():
        for wish in wishes if isinstance(wishes, list) and name != "python" else [wishes]:
            said = wish if isinstance(wish, dict) else {"version": wish}
            source = f" @ {said['url']} " if "url" in said else _pep440(said.get("version"))
            yield name + source + (f"; {said['markers']}" if "markers" in said else "")


def _pep440(version: Any) -> str:
    """Convert Poetry's version range to PEP 440: `^` keeps the first non-zero number, `~` the first two."""
    parts = []
    for part in map(str.strip, version.split(",") if isinstance(version, str) and version != "*" else ()):
        found = _POETRY.match(part)
        upper = f",<{found[1] or found[3] or ''}{int(found[2] or found[4]) + 1}" if found else ""
        parts.append(f">={part[1:].strip()}{upper}" if found else "==" + part if part[:1].isdigit() else part)
    return ",".join(parts)
