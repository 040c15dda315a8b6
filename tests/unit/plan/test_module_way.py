"""Kernel modules: open or proprietary, built by their publisher or by DKMS; which host gets which, why, and what is refused."""

import shutil

import pytest

from gpusetup.cli.doctor_hosts import captured
from gpusetup.doctor.diagnose import diagnose
from gpusetup.facts.collect import matrix_lookup
from gpusetup.matrix.load import matrix
from gpusetup.model.facts import DkmsModule
from gpusetup.plan.requests import request_for
from gpusetup.resolve.api import resolve
from tests.hosts.machines import changed
from tests.lab.flavours import UBUNTU_KERNELS
from tests.lab.repository import catalog
from tests.unit.doctor.test_machines import HEALTHY
from tests.unit.plan.conftest import DRIVER, answer, asked, debian12_archive, host, planner

NOBLE = UBUNTU_KERNELS["noble"]
RHEL = "5.14.0-570.12.1.el9_6.x86_64"
SOURCE = ("nvidia-dkms-580-server-open", "580.142-0ubuntu0.24.04.1")
FOLLOWER = "linux-modules-nvidia-580-server-open-generic"
ARCHIVE = answer(catalog.ubuntu_archive(NOBLE), SOURCE)
ANOTHER_KERNELS = answer(catalog.ubuntu_archive("6.8.0-99-generic"), SOURCE)
NO_FOLLOWER = answer([package for package in catalog.ubuntu_archive(NOBLE) if package.name != FOLLOWER], SOURCE)


def kernel(release, **more):
    return {"running": release, "next": release, **more}


def ubuntu(**more):
    return host("ubuntu24.04-rtx4090-open", driver=None, dkms=(), kernel=kernel(NOBLE, installed=()),
                packages={"installed": {"linux-image-generic": "1"}}, **more)  # fmt: skip


def red_hat(version="9.6", release=RHEL, *, secure_boot=False, **installed):
    system = {"id": "rhel", "version_id": version, "name": "Red Hat Enterprise Linux"}
    return host("rocky9-a100-open", driver=None, dkms=(), os=system, kernel=kernel(release, installed=()),
                packages={"installed": installed, "sources": ()}, secure_boot=secure_boot)  # fmt: skip


def on_el(*more):
    both = ("kmod-nvidia-latest-dkms", "kmod-nvidia-open-dkms", "nvidia-driver-cuda", "nvidia-persistenced")
    return answer([], *((name, f"3:{version}-1.el9") for name in both for version in ("580.142", "590.48.01")), *more)


PRECOMPILED = ("kmod-nvidia-580.142-5.14.0-570.12.1", "3:580.142-3.el9_6")
PLUGIN = ("dnf-plugin-nvidia", "2.3-1.el9")
BUILT = on_el(PRECOMPILED, PLUGIN)


def planned(facts, offered, **wishes):
    return planner.second(facts, asked("driver", **wishes), offered).plan


def names(plan):
    assert not plan.refusals, plan.refusals
    return [package.name for package in plan.variables.gpu_driver_packages]


def refusal(plan, reference="GS-350"):
    (found,) = plan.refusals
    assert found.reference == reference
    return found


def why(plan):
    return next(reason.text for reason in plan.reasons if reason.rule == "module-built")


def test_ubuntus_archive_gives_signed_modules_and_what_follows_the_kernel():
    plan = planned(ubuntu(), ARCHIVE, source="distro")
    assert names(plan)[:2] == [f"linux-modules-nvidia-580-server-open-{NOBLE}", FOLLOWER]
    assert plan.variables.gpu_packages_prerequisites == ()
    assert "signed by Canonical" in why(plan)
    assert plan.lock.wanted.packages.built == "prebuilt"
    assert any("prebuilt open kernel modules" in action.why for action in plan.actions)


@pytest.mark.parametrize(
    ("offered", "wish", "because"),
    [
        (ARCHIVE, {"module": "dkms"}, "set by gpusetup_module"),
        (ANOTHER_KERNELS, {}, f"no prebuilt modules for kernel {NOBLE}"),
        (NO_FOLLOWER, {}, "next kernel"),  # which would not have them
    ],
)
def test_dkms_is_taken_where_it_is_asked_for_or_no_modules_are_there_and_the_signed_ones_go(offered, wish, because):
    plan = planned(ubuntu(), offered, source="distro", **wish)
    assert names(plan)[0] == SOURCE[0]
    assert f"linux-headers-{NOBLE}" in [package.name for package in plan.variables.gpu_packages_prerequisites]
    assert "linux-modules-nvidia-580-server*" in plan.variables.gpu_packages_remove
    assert because in why(plan)


@pytest.mark.parametrize("source", ["distro", "nvidia"])
def test_debian_has_none_and_says_so_before_anything_is_touched(source):
    facts = host("debian12-t4-open", driver=None, dkms=())
    assert "no publisher makes them" in refusal(planned(facts, debian12_archive, source=source, module="prebuilt")).note
    first = planner.first(facts, asked("driver", source=source, module="prebuilt"))
    assert first.stage == "final", "no repository is asked for what cannot be"


