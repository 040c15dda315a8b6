"""What differs from the last apply: one record, one host, one thing changed at a time; no advice to apply where apply refuses."""

from typing import Any

import msgspec
import pytest

from gpusetup.cli.drift import _compared, drift_text
from gpusetup.cli.main import main
from gpusetup.cli.remove import removal_text
from gpusetup.matrix.load import matrix
from gpusetup.model.facts import Initramfs, LoadedModule, Python, Service
from gpusetup.model.facts_machine import ModuleFile
from gpusetup.model.lifecycle import Drift, HostRemoval, Removed, Trouble
from gpusetup.plan.lifecycle import differences, pending_reboot, removal_of
from gpusetup.plan.preflight import apply_refused
from gpusetup.resolve.api import resolve
from tests.hosts.machines import HOSTS, changed, machine
from tests.records import record
from tests.unit.plan.conftest import DRIVER, host, planner

VERSION = "580.95.05"
NOUVEAU = "/etc/modprobe.d/gpusetup-nouveau.conf"
SOURCES = "/etc/apt/sources.list"
UNIT = "nvidia-persistenced.service"
RECORD: dict[str, Any] = {
    "apply": {"id": "20261121T010000Z-aaaaaa", "finished": "20261121T010100Z"},
    "packages": {"nvidia-utils": "580.95.05-1"},
    "brought": {"nvidia-utils": "580.95.05-1", "libnvidia-compute": "580.95.05-1", "dkms": "3.0"},
    "moved": {"libc6": "2.39-1"},
    "taken": {"nvidia-old": "1"},
    "holds": ["libnvidia-compute", "nvidia-utils"],
    "files": {
        NOUVEAU: {"sha256": "aa", "now": "aa", "present": True, "original": None},
        SOURCES: {"sha256": None, "now": None, "present": False, "original": {"sha256": "cc"}},
    },
    "services": {UNIT: {"enabled": True}},
    "expect": {
        "driver_version": VERSION,
        "driver_module": "open",
        "python": {"path": "/opt/gpusetup", "packages": {"torch": "2.9.0"}, "adopted": False},
    },
}


def applied(*, record_says=(), packages=(), **parts):
    """Make the host as the apply on record left it, but for these parts; `record` changes the record."""
    facts = host("ubuntu24.04-h200-keep")
    kernel = next(item for item in facts.kernel.installed if item.release == facts.kernel.next)
    module = ModuleFile(path="/x/nvidia.ko", version=VERSION, flavour="open")
    there = {name: version for name, version in facts.packages.installed.items() if "fabricmanager" not in name}
    there |= {"libc6": "2.39-2", **RECORD["brought"]}
    python = {"path": "/opt/gpusetup/bin/python", "version": "3.12", "ensurepip": True, "packages": {"torch": "2.9.0"}}
    facts = changed(
        facts, state=record(RECORD | dict(record_says)), kernel={"installed": (changed(kernel, nvidia=module),)},
        driver={"loaded": LoadedModule(version=VERSION, flavour="open"), "library": VERSION},
        packages={"installed": there, "held": tuple(RECORD["holds"]), "problems": ()},
        nouveau={"blacklisted": True, "loaded": False, "initramfs": ()},
        services={"p": Service(unit=UNIT, active="active", enabled="enabled")},
        pythons=(msgspec.convert(python, Python),),
    )  # fmt: skip
    installed = {name: version for name, version in (there | dict(packages)).items() if version}
    return changed(changed(facts, packages={"installed": installed}), **parts)


def one(facts, *fields):
    (found,) = differences(facts)
    return tuple(getattr(found, field) for field in fields)


@pytest.mark.parametrize(
    ("packages", "found"),
    [
        ({"libnvidia-compute": "580.126.09-1", "dkms": "3.1"}, ("package-libnvidia-compute", "580.95.05-1", "580.126.09-1")),
        ({"nvidia-utils": ""}, ("package-nvidia-utils", "580.95.05-1", "not installed")),
        ({"nvidia-fabricmanager-580": "580.126.09-1"}, ("fabric-nvidia-fabricmanager-580", f"{VERSION}, as the driver", "580.126.09-1")),
    ],
)  # fmt: skip
def test_packages_of_the_closure_count_and_others_do_not(packages, found):
    assert one(applied(packages=packages), "id", "was", "now") == found


@pytest.mark.parametrize(
    ("path", "now", "became"), [(NOUVEAU, "bb", "changed"), (NOUVEAU, None, "missing"), (SOURCES, "cc", "there again")]
)
def test_files(path, now, became):
    files = RECORD["files"] | {path: RECORD["files"][path] | {"now": now}}
    assert one(applied(record_says={"files": files}), "what", "now") == (path, became)


def test_a_module_that_is_gone_or_of_the_other_flavour():
    def with_module(module, **parts):
        facts = applied()
        return changed(facts, kernel={"installed": (changed(facts.kernel.installed[0], nvidia=module),)}, **parts)

    found = differences(with_module(None, driver={"loaded": None}))
    assert [(item.id.partition("-")[0], item.mend) for item in found] == [("module", "apply"), ("loaded", "apply")]
    assert "boots next" in found[0].what
    other = ModuleFile(path="/x/nvidia.ko", version=VERSION, flavour="proprietary")
    assert one(with_module(other), "now") == (f"{VERSION} (proprietary)",)


