"""Load the matrix: one typed JSON file per component, read on demand, with an optional overlay folder of own data."""
# ruff: noqa: PTH100, PTH110, PTH112, PTH115, PTH118, PTH119, PTH120, PTH123, PTH208
# Importing pathlib would cost a tenth of a cold lookup's time.

from __future__ import annotations

import os
from functools import cached_property
from importlib import import_module
from os.path import abspath, basename, dirname, exists, isdir, join
from typing import TYPE_CHECKING, Any, cast

import msgspec

from gpusetup.errors import BadInputError
from gpusetup.model import Reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gpusetup.model import packages, platforms, record, release, repos, tables
    from gpusetup.model.stack import MatrixStamp

_PACKAGE = "frameworks/"
"""The folder with one file per package above the frameworks."""
SCHEMA = "gpusetup/matrix-{}/1"
_SHIPPED = join(dirname(abspath(__file__)), "data")


def struct_of(name: str) -> type[record.MatrixFile]:
    """Return the type of a component's file."""
    where = "packages.PackageFile" if name.startswith(_PACKAGE) else Matrix.__annotations__[name]
    module, _, struct = where.partition(".")
    return cast("type[record.MatrixFile]", getattr(import_module(f"gpusetup.model.{module}"), struct))


def canonical(document: object) -> bytes:
    """Encode a document in the one format that people, bots and the lint use."""
    encoded = msgspec.json.encode(document, order="deterministic")
    return msgspec.json.format(encoded, indent=1) + b"\n"


def content_of(name: str, path: str | Path) -> bytes:
    """Return the bytes of a component's file."""
    try:
        # O_NONBLOCK: a named pipe reads as an empty file instead of waiting for ever.
        with open(path, "rb", opener=lambda place, flags: os.open(place, flags | os.O_NONBLOCK)) as file:
            return file.read()
    except FileNotFoundError:
        raise BadInputError("GS-203", f"the matrix has no {name} data: {path} is missing", path=str(path)) from None
    except OSError as error:
        raise BadInputError("GS-203", f"cannot read {path}: {error.strerror}", path=str(path)) from error


def load_file(name: str, path: str | Path, base: record.MatrixFile | None = None) -> record.MatrixFile:
    """Decode one component's file; raise BadInputError with the path of a wrong field.

    With a base, the file holds only the records to add to it.
    """
    with Reading(path, ("GS-201", f"the matrix file {basename(path)} cannot be used")):
        content = content_of(name, path)
        if base is not None:
            from gpusetup.matrix.overlay import complete

            content = complete(content, base)
        decoded = msgspec.json.decode(content, type=struct_of(name))
    wanted = SCHEMA.format("package" if name.startswith(_PACKAGE) else name.replace("_", "-"))
    if decoded.schema != wanted:
        raise BadInputError(
            "GS-202",
            f"the matrix file {basename(path)} has schema {decoded.schema!r}; this gpusetup reads {wanted!r}",
            path=f"{path}:$.schema",
        )
    return decoded


class Matrix:
    """The data of all components; each file, of the type that is written here, is read at its first use."""

    driver: release.DriverFile
    cuda: release.CudaFile
    cudnn: release.CudnnFile
    nccl: release.NcclFile
    torch: release.TorchFile
    cupy: release.CupyFile
    tensorflow: release.TensorflowFile
    jax: release.JaxFile
    gpus: platforms.GpuFile
    os: platforms.OsFile
    forward_compat: release.ForwardFile
    vgpu: platforms.VgpuFile
    repos: repos.ReposFile
    kernel_pairs: tables.KernelPairsFile
    images: tables.ImagesFile
    gpu_figures: tables.GpuFiguresFile
    wheels: tables.WheelsFile
    mig: tables.MigFile
    monitoring: tables.MonitoringFile
    rdma: tables.RdmaFile
    security: release.SecurityFile
    instances: tables.InstancesFile

    def __init__(self, overlay: str | Path | None = None, *, examined: bool = False) -> None:
        if overlay is not None and not any(self._files(overlay)):
            wrong = "a folder without a file of the matrix" if isdir(overlay) else "not a folder"
            raise BadInputError("GS-204", f"{overlay} is {wrong}")
        self.overlay = overlay
        self._examined = examined
        self._packages: dict[str, packages.PackageFile] = {}
        self.known: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        """The resolver's cache across requests: masks and pairs, with the values that they were computed from."""

    @staticmethod
    def _files(folder: str | Path) -> Iterator[bool]:
        for name in (*NAMES, *package_files()):
            yield exists(join(folder, f"{name}.json")) or exists(join(folder, f"{name}.more.json"))

    def path(self, name: str) -> str:
        """Return the path of a component's file, in the overlay if it has one."""
        if self.overlay is not None and exists(laid_over := join(self.overlay, f"{name}.json")):
            return laid_over
        return join(_SHIPPED, f"{name}.json")

    def addition(self, name: str) -> str | None:
        """Return the overlay's file of additional records for a component, if there is one."""
        if self.overlay is not None and exists(more := join(self.overlay, f"{name}.more.json")):
            return more
        return None

    def _load(self, name: str) -> record.MatrixFile:
        loaded = load_file(name, self.path(name))
        if (more := self.addition(name)) is not None:
            from gpusetup.matrix.overlay import extended

            loaded = extended(loaded, load_file(name, more, base=loaded))
        if self.overlay is not None and not self._examined:
            from gpusetup.matrix.overlay import check_references  # the lint checks the shipped data

            check_references(self, loaded, self.path(name))
        return loaded

    def __getattr__(self, name: str) -> record.MatrixFile:
        """Load a component's file at its first use and store it as a plain attribute."""
        if name not in NAMES:
            raise AttributeError(name)
        loaded = self._load(name)
        setattr(self, name, loaded)
        return loaded

    def package(self, name: str) -> packages.PackageFile:
        """Return the file of a package above the frameworks, read at its first use."""
        if name not in self._packages:
            found = companion_file(self.torch, name) if name in COMPANIONS else self._load(_PACKAGE + name)
            self._packages[name] = cast("packages.PackageFile", found)
        return self._packages[name]

    def files(self) -> Iterator[tuple[str, record.MatrixFile]]:
        """Yield the name and file of every component."""
        for name in NAMES:
            yield name, getattr(self, name)

    @cached_property
    def date(self) -> str:
        """The date of the matrix: the day on which the driver data was last reviewed."""
        return self.driver.date

    @cached_property
    def digest(self) -> str:
        """A digest over every file's bytes: matrices with equal digests give equal answers."""
        try:  # hashlib would load OpenSSL, a sixteenth of a cold lookup's time
            from _blake2 import blake2b
        except ImportError:
            from hashlib import blake2b

        total = blake2b(digest_size=32)
        for name in (*NAMES, *package_files()):
            total.update(name.encode())
            total.update(content_of(name, self.path(name)))
            if (more := self.addition(name)) is not None:
                total.update(content_of(name, more))
        return total.hexdigest()

    @property
    def stamp(self) -> MatrixStamp:
        """The date and digest that every answer names."""
        from gpusetup.model.stack import MatrixStamp

        return MatrixStamp(date=self.date, digest=self.digest)


