"""The output of `gpusetup` alone and of `gpusetup --version --verbose`."""

import os
import platform
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from gpusetup import __version__
from gpusetup.cli.output import write_answer
from gpusetup.content import content_path
from gpusetup.errors import Exit, GpuSetupError, NoStackError
from gpusetup.matrix.load import Matrix
from gpusetup.matrix.load import matrix as load_matrix
from gpusetup.model.documents import About, InstallKind, MatrixInForce, Overlay
from gpusetup.model.facts import Driver, HostFacts
from gpusetup.model.facts_machine import Gpu

_WIDTH = 80
_WITH_GPU = (
    ("gpusetup plan", "what would change here; changes nothing"),
    ("gpusetup resolve torch --from facts.json", "a stack for hosts, from their facts"),
    ("gpusetup doctor 'CUDA error: …'", "from an error message to its cause and the fix"),
)
_WITHOUT_GPU = (
    ("gpusetup resolve torch --gpu h100", "one stack, and the lines that install it"),
    ("gpusetup matrix --driver 550.54", "what runs on a driver"),
    ("gpusetup doctor 'CUDA error: …'", "from an error message to its cause and the fix"),
)


def greet() -> Exit:
    """Print the greeting for this machine."""
    from gpusetup.facts.collect import matrix_lookup, this_machine

    matrix = load_matrix()
    write_answer(greeting(this_machine(matrix_lookup(matrix), candidates=False), matrix), None)
    return Exit.DONE


def greeting(host: HostFacts, matrix: Matrix) -> str:
    """Return the greeting for a machine."""
    lines = [f"gpusetup {__version__}: one proven NVIDIA stack for these hosts", ""]
    lines += _field("this machine", f"{host.os.name}, {host.arch}; {_gpus(host.gpus)}; {_driver(host.driver)}")
    if host.gpus:
        lines += _field("with torch", _stack(host, matrix))
    lines += ["", "try:", *_examples(_WITH_GPU if host.gpus else _WITHOUT_GPU)]
    lines += ["", "`gpusetup --help` lists all commands"]
    return "\n".join(lines) + "\n"


def _field(name: str, text: str) -> list[str]:
    return textwrap.wrap(f"{name + ':':<14}{text}", _WIDTH, subsequent_indent=" " * 14, break_on_hyphens=False)


def _examples(examples: Iterable[tuple[str, str]]) -> list[str]:
    return [line for command, purpose in examples for line in (f"  {command}", f"      {purpose}")]


def _gpus(gpus: Sequence[Gpu]) -> str:
    names = [gpu.name or gpu.pci_id for gpu in gpus]
    counted = [f"{names.count(name)} x {name}" if names.count(name) > 1 else name for name in dict.fromkeys(names)]
    return ", ".join(counted) or "no NVIDIA GPU"


def _driver(driver: Driver | None) -> str:
    return f"driver {driver.version}" if driver is not None and driver.version else "no driver"


def _stack(host: HostFacts, matrix: Matrix) -> str:
    from gpusetup.cli.plan import stack_line
    from gpusetup.cli.requests import about_host
    from gpusetup.model.request import Request, Requirement
    from gpusetup.resolve.api import resolve

    wish = Request(requirements=(Requirement(component="torch"),))
    try:
        return stack_line(resolve(about_host(host, wish, matrix), matrix).stack)
    except NoStackError as error:
        return " ".join(f"no stack fits: {error.note}".split())
    except GpuSetupError as error:
        return error.message


_LIBRARIES = ("ansible-core", "jinja2", "msgspec", "packaging", "requests", "rich", "uvicorn")
_PACKAGED = Path("/usr/lib/gpusetup")


def about() -> About:
    """Return the details of this installation and of what it uses."""
    known = load_matrix()
    try:
        collection = str(content_path())
    except GpuSetupError as error:
        collection = str(error)
    return About(
        version=__version__,
        install=_installation(Path(sys.prefix), Path(__file__).resolve().parents[2]),
        place=str(Path(__file__).resolve().parents[1]),
        matrix=MatrixInForce(date=known.date, digest=known.digest, place=str(known.overlay or "")),
        overlays=tuple(_overlays(known)),
        collection=collection,
        python=platform.python_version(),
        interpreter=sys.executable,
        platform=platform.platform(),
        libraries={name: _library(name) for name in _LIBRARIES},
    )


def about_lines(found: About) -> Iterator[str]:
    """Yield the details as lines of text."""
    yield f"gpusetup {found.version}, {found.install}: {found.place}"
    origin = f": {found.matrix.place}" if found.matrix.place else ", as it came along"
    yield f"matrix {found.matrix.date}, {found.matrix.digest[:16]}{origin}"
    for overlay in found.overlays:
        files = f": {', '.join(overlay.files)}" if overlay.files else ""
        yield f"{overlay.setting}={overlay.place}{files}"
    yield f"collection {found.collection}"
    yield f"Python {found.python}: {found.interpreter}"
    yield f"platform {found.platform}"
    for name, number in found.libraries.items():
        yield f"{name} {number}" if number else f"{name} is not installed"


def _installation(prefix: Path, root: Path) -> InstallKind:
    """Return how gpusetup was installed, judged by the files that each way leaves."""
    if (root / "pyproject.toml").is_file() and (root / "roles").is_dir():
        return "checkout"
    if prefix == _PACKAGED:
        return _distribution(Path("/var/lib"))
    if prefix.name.startswith("single-") and prefix.parent.name == "gpusetup":
        return "single file"
    if (prefix / "pipx_metadata.json").is_file() or "pipx" in prefix.parts:
        return "pipx"
    if (prefix / "uv-receipt.toml").is_file() or _made_by_uv(prefix):
        return "uv"
    return "virtual environment" if sys.prefix != sys.base_prefix else "system"


def _distribution(state: Path) -> InstallKind:
    if (state / "dpkg/info/gpusetup.list").is_file():
        return "deb"
    return "rpm" if (state / "rpm").is_dir() or Path("/usr/lib/sysimage/rpm").is_dir() else "package"


def _made_by_uv(prefix: Path) -> bool:
    try:
        return any(
            line.startswith("uv =") for line in (prefix / "pyvenv.cfg").read_text("utf-8", "replace").splitlines()
        )
    except OSError:
        return False


def _overlays(known: Matrix) -> Iterator[Overlay]:
    if place := os.environ.get("GPUSETUP_MATRIX"):
        files = sorted(path.name for path in Path(place).glob("*.json"))
        yield Overlay(setting="GPUSETUP_MATRIX", place=str(known.overlay), files=tuple(files))
    for setting in ("GPUSETUP_CONTENT", "GPUSETUP_STATE", "GPUSETUP_CACHE"):
        if place := os.environ.get(setting):
            yield Overlay(setting=setting, place=place)


def _library(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
