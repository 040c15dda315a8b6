"""gpusetup_containers brings the toolkit along, or stops before anything is touched."""

from gpusetup.matrix.load import matrix
from gpusetup.model.facts import Containers, Source
from gpusetup.model.plan import Offer, Preview
from gpusetup.model.settings import Settings
from tests.unit.plan.conftest import host, nvidia_ubuntu, planner

TOOLKIT = matrix().repos.container_toolkit
NAME = "nvidia-container-toolkit"
HERE = Containers(runtimes=("docker", "containerd"))


def bare(name="ubuntu24.04-rtx4090-open", **packages):
    return host(name, driver=None, packages=packages, containers=HERE)


def asks(facts, **more):
    return planner.first(facts, Settings(containers=("docker",), **more)).ask


def test_on_el_its_lists_are_proven_by_signature():
    source = next(item for item in asks(bare("rocky9-a100-open")).gpu_repo_sources if item.name == NAME)
    assert source.uris == (f"{TOOLKIT.url}/stable/rpm/x86_64",)
    assert (source.repo_gpgcheck, source.gpgcheck) == (True, False)


def test_its_public_repository_is_not_asked_beside_a_mirror_or_where_the_host_has_it():
    ask = asks(bare(), source="http://mirror.example")
    assert [item.name for item in ask.gpu_repo_sources] == ["cuda-ubuntu2404"]
    file, uri = f"/etc/apt/sources.list.d/{NAME}.list", f"{TOOLKIT.url}/stable/deb/$(ARCH)"
    ask = asks(bare(sources=(Source(file=file, uri=uri, suites=("/",)),)))
    assert NAME not in {item.name for item in ask.gpu_repo_sources}


def test_when_to_restart_reaches_the_role_and_is_no_other_wish():
    offered = nvidia_ubuntu.candidates | dict.fromkeys(TOOLKIT.packages, (Offer(version="1.20.1-1"),))
    wishes = [Settings(containers=("docker",), containers_restart=when) for when in ("idle", "always")]
    plans = [planner.second(bare(), wish, Preview(candidates=offered)).plan for wish in wishes]
    assert [plan.variables.gpu_container_restart for plan in plans] == ["idle", "always"]
    assert plans[0].lock.key == plans[1].lock.key