NAMES = tuple(Matrix.__annotations__)


def package_files() -> list[str]:
    """Return the names of the shipped files about packages above the frameworks."""
    return sorted(_PACKAGE + name[: -len(".json")] for name in os.listdir(join(_SHIPPED, _PACKAGE)))


def matrix() -> Matrix:
    """Return the matrix in force: the shipped data, overlaid with the folder in GPUSETUP_MATRIX if it is set.

    Without it, a newer imported release (`gpusetup matrix import`) takes the place of the shipped data.
    """
    folder = os.environ.get("GPUSETUP_MATRIX")
    if folder:
        return Matrix(abspath(folder))
    return Matrix(release_in_force(os.environ), examined=True)


def releases_place(environment: Mapping[str, str]) -> str:
    """Return the folder of imported releases: $XDG_DATA_HOME/gpusetup/matrix or ~/.local/share/gpusetup/matrix."""
    return join(data_home(environment), "matrix")


def data_home(environment: Mapping[str, str]) -> str:
    """Return the folder of persistent data: $XDG_DATA_HOME/gpusetup or ~/.local/share/gpusetup."""
    base = environment.get("XDG_DATA_HOME") or join(environment.get("HOME") or "/root", ".local", "share")
    return join(base, "gpusetup")


def release_in_force(environment: Mapping[str, str]) -> str | None:
    """Return the folder of the imported release, or None if there is none or the shipped data is newer."""
    place = releases_place(environment)
    try:
        name = basename(os.readlink(join(place, "current")))
    except OSError:
        return None
    return join(place, name) if name[:10] >= shipped_date() and isdir(join(place, name)) else None


def shipped_date() -> str:
    """Return the date of the shipped matrix from the head of its driver file, without reading the rest."""
    with open(join(_SHIPPED, "driver.json"), encoding="utf-8") as file:
        head = file.read(200)
    return head.partition('"date": "')[2][:10]


COMPANIONS = ("torchvision", "torchaudio")
"""The packages that are released with torch: they have no file, since torch's own rows name them."""


def companion_file(torch: release.TorchFile, name: str) -> packages.PackageFile:
    """Return the releases of a package that torch's releases name as their companion."""
    from gpusetup.model.packages import PackageFile, PackageRelease

    found: dict[str, PackageRelease] = {}
    for row in torch.releases:
        version = row.companions.get(name)
        if version is None:
            continue
        same = found.get(version)
        pythons = dict.fromkeys((*(same.pythons["x86_64"] if same else ()), *row.pythons))
        found[version] = PackageRelease(
            version=version,
            date=row.date,
            kind="wheel",
            read="the release of torch that it belongs to",
            pythons={"x86_64": tuple(pythons), "aarch64": tuple(pythons)},
            sources=row.sources,
            confidence=row.confidence,
        )
    return PackageFile(
        schema="gpusetup/matrix-package/1",
        date=torch.date,
        sources=torch.sources,
        name=name,
        needs=("torch",),
        releases=tuple(found.values()),
    )
