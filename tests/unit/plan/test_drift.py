"""What differs from the last apply: one record, one host, one thing changed at a time."""

from typing import Any

import msgspec
import pytest

from gpusetup.cli.remove import removal_text
from gpusetup.model.facts import Initramfs, LoadedModule, Service
from gpusetup.model.facts_machine import ModuleFile
from gpusetup.model.lifecycle import HostRemoval, Removed
from gpusetup.plan.lifecycle import applied_id, differences, pending_reboot, removal_of
from tests.records import record

VERSION = "580.95.05"
NOUVEAU = "/etc/modprobe.d/gpusetup-nouveau.conf"
SOURCES = "/etc/apt/sources.list"
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
    "services": {"nvidia-persistenced.service": {"enabled": True}},
    "expect": {
        "driver_version": VERSION,
        "driver_module": "open",
        "python": {"path": "/opt/gpusetup", "packages": {"torch": "2.9.0"}, "adopted": False},
    },
}


def changed(facts, **parts):
    if parts.get("state") is not None:
        parts["state"] = record(parts["state"])
    return msgspec.structs.replace(facts, **parts)


@pytest.fixture
def applied(host):
    facts = host("ubuntu24.04-h200-keep")
    release = facts.kernel.next
    module = ModuleFile(path="/x/nvidia.ko", version=VERSION, flavour="open")
    kernel = next(item for item in facts.kernel.installed if item.release == release)
    installed = {**facts.packages.installed, "libc6": "2.39-2", **RECORD["brought"]}
    for name in list(installed):
        if "fabricmanager" in name:
            del installed[name]
    return changed(
        facts,
        state=RECORD,
        kernel=changed(facts.kernel, installed=(changed(kernel, nvidia=module),)),
        driver=changed(facts.driver, loaded=LoadedModule(version=VERSION, flavour="open"), library=VERSION),
        packages=changed(facts.packages, installed=installed, held=tuple(RECORD["holds"]), problems=()),
        nouveau=changed(facts.nouveau, blacklisted=True, loaded=False, initramfs=()),
        services={"p": Service(unit="nvidia-persistenced.service", active="active", enabled="enabled")},
        pythons=(
            msgspec.convert(
                {
                    "path": "/opt/gpusetup/bin/python",
                    "version": "3.12",
                    "ensurepip": True,
                    "packages": {"torch": "2.9.0"},
                },
                type(facts.pythons[0]),
            ),
        )
        if facts.pythons
        else (),
    )


def test_headers_of_a_second_kernel_beside_the_recorded_ones_are_no_difference(applied):
    newest = RECORD | {"packages": {"kernel-devel": "0:5.14.0-1.el9"}}
    both = {f"kernel-devel-{version}": version for version in ("5.14.0-1.el9", "5.14.0-2.el9")}
    newer = {"kernel-devel": "5.14.0-2.el9"}
    told = []
    for more in (both, newer):
        installed = applied.packages.installed | more
        facts = changed(applied, state=newest, packages=changed(applied.packages, installed=installed))
        told.append([(item.id, item.now) for item in differences(facts)])
    assert told == [[], [("package-kernel-devel", "5.14.0-2.el9")]]


def test_a_host_as_it_was_left_differs_in_nothing(applied):
    assert differences(applied) == ()
    assert applied_id(applied) == "20261121T010000Z-aaaaaa"


def one(facts):
    (found,) = differences(facts)
    return found


def test_packages_of_the_closure_count_and_others_do_not(applied):
    installed = {**applied.packages.installed, "libnvidia-compute": "580.126.09-1", "dkms": "3.1"}
    found = one(changed(applied, packages=changed(applied.packages, installed=installed)))
    assert (found.id, found.was, found.now) == ("package-libnvidia-compute", "580.95.05-1", "580.126.09-1")
    gone = {name: version for name, version in applied.packages.installed.items() if name != "nvidia-utils"}
    found = one(changed(applied, packages=changed(applied.packages, installed=gone)))
    assert (found.id, found.now) == ("package-nvidia-utils", "not installed")


def test_rpms_epoch_of_nothing_is_no_difference(applied):
    packages = {**RECORD["packages"], "kernel-devel": "0:5.14.0-570.12.1.el9_6"}
    installed = {**applied.packages.installed, "kernel-devel": "5.14.0-570.12.1.el9_6"}
    here = changed(
        applied, state={**RECORD, "packages": packages}, packages=changed(applied.packages, installed=installed)
    )
    assert differences(here) == ()


def test_a_hold_that_is_gone(applied):
    found = one(changed(applied, packages=changed(applied.packages, held=("nvidia-utils",))))
    assert (found.id, found.mend) == ("hold-libnvidia-compute", "apply")


@pytest.mark.parametrize(
    ("path", "now", "became"), [(NOUVEAU, "bb", "changed"), (NOUVEAU, None, "missing"), (SOURCES, "cc", "there again")]
)
def test_files(applied, path, now, became):
    files = {**RECORD["files"], path: {**RECORD["files"][path], "now": now}}
    found = one(changed(applied, state={**RECORD, "files": files}))
    assert (found.what, found.now) == (path, became)


def test_a_file_whose_present_content_nobody_read_is_not_judged(applied):
    files = {
        path: {key: value for key, value in entry.items() if key != "now"} for path, entry in RECORD["files"].items()
    }
    assert differences(changed(applied, state={**RECORD, "files": files})) == ()