def test_nouveau_is_back_in_the_initramfs():
    facts = applied()
    image = Initramfs(path="/boot/initrd", kernel=facts.kernel.next, nouveau=True, blacklist=False, why=None)
    back = changed(facts, nouveau={"initramfs": (image,)})
    assert one(back, "id", "now") == ("nouveau-initramfs", "would start nouveau")
    assert differences(changed(facts, nouveau={"initramfs": (changed(image, blacklist=True),)})) == ()


def test_what_did_not_finish_is_the_one_difference_and_the_same_command_goes_on():
    begun = {"removal:of everything": {"what": "removal of everything", "aim": "be completed", "since": "now"}}
    for part, goes_on in (({"apply": {"id": "x", "finished": None}}, "apply"), ({"open": begun}, "remove --yes")):
        told = _compared(applied(record_says={**part, "holds": ["lost"]}), "a", "hosts.ini")
        assert (len(told.differences), told.mend) == (1, f"gpusetup {goes_on} hosts.ini --limit a")


def test_what_removal_undoes():
    removal = removal_of(applied())
    assert removal.packages == ("dkms", "libnvidia-compute", "nvidia-utils")
    assert removal.restored == ("libc6=2.39-1", "nvidia-old=1")
    assert (removal.files_deleted, removal.files_restored) == ((NOUVEAU,), (SOURCES,))
    assert (removal.initramfs, removal.python) == (True, "/opt/gpusetup")
    assert "stays loaded" in pending_reboot(applied(), removal)
    assert removal_of(applied(state=None)) is None
    more = {"runfile": {"path": "/x.run", "version": VERSION}, "alternatives": {"cuda": "auto"}, "streams": {"a": None}}
    removal = removal_of(applied(record_says={"brought": {}, "moved": {}, "taken": {}, **more}))
    assert (removal.runfile, removal.alternatives, removal.streams) == (VERSION, ("cuda",), ("a",))
    assert "stays loaded" in pending_reboot(applied(), removal)
    why = Trouble(message="apt cannot do it", context="nvidia-", note="x Depends: y", hint="apt-get install y")
    failed = HostRemoval(state="failed", failed_at="Packages", failure=why)
    hosts = {"a": HostRemoval(state="planned", removal=removal), "b": failed}
    text = removal_text(Removed(ok=True, done=False, run="", log="", hosts=hosts))
    assert f"driver   uninstalled: {VERSION} of the .run installer" in text
    assert text.endswith(
        "\n  at: Packages\n  apt cannot do it\n  nvidia-\n  x Depends: y\n  hint: apt-get install y\n\n2 hosts: 1 planned, 1 failed\nlog: \n"
    )


def test_removal_shows_the_headers_that_followed_those_that_came():
    headers = {"kernel-devel-1-1": "1-1", "kernel-devel-2-1": "2-1", "kernel-devel-matched": "2-1"}
    facts = applied(record_says={"brought": {"kernel-devel": "0:1-1"}})
    found = removal_of(changed(facts, packages={"installed": headers}))
    assert found.packages == ("kernel-devel-1-1", "kernel-devel-2-1")


def test_what_no_apply_touches_is_for_a_person_and_names_no_command():
    stray = "/usr/local/lib/libcuda.so.570.1"
    facts = applied()
    driver = {"libraries": {"libcuda.so.1": ("570.1", VERSION)}, "library_files": {stray: "570.1"}}
    alone = _compared(changed(facts, driver=driver), "a", "hosts.ini")
    assert (alone.state, alone.mend) == ("drifted", "")
    text = drift_text(Drift(ok=False, hosts={"a": alone}))
    assert (stray in text, "by hand: ask dpkg -S" in text, "gpusetup apply" in text) == (True, True, False)
    beside = _compared(changed(facts, driver=driver, packages={"held": ("nvidia-utils",)}), "a", "hosts.ini")
    assert beside.mend.startswith("gpusetup apply")


WSL, VGPU = "ubuntu22.04-wsl-refused", "ubuntu22.04-l4vgpu-grid"
CONTAINER, TWO = "debian12-t4-container-refused", "ubuntu24.04-gtx1080ti-rtx5090-nostack"


@pytest.mark.parametrize(
    ("name", "reference", "said"), [(WSL, "GS-322", "driver of Windows"), (VGPU, "GS-323", "vGPU"), (TWO, "GS-210", "")]
)
def test_nobody_is_told_to_apply_where_apply_refuses(name, reference, said, capsys):
    refusal = apply_refused(machine(name), matrix(), resolve)
    assert (refusal.reference, said in refusal.message) == (reference, True)
    if name != WSL:  # no GPU is on PCI there: drift has nothing to compare
        compared = _compared(machine(name), "localhost", None)
        assert (compared.state, compared.mend, compared.refusals[0].reference) == ("not-applied", "", reference)
    assert planner.first(machine(name), DRIVER).plan.state == "refused"
    main(["doctor", "--root", str(HOSTS / name / "root")])
    assert "gpusetup apply" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["ubuntu24.04-rtx4090-open", "ubuntu24.04-h200x8-keep", CONTAINER])
def test_other_machines_are_told_to_apply_and_a_container_without_a_driver_is_sent_to_its_host(name):
    assert apply_refused(machine(name), matrix(), resolve) is None
    alone = apply_refused(machine(name, driver=None), matrix(), resolve)
    assert (alone is not None and "host that starts the container" in alone.hint) is (name == CONTAINER)


def test_a_service_that_is_off_is_told():
    facts = changed(applied(), services={"p": Service(unit=UNIT, active="inactive", enabled="disabled")})
    assert one(facts, "id", "mend", "now") == (f"service-{UNIT}", "apply", "disabled")
