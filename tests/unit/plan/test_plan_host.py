"""Plans of captured machines: the right flavour, names and holds, and refusals before anything is touched."""

import pytest
from msgspec import UNSET

from gpusetup.components.judge import versions
from gpusetup.components.registry import COMPONENTS
from gpusetup.matrix.load import matrix
from gpusetup.model.applied import Apply, HostRecord, RecordedService
from gpusetup.model.facts import Python
from gpusetup.model.facts_machine import CloudEvent, Disk
from gpusetup.model.plan import Offer, Package, PackageSet, Preview, PreviewFinding
from gpusetup.model.settings import DesktopsWish, ImexWish, Settings
from gpusetup.model.variables import NOTHING
from gpusetup.plan.actions import _repositories
from gpusetup.plan.preflight import host_refusals
from tests.hosts.machines import changed, machine
from tests.stored import stored_rows
from tests.unit.plan.conftest import (
    DRIVER,
    answer,
    asked,
    debian12_archive,
    drafted,
    host,
    nvidia_debian,
    nvidia_ubuntu,
    planner,
    with_installed,
)

DISTRO = changed(DRIVER, source="distro")
NEWEST = asked("driver==580.178.04")
RTX = machine("ubuntu24.04-rtx4090-open", driver=None)
T4 = machine("debian12-t4-open", driver=None)
SWITCHED = machine("ubuntu24.04-h200x8-fabricmanager", driver=None)
ROCKY = machine("rocky9-a100-open", driver=None)


def names(plan):
    return [package.name for package in plan.variables.gpu_driver_packages]


def planned(planner, facts, settings, answer):
    return drafted(planner, facts, settings, answer).plan


def kinds(plan):
    return [action.kind for action in plan.actions]


def refusal(plan, reference=None):
    (found,) = plan.refusals
    assert found.reference == reference or reference is None
    return found


def test_a_host_that_its_cloud_is_about_to_stop_changes_only_when_asked():
    cloud = {"machine_type": "g4dn.metal", "events": (CloudEvent(what="reboot"),)}
    facts = changed(T4, virtualisation=cloud, simulated=False)
    plan = planned(planner, facts, DISTRO, debian12_archive)
    assert (plan.state, plan.actions) == ("refused", ())
    assert refusal(plan, "GS-359").message == "the cloud announces reboot at any moment"
    despite = planned(planner, facts, changed(DISTRO, despite_maintenance=True), debian12_archive)
    assert despite.state == "change"
    assert kinds(despite) == kinds(planned(planner, T4, DISTRO, debian12_archive))
    assert {refusal(plan).message, "a g4dn.metal has 8 GPUs, here it has 1"} <= {*despite.warnings}
    assert planner.first(host("ubuntu24.04-h200-keep", virtualisation=cloud), DRIVER).plan.state == "unchanged"


def test_debians_candidates_decide_the_flavour():
    plan = planned(planner, T4, DISTRO, debian12_archive)
    assert (plan.stack.driver.version, plan.stack.driver.module) == ("535.309.01", "proprietary")
    assert "nvidia-open-kernel-dkms" in plan.variables.gpu_packages_remove
    assert any("535.261.03" in text for text in plan.warnings), plan.warnings


def test_backports_that_the_host_uses_get_the_drivers_components_too():
    def sources_of(*more):
        facts = changed(T4, packages={"sources": (*T4.packages.sources, *more)})
        return planned(planner, facts, DISTRO, debian12_archive).variables.gpu_repo_sources

    backports = "bookworm-backports"
    assert backports not in {source.like_suite for source in sources_of()}, "only what the host uses is switched on"
    own = next(source for source in T4.packages.sources if "bookworm" in source.suites)
    more = changed(own, suites=(backports,), components=("main",))
    (entry,) = [item for item in sources_of(more) if item.like_suite == backports]
    assert {"contrib", "non-free"} <= set(entry.components)
    written = changed(more, file=f"/etc/apt/sources.list.d/gpusetup-{backports}.sources", components=entry.components)
    assert sources_of(more, written) == sources_of(more), "ours are not switched off again"


def test_another_series_of_debian_takes_the_place_of_the_installed_one():
    plain = {"nvidia-kernel-dkms", "libcuda1", "nvidia-smi", "nvidia-alternative", "firmware-nvidia-gsp"}
    old = ("nvidia-tesla-470-kernel-dkms", "libnvidia-tesla-470-cuda1", "nvidia-tesla-470-smi")
    facts = with_installed(T4, dict.fromkeys(plain, "535.309.01-0+deb12u1"))
    plan = planned(planner, facts, DISTRO, answer([], *((name, "470.256.02-1~deb12u1") for name in old)))
    assert (set(names(plan)), set(plan.removals)) == (set(old), plain)


