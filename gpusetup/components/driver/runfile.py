"""The driver from NVIDIA's `.run` installer; packages only provide what builds its modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.components.base import DriverPackages, Family, covering
from gpusetup.components.driver.kernel import header_patterns, headers, unknown_kernel_note
from gpusetup.components.record import record_of
from gpusetup.components.vgpu import guest_notes
from gpusetup.errors import PreflightError
from gpusetup.model.package import Origins, Package, Runfile
from gpusetup.model.request import DriverCandidate

if TYPE_CHECKING:
    from gpusetup.components.base import Context
    from gpusetup.components.parsing import FileSource
    from gpusetup.model.facts import HostFacts
    from gpusetup.model.package import Manager
    from gpusetup.model.stack import DriverChoice

_BUILDER = "dkms"


class RunfileInstaller(Family):
    """An installer such as NVIDIA-Linux-x86_64-580.95.05.run."""

    key = "runfile"

    def __init__(self, file: FileSource, manager: Manager) -> None:
        self.file = file
        self._manager: Manager = manager

    @property
    def manager(self) -> Manager:
        """The host's package manager."""
        return self._manager

    def sources(self, context: Context) -> Origins:  # noqa: ARG002 - one interface for all
        """Return nothing: headers and DKMS come from the host's own repositories."""
        return Origins()

    def patterns(self, context: Context) -> tuple[str, ...]:
        """Return the names of DKMS and headers."""
        return (_BUILDER, *header_patterns(context))

    def drivers(self, context: Context) -> tuple[DriverCandidate, ...] | None:
        """Return the version in the file's name, in the flavours that its branch has."""
        if context.settings.module == "prebuilt" or context.facts.arch != self.file.arch:
            return ()
        branch = int(self.file.version.partition(".")[0])
        flavours = sorted({row.module for row in covering(context.repos.drivers, branch)})
        return (DriverCandidate(version=self.file.version, modules=tuple(flavours)),)

    def driver(self, context: Context, choice: DriverChoice) -> DriverPackages:
        """Return DKMS and headers as prerequisites; packages of another driver are removed."""
        if context.facts.nvswitch is not None:
            raise PreflightError(
                "GS-352",
                "this machine has NVSwitches, and the .run installer has no Fabric Manager",
                note="without Fabric Manager of exactly the driver's version CUDA does not start here",
            )
        return DriverPackages(
            packages=(),
            prerequisites=(*headers(context), Package(name=_BUILDER)),
            remove=packaged_drivers(context.facts) if context.settings.replace or _ours(context) else (),
            may_remove=packaged_drivers(context.facts),
            notes=(*unknown_kernel_note(context), *_unproven(context), *guest_notes(context.facts, context.settings)),
            persistence=False,
            built="dkms",
            why="a .run installer builds them on the host",
            runfile=Runfile(path=self.file.path, version=choice.version, sha256=context.settings.source_sha256),
        )


def packaged_drivers(facts: HostFacts) -> tuple[str, ...]:
    """Return the names of installed driver packages."""
    installs = facts.driver.installs if facts.driver is not None else ()
    return tuple(dict.fromkeys(name for install in installs for name in install.packages))


def _ours(context: Context) -> bool:
    brought = set(record_of(context.facts).brought)
    names = packaged_drivers(context.facts)
    return bool(names) and set(names) <= brought


def _unproven(context: Context) -> tuple[str, ...]:
    if context.settings.source_sha256:
        return ()
    return ("only its owner vouches for the .run installer: set gpusetup_source_sha256 to the publisher's digest",)
