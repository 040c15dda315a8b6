"""Measure the wheels of the stacks that the matrix chooses: what is downloaded, and the room that it takes on a disk.

`python -m tools.measure_wheels` asks PyPI and writes gpusetup/matrix/data/wheels.json. Nothing big is downloaded: pip
resolves without installing, and of each wheel its list of files alone is read. What was measured before is not measured
again; what is not on PyPI is not measured.
"""

import datetime as dt
import itertools
import os
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import cast, get_args

import msgspec
from packaging.utils import canonicalize_name

from gpusetup.bootstrap.hashes import Target, _report, complete
from gpusetup.bootstrap.wheels import target_environment
from gpusetup.components.python.requirements import python_requirements
from gpusetup.errors import GpuSetupError, NoStackError
from gpusetup.matrix.load import canonical, matrix
from gpusetup.model.record import Arch, Source
from gpusetup.model.request import Request, Requirement
from gpusetup.model.tables import Closure, Size, WheelsFile
from gpusetup.resolve.api import resolve
from tools.refresh.index import PYPI, File, Index

FILE = Path(matrix().path("wheels"))
GPUS = ("p100", "v100", "t4", "a100", "l40s", "h100", "b200", "rtx 5090")
SYSTEMS = ("ubuntu22.04", "ubuntu24.04", "debian12", "debian13", "rocky9")
WISHES = (("torch",), ("tensorflow",), ("jax",), ("cupy",), ("driver", "cuda", "cudnn", "nccl", "cupy"))
BLOCK = 4096
INDEX = Index(PYPI)


def chosen(arch: Arch) -> dict[tuple[str, ...], str]:
    """Return every requirements file that is chosen for these machines and wishes, with the Python it is for."""
    found: dict[tuple[str, ...], str] = {}
    for gpu, system, wish in itertools.product(GPUS, SYSTEMS, WISHES):
        wanted = Request(
            requirements=tuple(Requirement(component=name) for name in wish), gpus=(gpu,), os=system, arch=arch
        )
        try:
            stack = resolve(wanted, matrix()).stack
        except NoStackError:
            continue
        if stack.python is not None and stack.python.version is not None:
            for lines in (python_requirements(stack, matrix()), python_requirements(stack, matrix(), wheels=())):
                found.setdefault(lines, stack.python.version)
    return found


@cache
def file_of(name: str, file: str) -> File:
    """Return what the index says of a file."""
    return next(item for item in INDEX.files(name)[0] if item.name == file)


def room(files: list[zipfile.ZipInfo]) -> int:
    """Return what files take on a disk: whole blocks, and for each module of Python its compiled form beside it."""
    blocks = sum(-(-item.file_size // BLOCK) * (2 if item.filename.endswith(".py") else 1) for item in files)
    return blocks * BLOCK


@cache
def measured(name: str, url: str) -> Size:
    """Return download and room of a wheel."""
    file = file_of(name, url.rpartition("/")[2].partition("#")[0])
    with INDEX.wheel(file) as archive:
        return Size(cast("int", file.size), room(archive.infolist()))


def closure_of(pin: str, caps: list[str], python: str, arch: str) -> list[tuple[str, str, str]]:
    """Return name, version and address of each wheel that pip would install for a pin within these limits."""
    environment, more = target_environment(python, arch), list[str]()
    for _ in range(8):
        report = _report([pin, *caps, *more], Target(python, arch))
        lines, lacking = complete([pin], report, environment)
        if not lacking:
            wanted = {line.partition("==")[0] for line in lines}
            items = [item for item in report if item["metadata"]["name"] in wanted]
            return [
                (item["metadata"]["name"], item["metadata"]["version"], item["download_info"]["url"]) for item in items
            ]
        more += lacking
    raise RuntimeError(f"cannot be resolved: {pin}")


def closures(arch: Arch, done: set[str]) -> Iterator[tuple[Closure, dict[str, Size]]]:
    """Yield each pin with the wheels that come with it, and these wheels as measured."""
    for lines, python in sorted(chosen(arch).items()):
        if any(line.startswith("-") for line in lines):
            print(f"{arch}: not on PyPI, so not measured: {' '.join(lines)}", file=sys.stderr)
            continue
        caps = [line for line in lines if "==" not in line]
        for pin in (line for line in lines if "==" in line):
            if pin in done:
                continue
            done.add(pin)
            print(f"{arch} {python}: {pin}", file=sys.stderr, flush=True)
            try:
                found = closure_of(pin, caps, python, arch)
            except GpuSetupError as error:
                print(f"  not measured: {error.message}: {error.context}", file=sys.stderr)
                continue
            sizes = {
                f"{canonicalize_name(name)}=={version}": measured(canonicalize_name(name), url)
                for name, version, url in found
            }
            yield (
                Closure(
                    pin=pin,
                    arch=arch,
                    python=python,
                    wheels=tuple(sorted(sizes)),
                    sources=("pypi",),
                    confidence="observed",
                ),
                sizes,
            )


def main() -> None:
    """Write the data file."""
    for name in [name for name in os.environ if name.startswith("PIP_") and name != "PIP_CERT"]:
        del os.environ[name]
    os.environ["PIP_CONFIG_FILE"] = os.devnull
    known = matrix().wheels
    rows, sizes = list(known.closures), {arch: dict(found) for arch, found in known.sizes.items()}
    for arch in get_args(Arch):
        for closure, more in closures(arch, {row.pin for row in rows if row.arch == arch}):
            rows.append(closure)
            sizes.setdefault(arch, {}).update(more)
    today = dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%d")
    source = {
        "title": "Sizes of wheels by the index, and of what is in them by their lists of files",
        "publisher": "Python Package Index",
        "url": PYPI,
        "seen": today,
        "note": "python -m tools.measure_wheels: pip's own resolution for that Python; installed size in blocks of "
        "4096 bytes, each module of Python twice for its compiled form",
    }
    document = WheelsFile(
        schema="gpusetup/matrix-wheels/1", date=today, sources={"pypi": msgspec.convert(source, Source)},
        closures=tuple(rows), sizes=sizes,
    )  # fmt: skip
    FILE.write_bytes(canonical(document))


if __name__ == "__main__":
    main()
