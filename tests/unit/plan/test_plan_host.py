"""Plans of captured machines: the right flavour, the right names, and refusals before anything is touched."""

import msgspec
import pytest
from msgspec import UNSET

from gpusetup.components.registry import COMPONENTS
from gpusetup.model.applied import HostRecord
from gpusetup.model.facts import Source
from gpusetup.model.facts_machine import CloudEvent
from gpusetup.model.plan import Offer, Package, PackageSet, Preview, PreviewFinding
from gpusetup.model.request import Requirement
from gpusetup.model.settings import DesktopsWish, ImexWish, Settings
from gpusetup.model.variables import NOTHING
from gpusetup.plan.actions import _repositories
from gpusetup.versions import nv
from tests.unit.plan.conftest import DRIVER, drafted, preview

DISTRO = msgspec.structs.replace(DRIVER, source="distro")


def names(plan):
    return [package.name for package in plan.variables.gpu_driver_packages]


def planned(planner, facts, settings, answer):
    return drafted(planner, facts, settings, answer).plan


def kinds(plan):
    return [action.kind for action in plan.actions]


def test_nothing_to_do_without_a_gpu(planner, host):
    plan = planner.first(host("debian12-none-nothing"), Settings()).plan
    assert (plan.state, plan.actions, plan.refusals) == ("nothing-to-do", (), ())
    assert "no NVIDIA GPU" in plan.now


def test_a_working_driver_is_kept_and_nothing_is_asked(planner, host):
    draft = planner.first(host("ubuntu24.04-h200-keep"), DRIVER)
    assert draft.stage == "final"
    assert draft.plan.stack.driver.installed
    assert draft.plan.state == "unchanged"
    assert "H200" in draft.plan.now
    assert draft.plan.variables.gpu_driver_packages is UNSET


def test_a_host_that_its_cloud_is_about_to_stop_changes_only_when_asked(planner, host, debian12_archive):
    facts = host("debian12-t4-open", driver=None)
    cloud = msgspec.structs.replace(
        facts.virtualisation, machine_type="g4dn.metal", events=(CloudEvent(what="reboot"),)
    )
    facts = msgspec.structs.replace(facts, virtualisation=cloud, simulated=False)
    refused = planned(planner, facts, DISTRO, debian12_archive)
    assert (refused.state, [one.reference for one in refused.refusals], refused.actions) == ("refused", ["GS-359"], ())
    assert refused.refusals[0].message == "the cloud announces reboot at any moment"
    asked = planned(planner, facts, msgspec.structs.replace(DISTRO, despite_maintenance=True), debian12_archive)
    assert (asked.state, kinds(asked) == kinds(planned(planner, host("debian12-t4-open", driver=None), DISTRO,
                                                       debian12_archive))) == ("change", True)  # fmt: skip
    assert {refused.refusals[0].message, "a g4dn.metal has 8 GPUs, here it has 1"} <= {*asked.warnings}
    kept = msgspec.structs.replace(host("ubuntu24.04-h200-keep"), virtualisation=cloud)
    assert planner.first(kept, DRIVER).plan.state == "unchanged"


def test_debians_candidates_decide_the_flavour(planner, host, debian12_archive):
    plan = planned(planner, host("debian12-t4-open", driver=None), DISTRO, debian12_archive)
    assert (plan.stack.driver.version, plan.stack.driver.module) == ("535.309.01", "proprietary")
    assert names(plan)[0] == "nvidia-kernel-dkms"
    assert "nvidia-open-kernel-dkms" in plan.variables.gpu_packages_remove
    assert any("535.261.03" in text for text in plan.warnings), plan.warnings


def test_what_an_earlier_apply_added_to_the_sources_stays_there(planner, host, debian12_archive):
    facts = host("debian12-t4-open", driver=None)
    own = Source(
        file="/etc/apt/sources.list", uri="http://deb.debian.org/debian", suites=("bookworm",), components=("main",)
    )
    added = msgspec.structs.replace(
        own, file="/etc/apt/sources.list.d/gpusetup-bookworm.sources", components=("contrib", "non-free")
    )
    for sources in ((own,), (own, added)):
        packages = msgspec.structs.replace(facts.packages, sources=sources)
        plan = planned(planner, msgspec.structs.replace(facts, packages=packages), DISTRO, debian12_archive)
        (source,) = plan.variables.gpu_repo_sources
        assert (source.name, source.components) == ("gpusetup-bookworm", ("contrib", "non-free", "non-free-firmware"))


