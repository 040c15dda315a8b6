"""The judge that hosts ask too, loaded from the same files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.content import host_code

if TYPE_CHECKING:
    from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import versions
else:
    versions = host_code("gpu_judge.versions")

__all__ = ["versions"]
