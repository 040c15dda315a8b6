"""NVIDIA's CUDA container images: what a Dockerfile can start from."""

from __future__ import annotations

from gpusetup.model.record import Arch, MatrixFile, Record, Version


class CudaImage(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The images of one CUDA release; each system has a base, a runtime and a devel image."""

    cuda: Version
    systems: dict[Arch, tuple[str, ...]]
    """Processor → the distributions, by their ids in os.json."""


class ImagesFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """images.json."""

    tags: dict[str, str]
    """Distribution → the word in the tag, where the two differ."""
    images: tuple[CudaImage, ...]