def test_debians_older_series_does_without_the_daemon_of_the_newer_one(planner, host):
    tesla = ("nvidia-tesla-535-kernel-dkms", "libnvidia-tesla-535-cuda1", "nvidia-tesla-535-smi")
    candidates = {name: [{"version": "535.274.02-1", "size": 1}] for name in tesla}
    candidates["nvidia-persistenced"] = [{"version": "550.163.01-1", "size": 1}]
    answer = preview(candidates)
    plan = planned(planner, host("debian12-t4-open", driver=None), DISTRO, answer)
    assert set(names(plan)) == set(tesla)
    assert plan.variables.gpu_persistence_services == ()


def test_another_series_of_debian_takes_the_place_of_the_installed_one(planner, host):
    """Side by side the newer one's libraries would be in force, with a module of the older one."""
    facts = host("debian12-t4-open", driver=None)
    plain = (
        "nvidia-kernel-dkms", "libcuda1", "nvidia-smi", "nvidia-alternative", "libnvidia-ml1", "firmware-nvidia-gsp",
    )  # fmt: skip
    installed = dict.fromkeys(plain, "535.309.01-0+deb12u1")
    packages = msgspec.structs.replace(facts.packages, installed=facts.packages.installed | installed)
    old = ("nvidia-tesla-470-kernel-dkms", "libnvidia-tesla-470-cuda1", "nvidia-tesla-470-smi")
    answer = preview({name: [{"version": "470.256.02-1~deb12u1", "size": 1}] for name in old})
    plan = planned(planner, msgspec.structs.replace(facts, packages=packages), DISTRO, answer)
    assert set(names(plan)) == set(old)
    assert set(plan.removals) == set(plain) - {"libnvidia-ml1"}, "apt takes what depends on these"


def test_on_ubuntu_another_series_goes_as_a_whole_and_the_desktop_stays(planner, host, nvidia_ubuntu):
    facts = host("ubuntu24.04-rtx4090-open", driver=None)
    archive = (
        "libnvidia-compute-570-server", "nvidia-utils-570-server", "nvidia-kernel-common-570-server", "libnvidia-gl-570-server",
        "nvidia-headless-no-dkms-570-server-open", "linux-modules-nvidia-570-server-open-6.8.0-60-generic",
        "linux-modules-nvidia-570-server-open-generic", "xserver-xorg-video-nvidia-570-server",
    )  # fmt: skip
    others = ("nvidia-settings", "libnvidia-container1", "nvidia-container-toolkit", "nvidia-prime")
    installed = dict.fromkeys(archive, "570.211.01-0ubuntu0.24.04.1") | dict.fromkeys(others, "1.20.0-1")
    packages = msgspec.structs.replace(facts.packages, installed=installed)
    for wish, series in (("590.48.01", ""), ("580.142", "-580")):
        settings = Settings(requirements=(Requirement(component="driver", specifier=f"=={wish}"),))
        plan = planned(planner, msgspec.structs.replace(facts, packages=packages), settings, nvidia_ubuntu)
        assert set(plan.removals) == set(archive)
        assert {f"libnvidia-compute{series}", f"libnvidia-gl{series}"} <= set(names(plan))
        again = dict.fromkeys([f"libnvidia-compute{series}", f"nvidia-kernel-common{series}"], f"{wish}-1") | installed
        packages_now = msgspec.structs.replace(facts.packages, installed=again)
        plan = planned(planner, msgspec.structs.replace(facts, packages=packages_now), settings, nvidia_ubuntu)
        assert set(plan.removals) == set(archive), "what belongs to the wanted series stays"


def test_the_known_bad_pair_of_debian_13_is_refused(planner, host, debian13_archive):
    facts = host("debian12-t4-open", driver=None)
    system = msgspec.structs.replace(facts.os, version_id="13", codename="trixie", name="Debian 13")
    kernel = msgspec.structs.replace(facts.kernel, next="6.12.107+deb13-amd64")
    turned = msgspec.structs.replace(facts, os=system, kernel=kernel)
    plan = planned(planner, turned, DISTRO, debian13_archive)
    if plan.stack is not None and plan.state != "refused":
        assert plan.stack.driver.module == "proprietary"
        return
    (refusal,) = plan.refusals
    assert refusal.reference == "GS-327"
    assert "pci_resize_resource" in refusal.note
    assert "trixie-backports" in refusal.hint
    assert plan.variables == NOTHING


