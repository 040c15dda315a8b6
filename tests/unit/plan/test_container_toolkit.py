"""gpusetup_containers brings the toolkit along, or stops before anything is touched."""

from gpusetup.errors import PreflightError
from gpusetup.matrix.load import matrix
from gpusetup.model.facts import Containers, Source
from gpusetup.model.plan import Offer, Preview
from gpusetup.model.settings import Settings
from tests.hosts.machines import changed
from tests.refusals import refused
from tests.unit.plan.conftest import host, nvidia_ubuntu, planner

TOOLKIT = matrix().repos.container_toolkit
NAME = "nvidia-container-toolkit"
HERE = Containers(runtimes=("docker", "containerd"))


def bare(name="ubuntu24.04-rtx4090-open", **packages):
    return host(name, driver=None, packages=packages, containers=HERE)


def plan(facts=None, version="1.20.1-1", containers=("docker",), **more):
    offered = nvidia_ubuntu.candidates | dict.fromkeys(TOOLKIT.packages, (Offer(version=version),))
    settings = Settings(containers=containers, **more)
    return planner.second(facts or bare(), settings, Preview(candidates=offered)).plan


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
    plans = [plan(containers_restart=when) for when in ("idle", "always")]
    assert [plan.variables.gpu_container_restart for plan in plans] == ["idle", "always"]
    assert plans[0].lock.key == plans[1].lock.key


def test_a_runtime_that_is_not_there_and_a_repository_without_a_new_toolkit_are_refused():
    with refused(PreflightError, "GS-339", message="names crio, which is not installed here") as caught:
        plan(containers=("docker", "crio"))
    assert caught.value.hint.endswith("gpusetup_containers=docker")
    with refused(PreflightError, "GS-336", message="1.17.8"):
        plan(version="1.17.8-1")
    without = {name: item for name, item in nvidia_ubuntu.candidates.items() if name not in TOOLKIT.packages}
    with refused(PreflightError, "GS-336", hint="gpusetup_extra_sources"):
        planner.second(bare(), Settings(containers=("docker",)), Preview(candidates=without))


def test_a_description_of_another_driver_is_made_anew():
    facts = host("ubuntu24.04-h200-keep")
    for driver, anew in ((facts.driver.loaded.version, False), ("535.54.03", True)):
        described = changed(HERE, configured=("docker",), cdi=("/var/run/cdi/nvidia.yaml",), cdi_drivers=(driver,))
        found = plan(changed(facts, containers=described))
        assert ("container-cdi" in [action.id for action in found.actions]) is anew


def test_a_toolkit_of_several_versions_is_said():
    installed = dict.fromkeys(TOOLKIT.packages, "1.20.1-1")
    said = "different versions (1.17.8-1, 1.20.1-1)"
    for older, told in (({}, False), ({"libnvidia-container1": "1.17.8-1"}, True)):
        assert any(said in text for text in plan(bare(installed=installed | older)).warnings) is told