def test_another_module_is_loaded_than_is_on_disk_needs_a_boot_only(applied):
    loaded = LoadedModule(version="580.65.06", flavour="open")
    found = one(changed(applied, driver=changed(applied.driver, loaded=loaded)))
    assert (found.id, found.mend, found.now) == ("loaded", "reboot", "580.65.06 (open)")


def test_a_kernel_without_a_module_and_nothing_loaded_needs_the_module_first(applied):
    kernel = changed(applied.kernel, installed=(changed(applied.kernel.installed[0], nvidia=None),))
    found = differences(changed(applied, kernel=kernel, driver=changed(applied.driver, loaded=None)))
    assert [(item.id.partition("-")[0], item.mend) for item in found] == [("module", "apply"), ("loaded", "apply")]
    assert "boots next" in found[0].what


def test_the_other_flavour_on_disk(applied):
    other = ModuleFile(path="/x/nvidia.ko", version=VERSION, flavour="proprietary")
    kernel = changed(applied.kernel, installed=(changed(applied.kernel.installed[0], nvidia=other),))
    assert one(changed(applied, kernel=kernel)).now == f"{VERSION} (proprietary)"


def test_nouveau_is_back_in_the_initramfs(applied):
    image = Initramfs(path="/boot/initrd", kernel=applied.kernel.next, nouveau=True, blacklist=False, why=None)
    found = one(changed(applied, nouveau=changed(applied.nouveau, initramfs=(image,))))
    assert (found.id, found.now) == ("nouveau-initramfs", "would start nouveau")
    kept_out = changed(image, blacklist=True)
    assert differences(changed(applied, nouveau=changed(applied.nouveau, initramfs=(kept_out,)))) == ()


def test_a_fabric_manager_that_somebody_else_brought(applied):
    installed = {**applied.packages.installed, "nvidia-fabricmanager-580": "580.126.09-1"}
    found = one(changed(applied, packages=changed(applied.packages, installed=installed)))
    assert (found.id, found.was) == ("fabric-nvidia-fabricmanager-580", f"{VERSION}, as the driver")


def test_a_service_that_is_off(applied):
    off = {"p": Service(unit="nvidia-persistenced.service", active="inactive", enabled="disabled")}
    assert one(changed(applied, services=off)).now == "disabled"
    assert one(changed(applied, services={})).now == "there is no such unit"


def test_an_apply_that_did_not_finish_is_the_one_difference(applied):
    state = {**RECORD, "apply": {"id": "x", "finished": None}, "holds": []}
    assert one(changed(applied, state=state)).id == "apply"


def test_what_removal_undoes(applied):
    removal = removal_of(applied)
    assert removal is not None
    assert removal.packages == ("dkms", "libnvidia-compute", "nvidia-utils")
    assert removal.restored == ("libc6=2.39-1", "nvidia-old=1")
    assert (removal.files_deleted, removal.files_restored) == ((NOUVEAU,), (SOURCES,))
    assert removal.initramfs
    assert removal.python == "/opt/gpusetup"
    assert "stays loaded" in pending_reboot(applied, removal)
    assert removal_of(changed(applied, state=None)) is None
    more = {"runfile": {"path": "/x.run", "version": VERSION}, "alternatives": {"cuda": "auto"}, "streams": {"a": None}}
    removal = removal_of(changed(applied, state={**RECORD, "brought": {}, "moved": {}, "taken": {}, **more}))
    assert (removal.runfile, removal.alternatives, removal.streams) == (VERSION, ("cuda",), ("a",))
    assert "stays loaded" in pending_reboot(applied, removal)
    hosts = {"a": HostRemoval(state="planned", removal=removal)}
    text = removal_text(Removed(ok=True, done=False, run="", log="", hosts=hosts))
    assert f"driver   uninstalled: {VERSION} of the .run installer" in text


def test_removal_shows_the_headers_that_followed_those_that_came(applied):
    headers = {"kernel-devel-1-1": "1-1", "kernel-devel-2-1": "2-1", "kernel-devel-matched": "2-1"}
    state = {**RECORD, "brought": {"kernel-devel": "0:1-1"}}
    removal = removal_of(
        changed(applied, state=state, packages=msgspec.structs.replace(applied.packages, installed=headers))
    )
    assert removal is not None
    assert removal.packages == ("kernel-devel-1-1", "kernel-devel-2-1")


STRAY = "/usr/local/lib/libcuda.so.570.1"


def test_what_no_apply_touches_is_for_a_person_and_names_no_command(applied):
    from gpusetup.cli.drift import _compared, drift_text
    from gpusetup.model.lifecycle import Drift

    driver = changed(applied.driver, libraries={"libcuda.so.1": ("570.1", VERSION)}, library_files={STRAY: "570.1"})
    alone = _compared(changed(applied, driver=driver), "a", "hosts.ini")
    assert (alone.state, alone.mend) == ("drifted", "")
    text = drift_text(Drift(ok=False, hosts={"a": alone}))
    assert STRAY in text
    assert "by hand: ask dpkg -S" in text
    assert "gpusetup apply" not in text
    beside = changed(applied, driver=driver, packages=changed(applied.packages, held=("nvidia-utils",)))
    assert _compared(beside, "a", "hosts.ini").mend.startswith("gpusetup apply")