def test_the_mended_package_of_a_known_bad_pair_is_installed(planner, host):
    """The pair is of one packaging, 550.163.01-2: what trixie-backports carries builds for the same kernel."""
    facts = host("debian12-t4-open", driver=None)
    system = msgspec.structs.replace(facts.os, version_id="13", codename="trixie", name="Debian 13")
    kernel = msgspec.structs.replace(facts.kernel, next="6.12.107+deb13-amd64")
    turned = msgspec.structs.replace(facts, os=system, kernel=kernel)
    parts = ("nvidia-open-kernel-dkms", "nvidia-smi", "libcuda1", "firmware-nvidia-gsp")
    for version, references in (("550.163.01-4~bpo13+1", []), ("550.163.01-2", ["GS-327"])):
        answer = preview({name: [{"version": version, "size": 1}] for name in parts})
        wish = msgspec.structs.replace(
            DISTRO, requirements=(Requirement(component="driver", specifier="==550.163.01"),)
        )
        plan = planned(planner, turned, wish, answer)
        assert [refusal.reference for refusal in plan.refusals] == references


@pytest.mark.parametrize(
    ("machine", "reference"),
    [
        ("ubuntu22.04-t4-runfile", "GS-324"),
        ("ubuntu22.04-wsl-refused", "GS-322"),
        ("debian12-t4-container-refused", "GS-322"),
    ],
)
def test_what_forbids_a_driver_is_said_before_anything(planner, host, nvidia_ubuntu, nvidia_debian, machine, reference):
    facts = host(machine)
    answer = nvidia_debian if facts.os.id == "debian" else nvidia_ubuntu
    wanted = Settings(requirements=(Requirement(component="driver", specifier="==580.178.04"),))
    plan = planned(planner, facts, wanted, answer)
    assert plan.state == "refused"
    assert reference in [refusal.reference for refusal in plan.refusals]
    assert all(refusal.hint for refusal in plan.refusals)


def test_replace_lets_a_runfile_go_and_says_there_is_no_way_back(planner, host, nvidia_ubuntu):
    wanted = Settings(requirements=(Requirement(component="driver", specifier="==580.178.04"),), replace=True)
    plan = planned(planner, host("ubuntu22.04-t4-runfile"), wanted, nvidia_ubuntu)
    assert plan.refusals == ()
    runfile = next(action for action in plan.actions if action.id == "remove-runfile")
    assert "cannot be undone" in runfile.why
    assert plan.variables.gpu_driver_replace_runfile is True


def test_fabric_manager_only_where_switches_are(planner, host, nvidia_ubuntu):
    wanted = Settings(requirements=(Requirement(component="driver", specifier="==580.178.04"),))
    switched = planned(planner, host("ubuntu24.04-h200x8-fabricmanager", driver=None), wanted, nvidia_ubuntu)
    guest = planned(planner, host("ubuntu24.04-h200x8-keep", driver=None), wanted, nvidia_ubuntu)
    assert [package.name for package in switched.variables.gpu_fabric_packages] == [
        "nvidia-fabricmanager",
        "libnvidia-nscq",
    ]
    assert {package.version for package in switched.variables.gpu_fabric_packages} == {"580.178.04-0ubuntu1"}
    assert switched.variables.gpu_fabric_services == ("nvidia-fabricmanager",)
    assert guest.variables.gpu_fabric_packages == ()
    assert guest.variables.gpu_fabric_services == ()


@pytest.mark.parametrize(
    ("branch", "dkms", "fabric", "pinned"),
    [
        ("570", "nvidia-dkms-570-open", "nvidia-fabricmanager-570", False),
        ("580", "nvidia-dkms-580-open", "nvidia-fabricmanager", False),
        ("595", "nvidia-dkms-open", "nvidia-fabricmanager", True),
    ],
)
def test_names_follow_the_branch(planner, host, nvidia_ubuntu, branch, dkms, fabric, pinned):
    wanted = Settings(requirements=(Requirement(component="driver", specifier=f"=={branch}.*"),))
    plan = planned(planner, host("ubuntu24.04-h200x8-fabricmanager", driver=None), wanted, nvidia_ubuntu)
    assert dkms in names(plan)
    assert plan.variables.gpu_fabric_packages[0].name == fabric
    assert any(name.startswith("nvidia-driver-pinning-") for name in names(plan)) is pinned
    if pinned:
        assert names(plan)[0].startswith("nvidia-driver-pinning-")