@pytest.mark.parametrize(("branch", "fabric"), [("570", "nvidia-fabricmanager-570"), ("595", "nvidia-fabricmanager")])
def test_names_follow_the_branch(branch, fabric):
    plan = planned(planner, SWITCHED, asked(f"driver=={branch}.*"), nvidia_ubuntu)
    assert plan.variables.gpu_fabric_packages[0].name == fabric
    assert names(plan)[0].startswith("nvidia-driver-pinning-") is (branch == "595")


def test_a_mirror_is_trusted_by_the_full_fingerprint_of_its_own_key():
    wish = changed(DRIVER, source="http://mirror.lab:8080", source_fingerprints=("A" * 40,))
    (source,) = planner.first(RTX, wish).ask.gpu_repo_sources
    assert source.key.fingerprints == ("A" * 40,)
    assert source.key.url == "http://mirror.lab:8080/compute/cuda/repos/ubuntu2404/x86_64/aaaaaaaa.pub"


def test_debians_older_series_does_without_the_daemon_of_the_newer_one():
    tesla = ("nvidia-tesla-535-kernel-dkms", "libnvidia-tesla-535-cuda1", "nvidia-tesla-535-smi")
    offers = answer([], *((name, "535.274.02-1") for name in tesla), ("nvidia-persistenced", "550.163.01-1"))
    ours = HostRecord(services={"nvidia-persistenced.service": RecordedService(enabled=True)})
    plan = planned(planner, changed(T4, state=ours), DISTRO, offers)
    assert set(names(plan)) == set(tesla)
    assert (plan.variables.gpu_persistence_services, plan.variables.gpu_persistence_give_up) == ((), True)


@pytest.mark.parametrize(("wish", "series"), [("590.48.01", ""), ("580.142", "-580")])
def test_on_ubuntu_another_series_goes_as_a_whole_and_the_desktop_stays(wish, series):
    archive = (
        "libnvidia-compute-570-server", "nvidia-utils-570-server", "nvidia-kernel-common-570-server", "libnvidia-gl-570-server",
        "nvidia-headless-no-dkms-570-server-open", "linux-modules-nvidia-570-server-open-6.8.0-60-generic",
        "linux-modules-nvidia-570-server-open-generic", "xserver-xorg-video-nvidia-570-server",
    )  # fmt: skip
    others = ("nvidia-settings", "libnvidia-container1", "nvidia-container-toolkit", "nvidia-prime")
    installed = dict.fromkeys(archive, "570.211.01-0ubuntu0.24.04.1") | dict.fromkeys(others, "1.20.0-1")
    already = dict.fromkeys([f"libnvidia-compute{series}", f"nvidia-kernel-common{series}"], f"{wish}-1")
    for there in (installed, already | installed):  # what belongs to the wanted series stays
        facts = changed(RTX, packages={"installed": there})
        plan = planned(planner, facts, asked(f"driver=={wish}"), nvidia_ubuntu)
        assert set(plan.removals) == set(archive)
        assert {f"libnvidia-compute{series}", f"libnvidia-gl{series}"} <= set(names(plan))


TRIXIE = changed(T4, os={"version_id": "13", "codename": "trixie", "name": "Debian 13"},
                 kernel={"next": "6.12.107+deb13-amd64"})  # fmt: skip


@pytest.mark.parametrize(("version", "references"), [("550.163.01-4~bpo13+1", []), ("550.163.01-2", ["GS-327"])])
def test_the_mended_package_of_a_known_bad_pair_is_installed(version, references):
    """The pair is of one packaging, 550.163.01-2: what trixie-backports carries builds for the same kernel."""
    parts = ("nvidia-open-kernel-dkms", "nvidia-smi", "libcuda1", "firmware-nvidia-gsp")
    offers = answer([], *((name, version) for name in parts))
    plan = planned(planner, TRIXIE, asked("driver==550.163.01", source="distro"), offers)
    assert [refusal.reference for refusal in plan.refusals] == references
    assert all("pci_resize_resource" in found.note for found in plan.refusals)
    assert all("trixie-backports" in found.hint for found in plan.refusals)
    assert (plan.variables == NOTHING) is bool(references)


def test_replace_lets_a_runfile_go_and_says_there_is_no_way_back():
    plan = planned(planner, host("ubuntu22.04-t4-runfile"), changed(NEWEST, replace=True), nvidia_ubuntu)
    assert (plan.refusals, plan.variables.gpu_driver_replace_runfile) == ((), True)
    runfile = next(action for action in plan.actions if action.id == "remove-runfile")
    assert "cannot be undone" in runfile.why


