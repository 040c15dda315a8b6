"""Kernel modules that come built or that DKMS builds: which are taken on what host, why, and what is refused."""

from collections.abc import Callable

import msgspec
import pytest

from gpusetup.errors import BadInputError
from gpusetup.model.facts import DkmsModule, HostFacts
from gpusetup.model.request import Requirement
from gpusetup.model.settings import Settings
from gpusetup.plan.settings import read_level
from tests.lab.flavours import UBUNTU_KERNELS
from tests.lab.repository import catalog
from tests.unit.plan.conftest import answer

Make = Callable[..., HostFacts]

NOBLE = UBUNTU_KERNELS["noble"]
RHEL = "5.14.0-570.12.1.el9_6.x86_64"
DRIVER = (Requirement(component="driver"),)
SOURCE = ("nvidia-dkms-580-server-open", "580.142-0ubuntu0.24.04.1")


def ubuntu(host, **more):
    facts = host("ubuntu24.04-rtx4090-open", driver=None, dkms=(), **more)
    return msgspec.structs.replace(
        facts,
        kernel=msgspec.structs.replace(facts.kernel, running=NOBLE, next=NOBLE, installed=()),
        packages=msgspec.structs.replace(facts.packages, installed={"linux-image-generic": "1"}),
    )


def red_hat(host, version="9.6", kernel=RHEL, **more):
    facts = host("rocky9-a100-open", driver=None, dkms=(), **more)
    return msgspec.structs.replace(
        facts,
        os=msgspec.structs.replace(facts.os, id="rhel", version_id=version, name="Red Hat Enterprise Linux"),
        kernel=msgspec.structs.replace(facts.kernel, running=kernel, next=kernel, installed=()),
        packages=msgspec.structs.replace(facts.packages, installed={}, sources=()),
    )


def suse(host, kernel="6.4.0-150600.23.47-default"):
    facts = red_hat(host, secure_boot=False)
    return msgspec.structs.replace(
        facts,
        os=msgspec.structs.replace(facts.os, id="sles", version_id="15.6", name="SLES", family="suse"),
        kernel=msgspec.structs.replace(facts.kernel, running=kernel, next=kernel),
        packages=msgspec.structs.replace(facts.packages, manager="zypper"),
    )


def on_el(*more):
    both = ("kmod-nvidia-latest-dkms", "kmod-nvidia-open-dkms", "nvidia-driver-cuda", "nvidia-persistenced")
    return answer([], *((name, f"3:{version}-1.el9") for name in both for version in ("580.142", "590.48.01")), *more)


PRECOMPILED = ("kmod-nvidia-580.142-5.14.0-570.12.1", "3:580.142-3.el9_6")
PLUGIN = ("dnf-plugin-nvidia", "2.3-1.el9")


def planned(planner, facts, offered, **wishes):
    settings = Settings(**{"requirements": DRIVER, **wishes})
    return planner.second(facts, settings, offered).plan


def names(plan):
    assert not plan.refusals, plan.refusals
    return [package.name for package in plan.variables.gpu_driver_packages]


def why(plan):
    return next(reason.text for reason in plan.reasons if reason.rule == "module-built")


def test_ubuntus_archive_gives_signed_modules_and_what_follows_the_kernel(planner, host):
    offered = answer(catalog.ubuntu_archive(NOBLE), SOURCE)
    plan = planned(planner, ubuntu(host), offered, source="distro")
    assert names(plan)[:2] == [
        f"linux-modules-nvidia-580-server-open-{NOBLE}", "linux-modules-nvidia-580-server-open-generic",
    ]  # fmt: skip
    assert plan.variables.gpu_packages_prerequisites == ()
    assert "signed by Canonical" in why(plan)
    assert plan.lock.wanted is not None
    assert plan.lock.wanted.packages.built == "prebuilt"
    assert any("prebuilt open kernel modules" in action.why for action in plan.actions)


def test_dkms_is_taken_where_it_is_asked_for_and_the_signed_modules_go(planner, host):
    offered = answer(catalog.ubuntu_archive(NOBLE), SOURCE)
    plan = planned(planner, ubuntu(host), offered, source="distro", module="dkms")
    assert names(plan)[0] == SOURCE[0]
    assert f"linux-headers-{NOBLE}" in [package.name for package in plan.variables.gpu_packages_prerequisites]
    assert "linux-modules-nvidia-580-server*" in plan.variables.gpu_packages_remove
    assert "set by gpusetup_module" in why(plan)


def test_a_kernel_without_prebuilt_modules_is_answered_by_dkms(planner, host):
    offered = answer(catalog.ubuntu_archive("6.8.0-99-generic"), SOURCE)
    plan = planned(planner, ubuntu(host), offered, source="distro")
    assert names(plan)[0] == SOURCE[0]
    assert f"no prebuilt modules for kernel {NOBLE}" in why(plan)