def test_volta_gets_proprietary_modules_and_no_branch_after_580(planner, host, nvidia_debian):
    plan = planned(planner, host("debian12-v100-proprietary", driver=None), DRIVER, nvidia_debian)
    assert plan.stack.driver.module == "proprietary"
    assert nv(plan.stack.driver.version).major <= 580
    assert names(plan)[0] == "nvidia-kernel-dkms"


def test_libraries_come_from_the_same_repository_and_python_from_the_index(planner, host, nvidia_ubuntu):
    plan = planned(planner, host("ubuntu24.04-rtx4090-open", driver=None), Settings(), nvidia_ubuntu)
    minor = ".".join(plan.stack.cuda.version.split(".")[:2])
    assert plan.variables.gpu_cuda_packages[0].name == f"cuda-toolkit-{minor.replace('.', '-')}"
    assert plan.variables.gpu_cuda_default == minor
    (nccl,) = [package for package in plan.variables.gpu_cuda_packages if package.name == "libnccl2"]
    assert nccl.version.endswith(f"+cuda{minor}")
    (requirement,) = plan.variables.gpu_python_requirements
    assert requirement.startswith(plan.stack.cupy.package + "==")


def only(answer, *leaving_out):
    kept = {name: offers for name, offers in answer.candidates.items() if not name.startswith(leaving_out)}
    return Preview(candidates=kept)


def test_libraries_are_ones_that_the_repository_really_has(planner, host, nvidia_ubuntu):
    facts = host("ubuntu24.04-rtx4090-open", driver=None)
    every = planned(planner, facts, Settings(), nvidia_ubuntu)
    newest = every.variables.gpu_cuda_packages[0].name
    older = planned(planner, facts, Settings(), only(nvidia_ubuntu, newest))
    assert nv(older.stack.cuda.version) < nv(every.stack.cuda.version)
    for plan in (every, older):
        for group, package in zip(("cuda", "cudnn", "nccl"), plan.variables.gpu_cuda_packages, strict=True):
            offered = [item.version for item in nvidia_ubuntu.candidates[package.name]]
            assert package.version in offered
            assert package.version.startswith(getattr(plan.stack, group).version)


def test_a_repository_without_a_toolkit_that_fits_leaves_it_to_wheels(planner, host, nvidia_ubuntu):
    facts = host("ubuntu24.04-rtx4090-open", driver=None)
    settings = Settings(
        requirements=(Requirement(component="cuda", specifier="==12.8.0"), Requirement(component="cupy"))
    )
    plan = planned(planner, facts, settings, nvidia_ubuntu)
    assert plan.stack.cuda.version.startswith("12.8.0")
    assert plan.variables.gpu_cuda_packages == ()
    assert any(line.startswith("cuda-toolkit==12.8.0") for line in plan.variables.gpu_python_requirements)

    strict = planned(planner, facts, msgspec.structs.replace(settings, cuda_from="packages"), nvidia_ubuntu)
    (refusal,) = strict.refusals
    assert "this host's repositories offer only CUDA" in refusal.message + refusal.note
    assert "gpusetup_cuda_from=wheels" in refusal.hint


def test_a_library_without_package_or_python_is_refused(planner, host, nvidia_ubuntu):
    facts = host("ubuntu24.04-rtx4090-open", driver=None)
    settings = Settings(requirements=tuple(Requirement(component=name) for name in ("driver", "cuda", "nccl")))
    assert planned(planner, facts, settings, nvidia_ubuntu).state == "change"
    plan = planned(planner, facts, settings, only(nvidia_ubuntu, "libnccl"))
    assert [refusal.reference for refusal in plan.refusals] == ["GS-333"]
    assert "nccl" in plan.refusals[0].message


