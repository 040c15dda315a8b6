"""What is on record against what is there: packages, versions in every spelling; whether the driver runs or a reboot helps."""

import copy
from typing import Any

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import drift, driver, versions

from tests.stored import stored_rows

VERSION = "580.95.05"
PATH = "/lib/modules/6.1.0-2/updates/dkms/nvidia.ko"
MODULE = {"path": PATH, "version": VERSION, "flavour": "open", "signed": None, "signer": None, "key": None}
FACTS: dict[str, Any] = {
    "simulated": False,
    "kernel": {"running": "6.1.0-2", "next": "6.1.0-2", "installed": [{"release": "6.1.0-2", "nvidia": MODULE}]},
    "modules": ["nvidia"],
    "module_users": {"nvidia": {"references": 0, "holders": []}},
    "driver": {
        "loaded": {"version": VERSION, "flavour": "open"},
        "library": VERSION,
        "libraries": {"libcuda.so.1": [VERSION]},
    },
    "nouveau": {"loaded": False, "blacklisted": True, "initramfs": []},
    "secure_boot": False,
    "firmware": {"signing_keys": [], "password": None},
    "processes": [],
    "packages": {"installed": {}, "held": [], "problems": []},
    "services": {},
    "pythons": [],
}


@pytest.fixture
def facts():
    """The wanted driver runs and nothing is wrong."""
    return copy.deepcopy(FACTS)


RECORD: dict[str, Any] = {
    "packages": {"nvidia-driver": "535.1-1", "cuda-toolkit": "13.0-1"},
    "brought": {"nvidia-driver": "535.1-1", "nvidia-smi": "0:535.1-1", "dkms": "3.0", "cuda-toolkit": "13.0-1"},
    "holds": ["nvidia-driver", "nvidia-smi"],
}
INSTALLED = {"nvidia-driver": "535.1-1", "nvidia-smi": "535.1-1", "dkms": "3.0", "cuda-toolkit": "13.0-1"}
WISHES = {"nvidia-driver": "535.1-*", "cuda-toolkit": ""}


@pytest.mark.parametrize(
    ("gone", "record", "wishes", "asked"),
    [
        ((), RECORD, WISHES, {}),
        (("nvidia-smi", "dkms"), RECORD, WISHES, {"nvidia-smi": "535.1-1"}),
        (("nvidia-driver",), RECORD, WISHES, {}),  # the wish says it already
        (("nvidia-smi",), {}, WISHES, {}),
        (("nvidia-smi",), RECORD, {**WISHES, "libcudnn9": ""}, {"nvidia-smi": "535.1-1"}),  # beside something new
        (("nvidia-smi",), RECORD, {**WISHES, "nvidia-driver": "580.1-1"}, {}),  # where the driver moves
    ],
)
def test_what_came_with_the_driver_and_was_taken_away_is_asked_for_again(gone, record, wishes, asked):
    installed = {name: version for name, version in INSTALLED.items() if name not in gone}
    assert drift.missing(installed, record, wishes) == asked


@pytest.mark.parametrize(("kept", "gone"), [([], ["a-1", "a-2:i386"]), (["a-1"], ["a-2:i386"]), (["a-2"], ["a-1"])])
def test_what_must_go_fits_a_pattern_and_nobody_asks_for_it(kept, gone):
    assert drift.unwanted({"a-1": "1", "a-2:i386": "1", "b": "1"}, ["a-*"], kept) == gone


def test_another_default_among_several_toolkits_is_a_difference(facts):
    roots = [{"version": version, "path": f"/usr/local/cuda-{version}"} for version in ("12.8", "13.0")]
    record = {"lock": {"wanted": {"packages": {"cuda_roots": roots, "cuda_default": "12.8"}}}}
    facts["cuda"] = {"default": "/usr/local/cuda-12.8"}
    assert drift.differences(facts, record) == []
    facts["cuda"] = {"default": "/usr/local/cuda-13.0"}
    (found,) = drift.differences(facts, record)
    assert (found.id, found.was, found.now) == ("cuda-default", "/usr/local/cuda-12.8", "/usr/local/cuda-13.0")
    del roots[1]
    assert drift.differences(facts, record) == []


