"""variantlib's plugin for the namespace `nvidia`: the wheel variants that fit this machine."""

import os
from pathlib import Path
from typing import NamedTuple

from gpusetup.facts.classes import host_of_one_kind
from gpusetup.facts.collect import matrix_lookup, this_machine
from gpusetup.matrix.load import matrix
from gpusetup.model.facts import HostFacts
from gpusetup.resolve.variants import Values, machine_of, supported

FACTS = "GPUSETUP_FACTS"
"""Environment variable with a file of facts to use instead of this machine."""


class Feature(NamedTuple):
    """One feature with its values, the best first."""

    name: str
    values: list[str]
    multi_value: bool


class Provider:
    """The plugin; the matrix decides which values fit."""

    namespace = "nvidia"
    is_build_plugin = False

    @classmethod
    def get_all_configs(cls) -> list[Feature]:
        """Return every value that a wheel may be tagged with."""
        from gpusetup.resolve.variants import known

        return _features(known())

    @classmethod
    def get_supported_configs(cls) -> list[Feature]:
        """Return the values that fit this machine; none without a GPU or a loaded driver."""
        return _features(supported(machine_of(matrix(), *seen(host_in(None)))))


def _features(values: Values) -> list[Feature]:
    return [Feature(name, found, name == "sm_arch") for name, found in values.items()]


def host_in(path: str | None) -> HostFacts:
    """Return the host of a file (`path`, else the one in the environment), or this machine."""
    if path := path or os.environ.get(FACTS):
        return host_of_one_kind(Path(path))
    return this_machine(matrix_lookup(matrix()), candidates=False)


def seen(host: HostFacts) -> tuple[list[str], str | None]:
    """Return the compute capabilities of the GPUs (as sm_NN), and the version of the loaded driver."""
    loaded = host.driver.loaded if host.driver is not None else None
    known = [gpu.compute_capability or gpu.reported_capability for gpu in host.gpus]
    return [f"sm_{cc.replace('.', '')}" for cc in known if cc], loaded.version if loaded is not None else None