def test_debians_own_toolkit_decides_the_cuda(planner, host, debian12_archive):
    facts = host("debian12-t4-open", driver=None)
    settings = Settings(source="distro", cuda_from="packages")
    plan = planned(planner, facts, settings, debian12_archive)
    assert plan.stack.cuda.version == "11.8.0"
    assert plan.stack.cupy.package == "cupy-cuda11x"
    assert plan.variables.gpu_cuda_packages == (
        Package(name="nvidia-cuda-toolkit", version="11.8.89~11.8.0-5~deb12u1"),
        Package(name="nvidia-cuda-toolkit-gcc"),
    ), "with the compiler that this nvcc takes"
    lines = plan.variables.gpu_python_requirements
    assert [line.partition("==")[0] for line in lines] == ["cupy-cuda11x", "nvidia-cudnn-cu11", "nvidia-nccl-cu11"]


def test_no_kernel_key_is_trusted_without_its_full_fingerprint(planner, host, nvidia_ubuntu):
    plan = planned(planner, host("ubuntu24.04-rtx4090-open", driver=None), DRIVER, nvidia_ubuntu)
    (source,) = plan.variables.gpu_repo_sources
    assert source.key.fingerprints == ("EB693B3035CD5710E231E123A4B469963BF863CC",)
    assert source.uris == ("https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64",)


def test_a_mirror_has_nvidias_layout_and_its_own_key(planner, host):
    wanted = msgspec.structs.replace(DRIVER, source="http://mirror.lab:8080", source_fingerprints=("A" * 40,))
    ask = planner.first(host("ubuntu24.04-rtx4090-open", driver=None), wanted).ask
    (source,) = ask.gpu_repo_sources
    assert source.uris == ("http://mirror.lab:8080/compute/cuda/repos/ubuntu2404/x86_64",)
    assert source.key.fingerprints == ("A" * 40,)


def test_no_stack_is_a_refusal_of_that_host_alone(planner, host):
    wanted = Settings(requirements=(Requirement(component="cuda", specifier="==13.*"),))
    plan = planner.first(host("debian12-gtx1080ti-proprietary"), wanted).plan
    assert [refusal.exit for refusal in plan.refusals] == [4]


def test_secure_boot_with_an_unknown_key_is_refused_with_the_steps(planner, host, nvidia_ubuntu):
    facts = host("ubuntu24.04-rtx4090-open", driver=None, secure_boot=True)
    firmware = msgspec.structs.replace(facts.firmware, uefi=True, signing_keys=())
    plan = planned(planner, msgspec.structs.replace(facts, firmware=firmware), DRIVER, nvidia_ubuntu)
    (refusal,) = plan.refusals
    assert refusal.reference == "GS-326"
    assert "mokutil --import" in refusal.hint


SITES_KEY = {"signing_key": "/etc/site.key", "signing_certificate": "/etc/site.der"}


@pytest.mark.parametrize(
    ("there", "offered", "refused"),
    [
        ("2.8.7-2ubuntu2.2", "1:3.0.11-1", "2.8.7"),
        ("", "2.8.1-5ubuntu2", "2.8.1"),
        ("3.0.3-1", "", "3.0.3"),
        ("3.0.4-1", "", None),
        ("1:3.0.11-1ubuntu13", "2.8.1-1", None),
        ("", "", None),  # the host looks at its DKMS before it changes anything
    ],
)
def test_a_dkms_that_takes_no_key_is_refused_when_it_should_sign_with_the_sites(
    planner, host, nvidia_ubuntu, there, offered, refused
):
    facts = host("ubuntu24.04-rtx4090-open", driver=None)
    installed = {name: text for name, text in facts.packages.installed.items() if name != "dkms"}
    packages = msgspec.structs.replace(facts.packages, installed={**installed, **({"dkms": there} if there else {})})
    facts = msgspec.structs.replace(facts, packages=packages)
    offers = {name: offer for name, offer in nvidia_ubuntu.candidates.items() if name != "dkms"}
    if offered:
        offers["dkms"] = (Offer(version=offered),)
    answer = msgspec.structs.replace(nvidia_ubuntu, candidates=offers)
    for keys in ({}, SITES_KEY):
        plan = planned(planner, facts, msgspec.structs.replace(DRIVER, **keys), answer)
        found = [refusal.message for refusal in plan.refusals if refusal.reference == "GS-357"]
        assert bool(found) is bool(keys and refused), plan.refusals
        assert all(f"DKMS {refused} " in message for message in found)


