"""gpusetup_containers brings the toolkit along, or stops before anything is touched."""

import msgspec
import pytest

from gpusetup.errors import PreflightError
from gpusetup.matrix.load import matrix
from gpusetup.model.facts import Containers, Source
from gpusetup.model.plan import Offer, Preview
from gpusetup.model.settings import Settings

TOOLKIT = matrix().repos.container_toolkit
DEB = f"{TOOLKIT.url}/stable/deb/amd64"


def _settings(**more):
    return Settings(containers=("docker",), **more)


def _offered(answer, version="1.20.1-1"):
    offer = Offer(version=version)
    return Preview(candidates=answer.candidates | dict.fromkeys(TOOLKIT.packages, (offer,)))


def _bare(host, name="ubuntu24.04-rtx4090-open", runtimes=("docker", "containerd"), **packages):
    facts = host(name, driver=None)
    return msgspec.structs.replace(
        facts, packages=msgspec.structs.replace(facts.packages, **packages), containers=Containers(runtimes=runtimes)
    )


def test_its_packages_come_in_the_same_transaction_from_its_own_repository(host, planner, nvidia_ubuntu):
    facts = _bare(host)
    ask = planner.first(facts, _settings()).ask
    assert set(TOOLKIT.packages) <= set(ask.gpu_preflight_candidates)
    source = next(item for item in ask.gpu_repo_sources if item.name == "nvidia-container-toolkit")
    assert source.uris == (DEB,)
    assert source.key.fingerprints == ("C95B321B61E88C1809C4F759DDCAE044F796ECB0",)
    plan = planner.second(facts, _settings(), _offered(nvidia_ubuntu)).plan
    assert plan.refusals == ()
    assert [item.name for item in plan.variables.gpu_container_packages] == list(TOOLKIT.packages)


def test_its_version_is_left_open_for_security_updates(host, planner, nvidia_ubuntu):
    """A version in the record would call every update of it a drift, and take it back."""
    plan = planner.second(_bare(host), _settings(), _offered(nvidia_ubuntu)).plan
    assert not any(item.version for item in plan.variables.gpu_container_packages)


def test_what_nobody_offers_is_refused_before_anything_is_touched(host, planner, nvidia_ubuntu):
    without = {name: item for name, item in nvidia_ubuntu.candidates.items() if name not in TOOLKIT.packages}
    with pytest.raises(PreflightError) as caught:
        planner.second(_bare(host), _settings(source="http://mirror.example"), Preview(candidates=without))
    assert caught.value.reference == "GS-336"
    assert "gpusetup_extra_sources" in caught.value.hint


def test_beside_a_mirror_its_public_repository_is_not_asked(host, planner):
    ask = planner.first(_bare(host), _settings(source="http://mirror.example")).ask
    assert [item.name for item in ask.gpu_repo_sources] == ["cuda-ubuntu2404"]


def test_a_repository_that_the_host_has_already_is_left_alone(host, planner):
    own = Source(
        file="/etc/apt/sources.list.d/nvidia-container-toolkit.list",
        uri=f"{TOOLKIT.url}/stable/deb/$(ARCH)",
        suites=("/",),
    )
    ask = planner.first(_bare(host, sources=(own,)), _settings()).ask
    assert "nvidia-container-toolkit" not in {item.name for item in ask.gpu_repo_sources}


def test_on_el_its_lists_are_proven_by_signature(host, planner):
    ask = planner.first(_bare(host, "rocky9-a100-open"), _settings()).ask
    source = next(item for item in ask.gpu_repo_sources if item.name == "nvidia-container-toolkit")
    assert source.uris == (f"{TOOLKIT.url}/stable/rpm/x86_64",)
    assert (source.repo_gpgcheck, source.gpgcheck) == (True, False)


def test_a_toolkit_that_is_too_old_is_said(host, planner, nvidia_ubuntu):
    facts = _bare(host, installed=dict.fromkeys(TOOLKIT.packages, "1.14.3-1"))
    plan = planner.second(facts, _settings(), _offered(nvidia_ubuntu)).plan
    assert any("1.14.3-1 is older than" in text for text in plan.warnings)


def test_packages_of_several_versions_are_said(host, planner, nvidia_ubuntu):
    installed = dict.fromkeys(TOOLKIT.packages, "1.20.1-1") | {"libnvidia-container1": "1.17.8-1"}
    plan = planner.second(_bare(host, installed=installed), _settings(), _offered(nvidia_ubuntu)).plan
    assert any("different versions (1.17.8-1, 1.20.1-1): apt-get" in text for text in plan.warnings)


def test_a_runtime_that_is_not_there_is_refused_before_anything_is_touched(host, planner, nvidia_ubuntu):
    with pytest.raises(PreflightError) as caught:
        planner.second(_bare(host), Settings(containers=("docker", "crio")), _offered(nvidia_ubuntu))
    assert caught.value.reference == "GS-339"
    assert caught.value.message == "gpusetup_containers names crio, which is not installed here"
    assert caught.value.hint.endswith("gpusetup_containers=docker")


def test_a_repository_that_is_too_old_is_refused(host, planner, nvidia_ubuntu):
    with pytest.raises(PreflightError) as caught:
        planner.second(_bare(host), _settings(), _offered(nvidia_ubuntu, "1.17.8-1"))
    assert caught.value.reference == "GS-336"
    assert "1.17.8" in caught.value.message


def test_when_to_restart_reaches_the_role_and_is_no_other_wish(host, planner, nvidia_ubuntu):
    plans = [
        planner.second(_bare(host), _settings(containers_restart=when), _offered(nvidia_ubuntu)).plan
        for when in ("idle", "always")
    ]
    assert [plan.variables.gpu_container_restart for plan in plans] == ["idle", "always"]
    assert plans[0].lock.key == plans[1].lock.key


def test_a_description_of_another_driver_is_made_anew(host, planner, nvidia_ubuntu):
    facts = host("ubuntu24.04-h200-keep")
    loaded = facts.driver.loaded.version

    def told(driver):
        containers = Containers(runtimes=("docker",), configured=("docker",), cdi=("/var/run/cdi/nvidia.yaml",),
                                cdi_drivers=(driver,))  # fmt: skip
        changed = msgspec.structs.replace(facts, containers=containers)
        plan = planner.second(changed, _settings(), _offered(nvidia_ubuntu)).plan
        return [action.why for action in plan.actions if action.id == "container-cdi"]

    assert told(loaded) == []
    assert told("535.54.03") == ["it describes driver 535.54.03, but another one is loaded: containers would not start"]