def test_a_description_of_another_driver_is_a_difference(facts):
    record = {"services": {"nvidia-cdi-refresh.service": {"was_enabled": True}}}
    facts["containers"] = {"cdi_drivers": [VERSION]}
    assert drift.differences(facts, record) == []
    facts["containers"] = {"cdi_drivers": ["535.54.03"]}
    (found,) = drift.differences(facts, record)
    assert (found.id, found.was, found.now) == ("cdi", f"driver {VERSION}", "driver 535.54.03")
    assert drift.differences(facts, {}) == []


@pytest.mark.parametrize(("version", "wanted", "fits"), stored_rows("versions-that-fit.json"))
def test_a_version_fits_or_not(version, wanted, fits):
    assert versions.fits(version, wanted) is fits


@pytest.mark.parametrize(
    ("installed", "there"),
    [
        ({"kernel-devel": "0:1-1"}, ["kernel-devel"]),
        ({"kernel-devel-1-1": "1-1", "kernel-devel-2-1": "2-1"}, ["kernel-devel-1-1", "kernel-devel-2-1"]),
        ({"kernel-devel-matched": "1-1"}, []),
    ],
)
def test_what_is_on_record_is_found_beside_versions_that_followed_it(installed, there):
    assert versions.places(installed, "kernel-devel", "0:1-1") == there
    for name, version in installed.items():
        assert versions.recorded_as({"kernel-devel": "0:1-1"}, name, version) == ("kernel-devel" if there else None)


def test_one_of_several_on_record_is_found_when_it_is_the_only_one_left():
    assert versions.places({"kernel-devel": "0:2-1"}, "kernel-devel-2-1", "2-1") == ["kernel-devel"]
    assert versions.places({"kernel-devel": "0:1-1"}, "kernel-devel-2-1", "2-1") == []
    assert versions.recorded_as({"kernel-devel-2-1": "2-1"}, "kernel-devel", "0:2-1") == "kernel-devel-2-1"


def test_pins_are_read_from_a_requirements_file():
    lines = [
        "--index-url https://x", "CuPy_cuda12x==13.4.0 \\", "    --hash=sha256:1", "torch[extra] == 2.6.0+cu124",
        "tomli==2 ; python_version<'3.11'", "nvidia-nvjitlink<13.1", "# x",
    ]  # fmt: skip
    assert versions.pins(lines) == {"cupy-cuda12x": "13.4.0", "torch": "2.6.0+cu124"}


WISH = driver.Wish(VERSION, "open")


def loaded(version, flavour):
    return {"driver": {"loaded": {"version": version, "flavour": flavour}}}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (loaded("570.1", "open"), ["nvidia 570.1 is loaded, 580.95.05 is wanted"]),
        (loaded(VERSION, "proprietary"), ["the proprietary module is loaded, the open one is wanted"]),
        (loaded(VERSION, None), []),
        ({"driver": None, "nouveau": {"loaded": True}}, ["nouveau is loaded", "nvidia 580.95.05 is wanted, none is loaded"]),
    ],
)  # fmt: skip
def test_the_need_for_a_reboot_comes_from_the_hosts_state(facts, change, says):
    assert driver.reboot_reasons({**facts, **change}, WISH) == says
    nothing = {**facts, "driver": None}, driver.Wish("")  # no driver is wanted
    assert (driver.reboot_reasons(*nothing), driver.module_problems(*nothing)) == ([], {})


def test_an_unknown_key_is_told_with_where_its_password_is(facts):
    facts.update(secure_boot=True, driver=None)
    key = {"serial": "1a", "issuer": "DKMS", "key": "2b", "enrolled": False}
    facts["firmware"] = {"signing_keys": [key], "password": "/var/lib/gpusetup/mok-password"}
    facts["kernel"]["installed"][0]["nvidia"].update(signed=True, signer="DKMS", key="1a")
    assert "mok-password" in driver.reboot_reasons(facts, WISH)[-1]
    facts["firmware"]["password"] = None
    assert driver.reboot_reasons(facts, WISH)[-1].endswith("Enroll MOK at the console")
    assert "does not trust the key that signed" in (driver.obstacle(facts, WISH) or "")
    key["enrolled"] = True
    assert driver.obstacle(facts, WISH) is None
    key.update(enrolled=False, serial="1b")
    assert driver.obstacle(facts, WISH) is None  # signed by somebody else: whether the kernel knows them, it shows