def test_a_record_of_the_same_wish_is_kept_without_asking(planner, host, debian12_archive):
    facts = host("debian12-t4-open", driver=None)
    plan = planned(planner, facts, DISTRO, debian12_archive)
    recorded = msgspec.structs.replace(facts, state=HostRecord(lock=plan.lock))
    again = planner.first(recorded, DISTRO)
    assert again.stage == "transaction"
    assert again.plan.stack == plan.stack
    assert kinds(again.plan) == kinds(plan)
    other = planner.first(recorded, msgspec.structs.replace(DISTRO, persistence=False))
    assert other.stage == "offers"


def test_the_previews_refusals_are_the_hosts(planner, host):
    finding = PreviewFinding(level="refuse", id="space", text="/ full", hint="make room", reference="GS-472")
    plan = planner.second(host("debian12-t4-open", driver=None), DISTRO, Preview(findings=(finding,))).plan
    assert (plan.state, plan.refusals[0].reference, plan.refusals[0].exit) == ("refused", "GS-472", 5)


def test_backports_that_the_host_uses_get_the_drivers_components_too(planner, host, debian12_archive):
    facts = host("debian12-t4-open", driver=None)
    suites = {suite for source in facts.packages.sources for suite in source.suites}
    assert "bookworm-backports" not in suites, "only what the host uses already is switched on"
    plan = planned(planner, facts, DISTRO, debian12_archive)
    assert "bookworm-backports" not in {source.like_suite for source in plan.variables.gpu_repo_sources}
    own = next(source for source in facts.packages.sources if "bookworm" in source.suites)
    more = msgspec.structs.replace(own, suites=("bookworm-backports",), components=("main",))
    packages = msgspec.structs.replace(facts.packages, sources=(*facts.packages.sources, more))
    plan = planned(planner, msgspec.structs.replace(facts, packages=packages), DISTRO, debian12_archive)
    (entry,) = [item for item in plan.variables.gpu_repo_sources if item.like_suite == "bookworm-backports"]
    assert {"contrib", "non-free"} <= set(entry.components)

    written = msgspec.structs.replace(
        more, file="/etc/apt/sources.list.d/gpusetup-bookworm-backports.sources", components=entry.components
    )
    packages = msgspec.structs.replace(packages, sources=(*packages.sources, written))
    again = planned(planner, msgspec.structs.replace(facts, packages=packages), DISTRO, debian12_archive)
    assert again.variables.gpu_repo_sources == plan.variables.gpu_repo_sources, "ours are not switched off again"


def test_a_repository_whose_key_nobody_can_prove_is_refused_with_the_way_out(planner, host):
    facts = host("rocky9-a100-open", driver=None)
    facts = msgspec.structs.replace(facts, os=msgspec.structs.replace(facts.os, id="rocky", version_id="10.1"))
    (refusal,) = planner.first(facts, DRIVER).plan.refusals
    assert refusal.reference == "GS-338"
    assert "CDF6BA43.pub" in refusal.hint
    named = msgspec.structs.replace(DRIVER, source_fingerprints=("AB" * 20,), source_key="http://x/k.pub")
    assert planner.first(facts, named).stage == "offers"
    off = msgspec.structs.replace(facts, packages=msgspec.structs.replace(facts.packages, disabled=("crb",)))
    assert planner.first(off, named).ask.gpu_repo_enable == ("crb",), "dkms needs what is in it"
    (enable,) = _repositories(off, PackageSet(manager="dnf", enable=("crb",)))
    assert enable.what == "enable crb"


@pytest.mark.parametrize(
    "asked",
    [
        {"containers": ("docker",)},
        {"rdma": "inbox"},
        {"imex": ImexWish(nodes=("10.0.0.1", "10.0.0.2"))},
        {"desktops": DesktopsWish(users=("alice",))},
        {"monitoring": "textfile"},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_what_comes_as_packages_is_refused_where_no_packages_are_known(planner, host, asked):
    rocky = host("rocky9-a100-open").os  # whose own repositories have no driver
    facts = host("ubuntu24.04-h200-keep", os=rocky)
    settings = msgspec.structs.replace(DISTRO, **asked)
    assert [component.name for component in COMPONENTS if component.asks(settings)] == [next(iter(asked))]
    assert [refusal.reference for refusal in planner.first(facts, settings).plan.refusals] == ["GS-331"]