def only(answer, *without):
    return Preview(candidates={key: offers for key, offers in answer.candidates.items() if not key.startswith(without)})


def test_a_repository_without_a_toolkit_that_fits_leaves_it_to_wheels():
    plan = planned(planner, RTX, asked("cuda==12.8.0", "cupy"), nvidia_ubuntu)
    assert plan.stack.cuda.version.startswith("12.8.0")
    assert plan.variables.gpu_cuda_packages == ()
    assert any(line.startswith("cuda-toolkit==12.8.0") for line in plan.variables.gpu_python_requirements)
    found = refusal(planned(planner, RTX, asked("cuda==12.8.0", "cupy", cuda_from="packages"), nvidia_ubuntu))
    assert "this host's repositories offer only CUDA" in found.message + found.note
    assert "gpusetup_cuda_from=wheels" in found.hint


def test_a_library_without_package_or_python_is_refused():
    wish = asked("driver", "cuda", "nccl")
    assert planned(planner, RTX, wish, nvidia_ubuntu).state == "change"
    assert "nccl" in refusal(planned(planner, RTX, wish, only(nvidia_ubuntu, "libnccl")), "GS-333").message


def test_debians_own_toolkit_decides_the_cuda():
    plan = planned(planner, T4, Settings(source="distro", cuda_from="packages"), debian12_archive)
    assert (plan.stack.cuda.version, plan.stack.cupy.package) == ("11.8.0", "cupy-cuda11x")
    assert plan.variables.gpu_cuda_packages == (
        Package(name="nvidia-cuda-toolkit", version="11.8.89~11.8.0-5~deb12u1"),
        Package(name="nvidia-cuda-toolkit-gcc"),
    ), "with the compiler that this nvcc takes"
    lines = plan.variables.gpu_python_requirements
    assert [line.partition("==")[0] for line in lines] == ["cupy-cuda11x", "nvidia-cudnn-cu11", "nvidia-nccl-cu11"]


def test_secure_boot_with_an_unknown_key_is_refused_with_the_steps():
    facts = changed(RTX, secure_boot=True, firmware={"uefi": True, "signing_keys": ()})
    assert "mokutil --import" in refusal(planned(planner, facts, DRIVER, nvidia_ubuntu), "GS-326").hint


@pytest.mark.parametrize(("there", "offered", "too_old"), stored_rows("plan-too-old.json"))
def test_a_dkms_that_takes_no_key_is_refused_when_it_should_sign_with_the_sites(there, offered, too_old):
    installed = {name: text for name, text in RTX.packages.installed.items() if name != "dkms"}
    facts = changed(RTX, packages={"installed": installed | ({"dkms": there} if there else {})})
    offers = {"dkms": (Offer(version=offered),)} if offered else {}
    answer = Preview(candidates={**only(nvidia_ubuntu, "dkms").candidates, **offers})
    for keys in ({}, {"signing_key": "/etc/site.key", "signing_certificate": "/etc/site.der"}):
        plan = planned(planner, facts, changed(DRIVER, **keys), answer)
        found = [found.message for found in plan.refusals if found.reference == "GS-357"]
        assert bool(found) is bool(keys and too_old), plan.refusals
        assert all(f"DKMS {too_old} " in message for message in found)


def test_the_previews_refusals_are_the_hosts():
    finding = PreviewFinding(level="refuse", id="space", text="/ full", hint="make room", reference="GS-472")
    plan = planner.second(T4, DISTRO, Preview(findings=(finding,))).plan
    assert (plan.state, refusal(plan, "GS-472").exit) == ("refused", 5)


def test_a_repository_whose_key_nobody_can_prove_is_refused_with_the_way_out():
    facts = changed(ROCKY, os={"id": "rocky", "version_id": "10.1"})
    assert "CDF6BA43.pub" in refusal(planner.first(facts, DRIVER).plan, "GS-338").hint
    named = changed(DRIVER, source_fingerprints=("AB" * 20,), source_key="http://x/k.pub")
    assert planner.first(facts, named).stage == "offers"
    off = changed(facts, packages={"disabled": ("crb",)})
    assert planner.first(off, named).ask.gpu_repo_enable == ("crb",), "dkms needs what is in it"
    (enable,) = _repositories(off, PackageSet(manager="dnf", enable=("crb",)))
    assert enable.what == "enable crb"


