"""The variables that a lock is written as are ones that our own roles take, on every distribution."""

import json
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import packages

from gpusetup.cli.main import main
from gpusetup.matrix.load import matrix

NVIDIA = ("ubuntu22.04", "ubuntu24.04", "debian12", "debian13", "rocky9", "rhel10", "amzn2023")
DISTRO = ("ubuntu22.04", "ubuntu24.04", "debian12", "debian13")
ROLES = Path(__file__).parents[3] / "roles"
LISTS = ("gpu_packages_prerequisites", "gpu_driver_packages", "gpu_fabric_packages", "gpu_cuda_packages",
         "gpu_container_packages")  # fmt: skip


def _options():
    found: dict = {}
    for path in sorted(ROLES.glob("*/meta/argument_specs.yml")):
        for entry in yaml.safe_load(path.read_text())["argument_specs"].values():
            found |= entry.get("options") or {}
    return found


def _written(capsys, *words):
    assert main(["lock", *words, "--gpu", "t4", "--vars"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("components", [(), ("driver", "cuda", "cudnn", "nccl", "cupy"), ("driver",)])
@pytest.mark.parametrize(
    ("system", "source"), [*((name, "nvidia") for name in NVIDIA), *((name, "distro") for name in DISTRO)]
)
def test_the_roles_take_it(capsys, system, source, components):
    variables = _written(capsys, *components, "--os", system, "--source", source)
    wishes = packages.merge([wish for name in LISTS for wish in variables.get(name, [])])
    assert {wish["name"] for wish in wishes} >= {item["name"] for item in variables["gpu_driver_packages"]}
    assert variables["gpu_driver_packages"]
    options = _options()
    assert set(variables) <= set(options)
    result = ArgumentSpecValidator({name: options[name] for name in variables}).validate(variables)
    assert result.error_messages == []


def test_a_driver_that_the_archive_never_had_is_not_promised(capsys):
    versions = {
        item["version"]
        for item in _written(capsys, "driver", "--os", "debian12", "--source", "distro")["gpu_driver_packages"]
    }
    known = {row.version.partition("-")[0] for row in matrix().repos.distro_drivers if "debian12" in row.systems}
    assert {version.partition("-")[0] for version in versions} <= known
    assert main(["lock", "driver==580.*", "--gpu", "t4", "--os", "debian12", "--source", "distro", "--vars"]) == 4


def test_a_key_that_nobody_can_prove_is_said(capsys):
    assert main(["lock", "driver", "--gpu", "t4", "--os", "rhel10", "--vars"]) == 0
    told = capsys.readouterr().err
    assert "CDF6BA43.pub" in told
    assert "gpu_repo_sources" in told