@pytest.mark.parametrize(("users", "says"), stored_rows("modules-in-use.json"))
def test_modules_of_others_and_displays_are_seen_before_anything_is_unloaded(facts, users, says):
    facts["module_users"] = {name: {"references": count, "holders": by} for name, (count, by) in users.items()}
    assert driver.obstacle(facts, WISH) == (says and f"in use by {says}")


def test_what_will_be_built_counts_as_there(facts):
    facts["kernel"]["installed"] = []
    assert driver.obstacle(driver.built(facts, WISH), WISH) is None
    facts["simulated"] = True
    assert driver.obstacle(driver.built(facts, WISH), WISH) is not None


def test_a_kernel_that_runs_without_a_module_boots_into_the_other(facts):
    record = {"expect": {"driver_version": VERSION, "driver_module": "open"}}
    assert drift.differences(facts, record) == []
    facts["kernel"]["running"] = "5.10"
    assert [(found.id, found.now) for found in drift.differences(facts, record)] == [("kernel", "5.10")]
    facts["driver"] = None
    boots = "kernel 5.10 runs, the driver is there for 6.1.0-2"
    assert driver.reboot_reasons(facts, WISH) == [boots, f"nvidia {VERSION} is wanted, none is loaded"]
    assert driver.obstacle(facts, WISH) == f"the running kernel 5.10 has no module {VERSION}"
    other = driver.module_problem({"version": VERSION, "flavour": "proprietary"}, "5.10", WISH)
    assert (other or "").endswith("the proprietary one, not the open one")


def test_programs_are_in_the_way_and_the_drivers_own_services_are_not(facts):
    facts["processes"] = [{"pid": 1, "command": "nvidia-persiste"}, {"pid": 77, "command": "python3"}]
    assert driver.obstacle(facts, WISH) == "in use by python3 (77)"


def test_a_module_by_another_key_than_the_kernel_lists_is_not_taken(facts):
    facts["secure_boot"] = True
    facts["firmware"]["trusted_keys"] = [{"name": "CA", "serial": "1a", "issuer": "CA", "key": "2b"}]
    assert driver.taken(facts, {"signed": True, "signer": "CA", "key": "1b"}) is None


def test_an_environment_without_its_interpreter_is_a_difference(facts):
    python = {"path": "/opt/gpusetup", "packages": {}, "adopted": True, "now": "no such interpreter"}
    (found,) = drift.differences(facts, {"expect": {"python": python}})
    assert (found.id, found.now) == ("python", "no such interpreter")


def test_of_a_package_database_that_cannot_be_read_only_that_is_told(facts):
    record = {"packages": {"driver": "1"}, "open": {"unit:x": {"what": "unit x", "aim": "be enabled", "since": "1"}}}
    facts["packages"].update(installed={"driver": "2"}, problems=["no answer"])
    begun = "to be enabled, begun at 1 and not finished"
    told = [(found.what, found.now) for found in drift.differences(facts, record)]
    assert told == [("unit x", begun), ("package driver", "2"), ("the package database", "no answer")]


def test_a_stray_library_of_a_package_that_goes_needs_nobody(facts):
    facts["driver"]["libraries"] = {"libcuda.so.1": ["570.1", VERSION]}
    facts["packages"]["installed"] = {"nvidia-driver": f"{VERSION}-1", "libnvidia-compute-570-server": "570.1-1"}
    lock = {"wanted": {"packages": {"remove": ["libnvidia-compute-570*"]}}}
    record = {"expect": {"driver_version": VERSION}, "packages": {"nvidia-driver": f"{VERSION}-1"}, "lock": lock}
    assert [(found.mend, found.now) for found in drift.differences(facts, record)] == [("apply", "570.1")]
