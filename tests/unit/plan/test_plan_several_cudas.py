"""Several toolkits on one host: their packages, their places, and what goes when one is no longer asked for."""

import pytest

from gpusetup.errors import BadInputError, PreflightError
from gpusetup.matrix.load import matrix
from gpusetup.model.applied import HostRecord
from gpusetup.model.facts import Cuda
from gpusetup.model.package import CudaRoot, PackageSet
from gpusetup.model.request import Request, Requirement
from gpusetup.model.settings import Settings
from gpusetup.model.stack import exact_requirements
from gpusetup.plan.install import dockerfile
from gpusetup.plan.settings import read_level
from gpusetup.resolve.api import resolve
from tests.hosts.machines import changed, machine
from tests.records import lock_of
from tests.refusals import refused
from tests.unit.plan.conftest import asked, nvidia_ubuntu, planner

BOTH = Requirement(component="cuda", specifier="==12.9.*", beside=("==13.0.*",))
WISH = Settings(requirements=(BOTH,))
ROOTS = tuple(CudaRoot(version=minor, path=f"/usr/local/cuda-{minor}") for minor in ("12.9", "13.0"))
RTX = machine("ubuntu24.04-rtx4090-open", driver=None)


def plan(facts, settings=WISH):
    plan = planner.second(facts, settings, nvidia_ubuntu).plan
    assert plan.refusals == ()
    return plan


def test_each_has_its_package_and_its_place_and_the_first_is_the_default():
    made = plan(RTX)
    names = [package.name for package in made.variables.gpu_cuda_packages]
    assert names == ["cuda-toolkit-12-9", "cuda-toolkit-13-0"]
    assert (made.variables.gpu_cuda_roots, made.variables.gpu_cuda_default) == (ROOTS, "12.9")
    (default,) = [action for action in made.actions if action.id == "service-cuda-default"]
    assert default.what == "/usr/local/cuda is /usr/local/cuda-12.9"
    (cuda,) = (item for item in exact_requirements(made.stack) if item.component == "cuda")
    assert cuda.beside == (f"=={made.stack.cudas[0].version}",)
    there = plan(changed(RTX, cuda=Cuda(default="/usr/local/cuda-12.9")))
    assert not [action for action in there.actions if action.id == "service-cuda-default"], "it is set already"


def test_an_image_holds_one_toolkit_and_wheels_cannot_bring_several():
    request = Request(requirements=(BOTH,), gpus=("h100",), os="ubuntu24.04")
    lines, note = dockerfile(resolve(request, matrix()).stack, request, matrix())
    assert (lines, note) == ((), "an NVIDIA image holds one toolkit: ask for one CUDA")
    with pytest.raises(PreflightError, match="side by side only as packages"):
        planner.second(RTX, changed(WISH, cuda_from="wheels"), nvidia_ubuntu)


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (["12.9", "13.0"], BOTH), ('["12.9", "13.0"]', BOTH), (["==12.9.*", "13.0"], BOTH),
        (["12.9"], Requirement(component="cuda", specifier="==12.9.*")),
    ],
)  # fmt: skip
def test_an_inventory_names_them_in_a_list(value, read):
    assert read_level({"gpusetup_cuda": value}, "host h", prefix="gpusetup_")["versions"]["cuda"] == read


def test_one_that_is_no_longer_asked_for_goes_and_touches_no_other():
    both = ("cuda-toolkit-12-9", "cuda-toolkit-13-0")
    gone = {"libcublas-13-0", "cuda-toolkit-13-0", "cuda-toolkit-13-0-config-common"}
    lock = changed(lock_of(PackageSet(manager="apt", cuda_roots=ROOTS)), wanted={"manage_driver": False})
    brought = dict.fromkeys([*both, *gone, "libcublas-12-9", "libnccl2"], "1")
    facts = changed(RTX, state=HostRecord(lock=lock, brought=brought))
    removed = set(plan(facts, asked("cuda==12.9.*")).variables.gpu_packages_remove)
    assert removed & set(brought) == gone
    assert not set(both) & set(plan(facts).variables.gpu_packages_remove), "while both are asked for none goes"


def test_a_list_that_names_no_different_toolkits_is_refused():
    for other in ("12.9.1", "latest", "none"):
        with refused(BadInputError, path="gpusetup_cuda"):
            read_level({"gpusetup_cuda": ["12.9", other]}, "host h", prefix="gpusetup_")
