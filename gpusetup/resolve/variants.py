"""Wheel variants: the properties of a machine in the namespace `nvidia`, and the order of the variants that fit it.

Format and order follow PEP 825's draft (python/peps at 910d8ce5), features and values follow NVIDIA's provider
(wheelnext/nvidia-variant-provider at 2ab9659) and uv 0.13.9; read on 2026-11-27.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gpusetup.matrix.gpus import find_gpu
from gpusetup.matrix.load import Matrix
from gpusetup.model.release import DriverBranch
from gpusetup.resolve import rules
from gpusetup.versions import nv

NAMESPACE = "nvidia"
NULL = "null"
"""The label of the variant without properties, which fits every machine."""
_LOWER, _UPPER, _ARCH = "cuda_version_lower_bound", "cuda_version_upper_bound", "sm_arch"
_MAJORS, _MINORS, _CAPABILITIES = range(11, 16), range(21), range(5, 13)
"""The CUDA versions and the majors of compute capabilities for which wheels may be tagged."""

Values = dict[str, list[str]]
"""Feature → the values that fit a machine; both in order of preference."""


class Machine(NamedTuple):
    """The newest GPU's compute capability, and the driver's branch with its CUDA version."""

    cc: str
    cuda: str
    branch: DriverBranch


def machine_of(matrix: Matrix, gpus: Iterable[str], driver: str | None) -> Machine | None:
    """Return the machine of these GPUs and driver; None without either, or if the driver does not support the GPU."""
    kinds = sorted((find_gpu(matrix, name) for name in gpus), key=lambda kind: nv(kind.cc))
    if not kinds or not driver:
        return None
    newest, number = kinds[-1], nv(driver).major
    branches = [item for item in matrix.driver.branches if item.cuda and item.branch <= number]
    ended = newest.last_branch is not None and number > newest.last_branch
    if not branches or ended or number < (newest.min_branch or 0):
        return None
    branch = max(branches, key=lambda item: item.branch)
    return Machine(newest.cc, str(branch.cuda), branch)


def supported(machine: Machine | None) -> Values:
    """Return the values that fit a machine."""
    if machine is None:
        return {}
    has, every = nv(machine.cuda), _cuda_versions()
    lower = [text for text in every if nv(text).minor <= has.minor]
    found = {_LOWER: lower, _UPPER: [text for text in every if text not in lower], _ARCH: _code(machine.cc)}
    return {name: values for name, values in found.items() if values}


def _cuda_versions() -> list[str]:
    minors = (*reversed(_MINORS), None)
    return [f"{major}" if minor is None else f"{major}.{minor}" for major in reversed(_MAJORS) for minor in minors]


def _code(cc: str) -> list[str]:
    """Return the code that runs on a GPU: cubins of its major, then the PTX that NVIDIA's provider accepts."""
    major, minor = nv(cc).minor
    real = [f"{major}.{lower}" for lower in range(minor, -1, -1)]
    texts = [f"{text.replace('.', '')}_real" for text in real if rules.way_of((text,), (), cc)]
    return [*texts, f"{major}0_virtual"] if major in _CAPABILITIES else []


def known() -> Values:
    """Return every value that a wheel may be tagged with."""
    capabilities = [f"{major}{minor}" for major in reversed(_CAPABILITIES) for minor in range(9, -1, -1)]
    code = [f"{text}_{kind}" for kind in ("real", "virtual") for text in capabilities]
    return {_LOWER: _cuda_versions(), _UPPER: _cuda_versions(), _ARCH: code}


def rows(machine: Machine) -> Iterable[dict[str, Any]]:
    """Yield the values of each feature with the reason for them."""
    driver = f"the driver's branch R{machine.branch.branch} has CUDA {machine.cuda}"
    for feature, values in supported(machine).items():
        why = f"the newest GPU has compute capability {machine.cc}" if feature == _ARCH else driver
        yield {"property": f"{NAMESPACE} :: {feature}", "values": values, "why": why}


def ordered(metadata: Mapping[str, Any], labels: Iterable[str], values: Values) -> list[str]:
    """Return the labels that fit, best first; `metadata` is the content of a variants.json."""
    namespaces = metadata["default-priorities"]["namespace"]
    providers = metadata.get("providers", {})
    fits: dict[str, Values] = {}
    for name in namespaces:
        static = providers.get(name, {}).get("static-properties") or metadata.get("static-properties", {}).get(name, {})
        first = providers.get(name, {}).get("feature-order", ())
        fits[name] = values if name == NAMESPACE else {item: static[item] for item in (*first, *static)}
    keys = {label: _key(metadata["variants"].get(label, {}), namespaces, fits) for label in labels}
    found = [(key, label) for label, key in keys.items() if key and (label == NULL or label in metadata["variants"])]
    return [label for _, label in sorted(found)]


def _key(
    properties: Mapping[str, Mapping[str, list[str]]], namespaces: list[str], fits: Mapping[str, Values]
) -> list[tuple[int, ...]]:
    """Return a variant's sort key: the rank of its best value per feature; empty if a feature does not fit."""
    keys: list[tuple[int, ...]] = []
    for name, features in properties.items():
        for feature, wanted in features.items():
            order = fits.get(name, {})
            best = next((place for place, value in enumerate(order.get(feature, ())) if value in wanted), None)
            if best is None:
                return []
            keys.append((namespaces.index(name), list(order).index(feature), best))
    return [*sorted(keys), (len(namespaces),)]  # the end marker sorts a longer key before its own prefix
