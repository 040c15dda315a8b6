"""The packages that are released with torch: they have no file, since torch's own rows name them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.model.packages import PackageFile, PackageRelease

if TYPE_CHECKING:
    from gpusetup.model.release import TorchFile

COMPANIONS = ("torchvision", "torchaudio")


def companion_file(torch: TorchFile, name: str) -> PackageFile:
    """Return the releases of a package that torch's releases name as their companion."""
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
