"""Which document stands behind a rule or a record, as something a person can look up."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from gpusetup.model.request import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.record import MatrixFile, Record, Rule

__all__ = ["cite", "rule_source", "rule_text"]

_FILE_OF_COMPONENT = {"python": "os", "gpu": "gpus"}
_DOCUMENTED = ("package-driver-floor", "package-gpu-floor")
_FILES_WITH_RULES = ("driver", "cuda", "torch", "cudnn", "nccl", "cupy", "tensorflow", "jax", "gpus", "os")


def _title(file: MatrixFile, key: str) -> str:
    source = file.sources.get(key)
    if source is None:
        return ""
    return source.url if source.url.startswith("https://") else f"{source.publisher}: {source.title}".lstrip(": ")


def cite(matrix: Matrix, component: str, record: Record) -> str:
    """Return the first source of a record."""
    file: MatrixFile = (
        matrix.package(component)
        if component in PACKAGES
        else getattr(matrix, _FILE_OF_COMPONENT.get(component, component))
    )
    return next((title for key in record.sources if (title := _title(file, key))), "")


@lru_cache(maxsize=256)
def _rule(matrix: Matrix, rule_id: str) -> tuple[Rule, MatrixFile] | None:
    for name in (*_FILES_WITH_RULES, "forward_compat", "vgpu"):
        file: MatrixFile = getattr(matrix, name)
        for rule in file.rules:
            if rule.id == rule_id:
                return rule, file
    return None


def rule_source(matrix: Matrix, rule_id: str, scope: Iterable[str] = ()) -> str:
    """Return the first source of a named rule; of one about a package, the package's own; empty for what was asked."""
    package = next((name for name in scope if name in PACKAGES), "") if rule_id.startswith("package-") else ""
    if package:
        own = matrix.package(package)
        floor = "documented" if rule_id in _DOCUMENTED and "documented" in own.sources else "index"
        return _title(own, floor) or rule_source(matrix, rule_id)
    found = _rule(matrix, rule_id)
    if found is None:
        return ""
    rule, file = found
    return next((title for key in rule.sources if (title := _title(file, key))), "")


def rule_text(matrix: Matrix, rule_id: str) -> str:
    """Return what a named rule says in general."""
    found = _rule(matrix, rule_id)
    return found[0].text if found is not None else ""