def test_a_kernel_without_prebuilt_modules_is_refused_where_those_are_asked_for(planner, host):
    offered = answer(catalog.ubuntu_archive("6.8.0-99-generic"), SOURCE)
    (refusal,) = planned(planner, ubuntu(host), offered, source="distro", module="prebuilt").refusals
    assert refusal.reference == "GS-350"
    assert NOBLE in refusal.message
    assert refusal.exit == 5


def without_follower():
    follower = "linux-modules-nvidia-580-server-open-generic"
    packages = [package for package in catalog.ubuntu_archive(NOBLE) if package.name != follower]
    return answer(packages, SOURCE)


def test_modules_that_the_next_kernel_would_not_have_are_left_to_dkms(planner, host):
    plan = planned(planner, ubuntu(host), without_follower(), source="distro")
    assert names(plan)[0] == SOURCE[0]
    assert "next kernel" in why(plan)


def test_where_prebuilt_is_asked_for_and_nothing_follows_the_kernel_is_held(planner, host):
    plan = planned(planner, ubuntu(host), without_follower(), source="distro", module="prebuilt")
    assert names(plan)[0].startswith("linux-modules-nvidia-580-server-open-6")
    assert "linux-image*" in plan.variables.gpu_packages_hold
    assert any(reason.rule == "module-kernel-held" for reason in plan.reasons)


@pytest.mark.parametrize(("system", "source"), [("debian12-t4-open", "distro"), ("debian12-t4-open", "nvidia")])
def test_debian_has_none_and_says_so_before_anything_is_touched(planner, host, debian12_archive, system, source):
    facts = host(system, driver=None, dkms=())
    (refusal,) = planned(planner, facts, debian12_archive, source=source, module="prebuilt").refusals
    assert refusal.reference == "GS-350"
    assert "no publisher makes them" in refusal.note
    first = planner.first(facts, Settings(requirements=DRIVER, source=source, module="prebuilt"))
    assert first.stage == "final", "no repository is asked for what cannot be"


def test_rhels_precompiled_modules_come_by_their_stream(planner, host):
    settings = Settings(requirements=DRIVER, module="prebuilt")
    asked = planner.first(red_hat(host, secure_boot=False), settings).ask
    assert asked.gpu_repo_sources[0].module_hotfixes, "what other streams hide must be seen"
    assert "kmod-nvidia-*-5.14.0-570.12.1" in asked.gpu_preflight_candidates
    plan = planned(planner, red_hat(host, secure_boot=False), on_el(PRECOMPILED, PLUGIN), module="prebuilt")
    assert names(plan) == [PRECOMPILED[0], PLUGIN[0], "nvidia-driver-cuda", "nvidia-persistenced"]
    assert plan.stack is not None
    assert plan.stack.driver is not None
    assert (plan.stack.driver.version, plan.stack.driver.module) == ("580.142", "proprietary")
    assert [item.stream for item in plan.variables.gpu_packages_streams] == ["580"]
    assert not plan.variables.gpu_repo_sources[0].module_hotfixes
    assert {"kmod-nvidia-latest-dkms", "kmod-nvidia-open-dkms"} <= set(plan.variables.gpu_packages_remove)


def test_rhels_precompiled_modules_without_the_plugin_hold_the_kernel(planner, host):
    plan = planned(planner, red_hat(host, secure_boot=False), on_el(PRECOMPILED), module="prebuilt")
    assert "kernel-core*" in plan.variables.gpu_packages_hold


def test_dkms_stays_the_way_on_rhel_where_nothing_is_asked(planner, host):
    plan = planned(planner, red_hat(host, secure_boot=False), on_el(PRECOMPILED, PLUGIN))
    assert names(plan)[0] == "kmod-nvidia-open-dkms"


def test_secure_boot_does_not_take_what_nvidia_signed(planner, host):
    facts = red_hat(host, secure_boot=True)
    found = planned(planner, facts, on_el(PRECOMPILED, PLUGIN), module="prebuilt").refusals
    assert [item.reference for item in found] == ["GS-351"]
    assert "signed by NVIDIA" in found[0].message


def test_rebuilds_of_rhel_have_kernels_that_nobody_makes_modules_for(planner, host):
    facts = host("rocky9-a100-open", driver=None, dkms=())
    (refusal,) = planned(planner, facts, on_el(PRECOMPILED), module="prebuilt").refusals
    assert refusal.reference == "GS-350"