def test_rhels_precompiled_modules_come_by_their_stream():
    ask = planner.first(red_hat(), asked("driver", module="prebuilt")).ask
    assert ask.gpu_repo_sources[0].module_hotfixes, "what other streams hide must be seen"
    assert "kmod-nvidia-*-5.14.0-570.12.1" in ask.gpu_preflight_candidates
    plan = planned(red_hat(), BUILT, module="prebuilt")
    assert names(plan) == [PRECOMPILED[0], PLUGIN[0], "nvidia-driver-cuda", "nvidia-persistenced"]
    assert (plan.stack.driver.version, plan.stack.driver.module) == ("580.142", "proprietary")
    assert [item.stream for item in plan.variables.gpu_packages_streams] == ["580"]
    assert not plan.variables.gpu_repo_sources[0].module_hotfixes
    assert {"kmod-nvidia-latest-dkms", "kmod-nvidia-open-dkms"} <= set(plan.variables.gpu_packages_remove)
    without_plugin = planned(red_hat(), on_el(PRECOMPILED), module="prebuilt")
    assert "kernel-core*" in without_plugin.variables.gpu_packages_hold


def test_secure_boot_does_not_take_what_nvidia_signed_and_rebuilds_of_rhel_have_kernels_of_their_own():
    found = refusal(planned(red_hat(secure_boot=True), BUILT, module="prebuilt"), "GS-351")
    assert "signed by NVIDIA" in found.message
    refusal(planned(host("rocky9-a100-open", driver=None, dkms=()), on_el(PRECOMPILED), module="prebuilt"))


def test_modules_of_another_driver_go_and_those_of_an_older_kernel_stay():
    older = {"kmod-nvidia-570.211.01-5.14.0-570.12.1": "1", "kmod-nvidia-580.142-5.14.0-503.11.1": "1"}
    assert planned(red_hat(**older), BUILT, module="prebuilt").removals == ("kmod-nvidia-570.211.01-5.14.0-570.12.1",)
    assert set(planned(red_hat(**older), BUILT, module="dkms").removals) == set(older)


def test_red_hats_own_modules_are_what_secure_boot_on_rhel_10_takes():
    facts = red_hat("10.1", "6.12.0-124.8.1.el10_1.x86_64", secure_boot=True)
    kmod = "kmod-nvidia-open-580.142-6.12.0-124.8.1"
    offered = on_el((kmod, "3:580.142-1.el10_1"), ("kmod-nvidia", "1-1"))
    plan = planned(facts, offered, source_fingerprints=("A" * 40,))
    assert names(plan)[:2] == [kmod, "kmod-nvidia"], "580.142 is the only one with signed modules"
    assert "signed by Red Hat" in why(plan)
    chosen = planned(facts, offered, module="prebuilt", source_fingerprints=("A" * 40,))
    assert chosen.variables.gpu_repo_enable == ("rhel-10-for-x86_64-extensions-rpms",)


@pytest.mark.parametrize(("module", "stage"), [("auto", "final"), ("dkms", "final"), ("prebuilt", "offers")])
def test_a_working_driver_whose_modules_came_another_way_is_not_as_wanted(module, stage):
    facts = host("ubuntu24.04-h200-keep")
    version, release = facts.kernel.target.nvidia.version, facts.kernel.next
    built = DkmsModule(module="nvidia", version=version, kernel=release, arch="x86_64", state="installed")
    assert planner.first(changed(facts, dkms=(built,)), asked("driver", source="distro", module=module)).stage == stage


@pytest.mark.parametrize(("device", "architecture"), [("0x1db6", "Volta"), ("0x15f8", "Pascal"), ("0x1401", "Maxwell")])
def test_resolve_plan_and_doctor_say_the_same(tmp_path, device, architecture):
    """On a machine with a working-looking 580 driver, open modules, and another GPU than those drive."""
    root = tmp_path / "root"
    shutil.copytree(HEALTHY, root, symlinks=True)
    (root / "sys/bus/pci/devices/0000:00:06.0/device").write_text(f"{device}\n", encoding="ascii")
    look = captured(root, matrix_lookup(matrix()))
    said = f"({architecture}) works only with the proprietary kernel modules"
    answer = resolve(request_for(look.facts, DRIVER), matrix())
    assert (answer.stack.driver.module, answer.stack.driver.installed) == ("proprietary", False)
    assert any(said in reason.text for reason in answer.reasons)
    assert any(said in text and "open ones that are installed" in text for text in answer.warnings)
    found = diagnose(look)
    assert found.cause.cause == "open-module-pre-turing"
    assert any(said in ruled.text for ruled in found.ruled)


def test_where_prebuilt_is_asked_for_and_nothing_follows_the_kernel_is_held():
    for offered, held in ((ARCHIVE, False), (NO_FOLLOWER, True)):
        plan = planned(ubuntu(), offered, source="distro", module="prebuilt")
        assert names(plan)[0] == f"linux-modules-nvidia-580-server-open-{NOBLE}"
        assert ("linux-image*" in plan.variables.gpu_packages_hold) is held
        assert any(reason.rule == "module-kernel-held" for reason in plan.reasons) is held