@pytest.mark.parametrize(
    "wish",
    [
        {"containers": ("docker",)}, {"rdma": "inbox"}, {"imex": ImexWish(nodes=("10.0.0.1", "10.0.0.2"))},
        {"desktops": DesktopsWish(users=("alice",))}, {"monitoring": "textfile"},
    ],
    ids=lambda wish: next(iter(wish)),
)  # fmt: skip
def test_what_comes_as_packages_is_refused_where_no_packages_are_known(wish):
    facts = host("ubuntu24.04-h200-keep", os=ROCKY.os)  # whose own repositories have no driver
    settings = changed(DISTRO, **wish)
    assert [component.name for component in COMPONENTS if component.asks(settings)] == [*wish]
    refusal(planner.first(facts, settings).plan, "GS-331")


@pytest.mark.parametrize(
    ("places", "free", "full"),
    [(("/",), 3, "/"), (("/var",), 63, "/var"), (("/",), 64, None), (("/boot",), 1, None), (("/", "/usr", "/var"), 0, "/")],
)  # fmt: skip
def test_a_host_without_room_to_look_at_packages_is_told_so_once(places, free, full):
    disk = Disk(total=10 << 30, free=free << 20, writable=True, same_as=None)
    found = list(host_refusals(changed(T4, disks=dict.fromkeys(places, disk))))
    assert [item.reference for item in found] == (["GS-332"] if full else [])
    assert not full or len(places) > 1 or found[0].message == f"{full} is full: {free} MB are free"


def test_a_package_that_was_cut_while_it_was_unpacked_is_mended_by_the_apply_that_did_it():
    torn = changed(T4, packages={"problems": ("nvidia-smi is broken and must be reinstalled",)})
    assert [(item.reference, "PACKAGES" in item.hint) for item in host_refusals(torn)] == [("GS-320", False)]
    assert list(host_refusals(changed(torn, state=HostRecord(apply=Apply(id="run-1"))))) == []


EIGHT = "ubuntu24.04-h200x8-keep"


def test_an_adopted_python_is_taken_as_it_is_and_nothing_is_fetched():
    packages = {
        "cupy-cuda12x": "13.6.0", "torch": "2.8.0", "nvidia-cuda-runtime-cu12": "12.8.90",
        "nvidia-cudnn-cu12": "9.10.2.21",
    }  # fmt: skip
    named = Python(path="/opt/ai/bin/python", version="3.12", ensurepip=False, packages=packages)
    draft = planner.first(host(EIGHT, pythons=(*host(EIGHT).pythons[:1], named)), Settings(python_adopt=named.path))
    assert (draft.stage, draft.plan.state) == ("final", "unchanged"), draft.plan.refusals
    assert (draft.plan.stack.driver.installed, draft.plan.stack.cupy.version) == (True, "13.6.0")
    assert draft.plan.variables.gpu_python_adopt == named.path
    assert draft.plan.variables.gpu_python_requirements == ("cupy-cuda12x==13.6.0",)
    assert draft.plan.variables.gpu_driver_packages is UNSET


@pytest.mark.parametrize(
    ("there", "reference"),
    [
        ((), "GS-330"),
        ((Python(path="/home/eve/bin/python", version="", ensurepip=False, changeable="/home/eve"),), "GS-337"),
    ],
)
def test_a_python_that_is_not_there_or_that_others_can_change_is_not_adopted(there, reference):
    plan = planner.first(host(EIGHT, pythons=there), Settings(python_adopt="/home/eve/bin/python")).plan
    assert [refusal.reference for refusal in plan.refusals] == [reference]
    assert "/home/eve" in plan.refusals[0].message


OTHERS = """
nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools libnvidia-container1 nvidia-container-runtime
nvidia-docker2 libnvpair3linux libnvme1 libnvme1t64 libnvme-dev libnvtt2 libnvtt-bin libnvpair1linux nvidia-vaapi-driver
nvidia-texture-tools nvidia-cg-toolkit nvidia-mig-manager nvidia-driver-assistant nvidia-prime cuda-toolkit-13-0 cuda-keyring
libnvjpeg-13-0 libnvjitlink-13-0 libnvfatbin-13-0 libnvptxcompiler-13-0 datacenter-gpu-manager-4-core libcudnn9-cuda-13 libnccl2 libnccl
linux-image-6.8.0-50-generic linux-headers-generic libnvvm-13-0 libnvidia-containers kernel-default zfs-dkms nvme-cli python3-libnvme libnvme libnvpair3
"""


@pytest.mark.parametrize("row", matrix().repos.stack_names, ids=lambda row: f"{row.source}-{row.families[0]}")
def test_nothing_of_others_is_held_pinned_or_allowed_to_go(row):
    assert [name for name in OTHERS.split() if versions.matches(name, row.names)] == []


def test_what_kind_of_host_forbids_a_driver_is_said_before_anything():
    plan = planned(planner, host("debian12-t4-container-refused"), NEWEST, nvidia_debian)
    assert ("GS-322", True) in [(found.reference, bool(found.hint)) for found in plan.refusals]