def test_modules_of_another_driver_go_and_those_of_an_older_kernel_stay(planner, host):
    facts = red_hat(host, secure_boot=False)
    older = {"kmod-nvidia-570.211.01-5.14.0-570.12.1": "1", "kmod-nvidia-580.142-5.14.0-503.11.1": "1"}
    facts = msgspec.structs.replace(facts, packages=msgspec.structs.replace(facts.packages, installed=older))
    plan = planned(planner, facts, on_el(PRECOMPILED, PLUGIN), module="prebuilt")
    assert plan.removals == ("kmod-nvidia-570.211.01-5.14.0-570.12.1",)
    dkms = planned(planner, facts, on_el(PRECOMPILED, PLUGIN), module="dkms")
    assert set(dkms.removals) == set(older)


def test_red_hats_own_modules_are_what_secure_boot_on_rhel_10_takes(planner, host):
    kernel, kmod = "6.12.0-124.8.1.el10_1.x86_64", "kmod-nvidia-open-580.142-6.12.0-124.8.1"
    facts = red_hat(host, "10.1", kernel, secure_boot=True)
    offered = on_el((kmod, "3:580.142-1.el10_1"), ("kmod-nvidia", "1-1"))
    plan = planned(planner, facts, offered, source_fingerprints=("A" * 40,))
    assert names(plan)[:2] == [kmod, "kmod-nvidia"], "580.142 is the only one with signed modules"
    assert "signed by Red Hat" in why(plan)
    asked = planned(planner, facts, offered, module="prebuilt", source_fingerprints=("A" * 40,))
    assert asked.variables.gpu_repo_enable == ("rhel-10-for-x86_64-extensions-rpms",)


KMP = "nvidia-open-driver-G06-signed-cuda-kmp-default"


def on_suse(*built):
    names = ("nvidia-open-driver-G06", "nvidia-compute-utils-G06", "nvidia-persistenced")
    return answer([], *((name, "580.142-1") for name in names), *((KMP, version) for version in built))


def test_suses_signed_modules_hold_for_the_kernels_of_their_service_pack(planner, host):
    here = "580.142_k6.4.0_150600.23.25-150600.3.63.7"
    offered = on_suse("580.142_k6.4.0_150700.51-150700.3.1", here)
    plan = planned(planner, suse(host), offered, module="prebuilt")
    assert str(plan.variables.gpu_driver_packages[0]) == f"{KMP}={here}"
    assert "nvidia-open-driver-G06" in plan.variables.gpu_packages_remove
    assert not any("kernel-default" in pattern for pattern in plan.variables.gpu_packages_hold)
    (refusal,) = planned(planner, suse(host, "6.4.0-150500.1.2-default"), offered, module="prebuilt").refusals
    assert refusal.reference == "GS-350"


def test_a_flavour_is_no_way_and_is_said_so():
    with pytest.raises(BadInputError, match="gpusetup_module") as caught:
        read_level({"gpusetup_module": "open"}, "host", prefix="gpusetup_")
    assert "follows from the GPU" in caught.value.hint
    assert read_level({"gpusetup_module": "prebuilt"}, "host", prefix="gpusetup_") == {"module": "prebuilt"}


def works(host):
    facts = host("ubuntu24.04-h200-keep")
    module = facts.kernel.target.nvidia if facts.kernel.target else None
    assert module is not None
    built = DkmsModule(
        module="nvidia", version=str(module.version), kernel=facts.kernel.next, arch="x86_64", state="installed"
    )
    return msgspec.structs.replace(facts, dkms=(built,))


def test_a_working_driver_whose_modules_came_another_way_is_not_as_wanted(planner, host):
    facts = works(host)
    for module, stage in (("auto", "final"), ("dkms", "final"), ("prebuilt", "offers")):
        draft = planner.first(facts, Settings(requirements=DRIVER, source="distro", module=module))
        assert draft.stage == stage, module


def test_a_loaded_module_is_replaced_while_idle_unless_a_reboot_is_wanted(planner, host):
    offered = answer(catalog.ubuntu_archive(NOBLE), SOURCE)
    facts = ubuntu(host, nouveau=host("ubuntu24.04-h200-keep").nouveau)
    idle = planned(planner, facts, offered, source="distro")
    never = planned(planner, facts, offered, source="distro", reload="never")
    assert [action.id for action in idle.actions if action.reboot] == ["module-load"]
    assert [action.id for action in never.actions if action.reboot] == ["reboot"]
    assert "gpusetup_reload" in never.reboot_why
    assert idle.variables.gpu_driver_reload is True
    assert never.variables.gpu_driver_reload is False
    settings = Settings(requirements=DRIVER)
    key = planner.key(facts, settings)
    assert key == planner.key(facts, msgspec.structs.replace(settings, reload="never")), "of how, not of what"
