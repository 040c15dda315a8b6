"""Each fault that real machines have, laid over a healthy capture: the verdicts it changes, and no others."""

from __future__ import annotations

import re

import pytest

from gpusetup.verify.machine import Wanted
from tests.records import lock_of, stack_document
from tests.unit.verify.verify_documents import captured, differences, drop_gpu, results, set_smi, smi_says, verdicts

LOCK = lock_of(driver="580.159.04", cupy="14.2.0")


@pytest.mark.parametrize("name", ["h200-x1-quick", "h200-x2-quick", "h200-x8-quick"])
def test_a_healthy_machine_has_no_trouble(name):
    found = verdicts(captured(name), Wanted(LOCK))
    assert "fail" not in found.values()
    assert [check for check, verdict in found.items() if verdict == "warn"] == ["driver.security"]  # as old as it is
    assert found["gpu.count"] == found["driver.version"] == found["gpu.ecc"] == "pass"


def test_a_gpu_that_fell_off_the_bus():
    healthy, broken = captured("h200-x8-quick"), captured("h200-x8-quick")
    drop_gpu(broken, 5)
    assert differences(healthy, broken)["gpu.count"] == "fail"
    found = results(broken)["gpu.count"]
    assert (found.measured, found.expected) == (7, 8)
    assert broken["facts"]["gpus"][5]["address"] in found.text


def test_a_gpu_missing_from_pci_is_known_from_the_expected_number():
    broken = captured("h200-x8-quick")
    drop_gpu(broken, 7)
    del broken["facts"]["gpus"][7]
    assert results(broken)["gpu.count"].verdict == "pass"
    assert results(broken, Wanted(gpus=8))["gpu.count"].verdict == "fail"
    broken["facts"]["virtualisation"] = {"machine_type": "p5e.48xlarge"}
    assert "1 missing from PCI" in (text := results(broken)["gpu.count"].text)
    assert text.endswith("a p5e.48xlarge has 8")
    assert results(broken, Wanted(gpus=7))["gpu.count"].verdict == "pass"


def test_a_link_that_is_down():
    healthy, broken = captured("h200-x8-quick"), captured("h200-x8-quick")
    status = broken["quick"]["nvlink_status"]["stdout"]
    first = re.search(r"GPU 3:.*?(\t Link 7: 26.562 GB/s)", status, re.DOTALL)
    broken["quick"]["nvlink_status"]["stdout"] = (
        status[: first.start(1)] + "\t Link 7: <inactive>" + status[first.end(1) :]
    )
    assert differences(healthy, broken) == {"nvlink.links": "fail"}
    text = results(broken)["nvlink.links"].text
    assert "GPU 3: 17 of 18" in text
    assert "down: 7" in text


def test_a_link_at_a_lower_rate():
    healthy, broken = captured("h200-x8-quick"), captured("h200-x8-quick")
    broken["quick"]["nvlink_status"]["stdout"] = broken["quick"]["nvlink_status"]["stdout"].replace(
        "Link 2: 26.562", "Link 2: 13.281", 1
    )
    assert differences(healthy, broken) == {"nvlink.links": "fail"}


def test_links_with_recoveries():
    healthy, broken = captured("h200-x8-quick"), captured("h200-x8-quick")
    broken["quick"]["nvlink_errors"]["stdout"] = broken["quick"]["nvlink_errors"]["stdout"].replace(
        "Recovery Errors: 0", "Recovery Errors: 3", 1
    )
    assert differences(healthy, broken) == {"nvlink.errors": "warn"}


def test_a_slot_at_half_width():
    healthy, broken = captured("h200-x8-quick"), captured("h200-x8-quick")
    set_smi(broken, 2, "pci/pci_gpu_link_info/link_widths/current_link_width", "8x")
    assert differences(healthy, broken) == {"pcie.link": "fail"}
    found = results(broken)["pcie.link"]
    assert (found.measured, found.expected) == (8, 16)


def test_a_link_below_its_generation_under_load():
    healthy, broken = captured("h200-x1-quick"), captured("h200-x1-quick")
    set_smi(broken, 0, "pci/pci_gpu_link_info/pcie_gen/current_link_gen", "3")
    assert differences(healthy, broken) == {"pcie.link": "warn"}
    set_smi(broken, 0, "performance_state", "P8")
    assert differences(healthy, broken) == {}, "an idle GPU saves power at a lower generation"


@pytest.mark.parametrize(
    ("path", "value", "verdict"),
    [
        ("ecc_errors/volatile/dram_uncorrectable", "2", "fail"),
        ("ecc_errors/volatile/sram_uncorrectable_secded", "1", "fail"),
        ("ecc_errors/aggregate/dram_uncorrectable", "1", "warn"),
        ("ecc_errors/volatile/dram_correctable", "5000", "warn"),
        ("ecc_errors/volatile/dram_correctable", "5", None),
        ("ecc_errors/aggregate/sram_threshold_exceeded", "Yes", "fail"),
        ("ecc_mode/current_ecc", "Disabled", "warn"),
        ("ecc_mode/pending_ecc", "Disabled", "warn"),
    ],
)
def test_memory_errors(path, value, verdict):
    healthy, broken = captured("h200-x2-quick"), captured("h200-x2-quick")
    set_smi(broken, 1, path, value)
    assert differences(healthy, broken) == ({"gpu.ecc": verdict} if verdict else {})


@pytest.mark.parametrize(
    ("path", "value", "verdict"),
    [
        ("remapped_rows/remapped_row_failure", "Yes", "fail"),
        ("remapped_rows/remapped_row_pending", "Yes", "warn"),
        ("remapped_rows/remapped_row_unc", "2", "warn"),
        ("ecc_errors/unrepairable_memory", "Yes", "fail"),
        ("ecc_errors/channel_repair_pending", "Yes", "warn"),
    ],
)
def test_row_remapping(path, value, verdict):
    healthy, broken = captured("h200-x2-quick"), captured("h200-x2-quick")
    set_smi(broken, 0, path, value)
    assert differences(healthy, broken) == {"gpu.memory-repair": verdict}


@pytest.mark.parametrize(
    ("single", "double", "pending", "verdict"),
    [("0", "0", "No", "pass"), ("3", "1", "No", "warn"), ("40", "30", "No", "fail"), ("1", "0", "Yes", "warn")],
)
def test_retired_pages_of_older_gpus(single, double, pending, verdict):
    document = captured("h200-x1-quick")
    for path in ("remapped_row_failure", "remapped_row_pending", "remapped_row_unc"):
        set_smi(document, 0, f"remapped_rows/{path}", "N/A")
    set_smi(document, 0, "retired_pages/multiple_single_bit_retirement/retired_count", single)
    set_smi(document, 0, "retired_pages/double_bit_retirement/retired_count", double)
    set_smi(document, 0, "retired_pages/pending_retirement", pending)
    assert verdicts(document)["gpu.memory-repair"] == verdict


def test_libraries_were_upgraded_under_the_module():
    """What unattended upgrades do: NVML refuses, and the file names say which version came."""
    healthy, broken = captured("h200-x1-quick"), captured("h200-x1-quick")
    smi_says(broken, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.178\n", 18)
    broken["facts"]["driver"]["libraries"] = {"libcuda.so.1": ["580.178.04"], "libnvidia-ml.so.1": ["580.178.04"]}
    changed = differences(healthy, broken)
    assert changed["driver.responds"] == changed["driver.version"] == changed["gpu.count"] == "fail"
    found = results(broken)
    assert "Driver/library version mismatch" in found["driver.responds"].text
    assert "580.178.04" in found["driver.version"].text
    assert "580.159.04" in found["driver.version"].text
    assert found["gpu.ecc"].verdict == "skip", "what could not be looked at is no pass"


def test_the_lock_names_another_driver():
    document = captured("h200-x1-quick")
    assert verdicts(document, Wanted(lock_of(driver="580.178.04")))["driver.version"] == "fail"


def test_the_next_boot_loads_another_module():
    document = captured("h200-x1-quick")
    document["facts"]["driver"]["module"] = "595.91.07"
    assert verdicts(document)["driver.version"] == "warn"


def test_the_wrong_flavour_for_a_gpu():
    """Blackwell with the proprietary module; and a lock that names the other one."""
    document = captured("h200-x1-quick")
    document["facts"]["driver"]["loaded"]["flavour"] = "proprietary"
    assert verdicts(document)["driver.flavour"] == "pass"
    assert verdicts(document, Wanted(LOCK))["driver.flavour"] == "fail"
    document["facts"]["gpus"][0]["pci_id"] = "10de:2901"
    found = results(document)["driver.flavour"]
    assert (found.verdict, found.measured, found.expected) == ("fail", "proprietary", "open")


def test_a_volta_with_the_open_module():
    document = captured("h200-x1-quick")
    document["facts"]["gpus"][0]["pci_id"] = "10de:1db1"
    assert verdicts(document)["driver.flavour"] == "fail"


def test_xid_79():
    healthy, broken = captured("h200-x8-quick"), captured("h200-x8-quick")
    broken["quick"]["kernel_log"]["lines"].append(
        "2026-11-21T02:00:00 gpu kernel: NVRM: Xid (PCI:0000:00:0a): 79, pid=1234, GPU has fallen off the bus."
    )
    assert differences(healthy, broken) == {"kernel.xid": "fail"}
    assert "fallen off the bus" in results(broken)["kernel.xid"].text


@pytest.mark.parametrize(
    ("number", "verdict"),
    [
        (13, "warn"),
        (31, "warn"),
        (43, "warn"),
        (48, "fail"),
        (63, "warn"),
        (64, "fail"),
        (74, "fail"),
        (94, "fail"),
        (95, "fail"),
        (119, "fail"),
        (999, "warn"),
    ],
)
def test_xids_by_gravity(number, verdict):
    document = captured("h200-x1-quick")
    document["quick"]["kernel_log"]["lines"].append(
        f"kernel: NVRM: Xid (PCI:0000:00:06): {number}, pid='<unknown>', name=<unknown>, Ch 00000008"
    )
    assert verdicts(document)["kernel.xid"] == verdict


def test_a_log_that_may_not_be_read_is_no_pass():
    document = captured("h200-x1-quick")
    document["quick"]["kernel_log"] = {
        "source": None,
        "lines": [],
        "error": "dmesg: read kernel buffer failed: Operation not permitted",
    }
    assert verdicts(document)["kernel.xid"] == verdicts(document)["driver.log"] == "skip"


@pytest.mark.parametrize(
    "reason", ["hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"]
)
def test_throttling(reason):
    healthy, broken = captured("h200-x2-quick"), captured("h200-x2-quick")
    set_smi(broken, 1, f"clocks_event_reasons/clocks_event_reason_{reason}", "Active")
    assert differences(healthy, broken) == {"gpu.throttle": "fail"}


CAPPED = {
    "clocks_event_reasons/clocks_event_reason_sw_power_cap": "Active",
    "gpu_power_readings/current_power_limit": "500.00 W",
}
FIGURES = [
    ("a power cap on an idle GPU, and a lowered limit", CAPPED, {"gpu.throttle": "warn", "gpu.power": "warn"}),
    ("too little room to the slowdown", {"temperature/gpu_temp_tlimit": "2 C"}, {"gpu.power": "warn"}),
    ("persistence is off", {"persistence_mode": "Disabled"}, {"gpu.persistence": "warn"}),
    ("a GPU asks for a reset", {"gpu_recovery_action": "Reset"}, {"gpu.recovery": "fail"}),
    ("compute is prohibited", {"compute_mode": "Prohibited"}, {"gpu.idle": "fail"}),
]


@pytest.mark.parametrize(("figures", "verdicts"), [row[1:] for row in FIGURES], ids=[row[0] for row in FIGURES])
def test_a_figure_of_nvidia_smi(figures, verdicts):
    healthy, broken = captured("h200-x1-quick"), captured("h200-x1-quick")
    for path, figure in figures.items():
        set_smi(broken, 0, path, figure)
    assert differences(healthy, broken) == verdicts


def test_mig_without_a_slice_and_with_slices():
    healthy, broken = captured("h200-x1-quick"), captured("h200-x1-quick")
    set_smi(broken, 0, "mig_mode/current_mig", "Enabled")
    set_smi(broken, 0, "mig_mode/pending_mig", "Enabled")
    assert differences(healthy, broken) == {"gpu.mig": "fail"}
    broken["gpus"][0]["slices"] = [{"profile": "3g.71gb", "uuid": "MIG-1"}]
    assert differences(healthy, broken) == {}


def test_no_driver_at_all():
    broken = captured("h200-x1-quick")
    smi_says(broken, "", 0, error="missing")
    broken["facts"] |= {"modules": [], "driver": None}
    broken["quick"]["device_files"] = {"files": [], "majors": {}}
    broken["facts"]["gpus"][0]["bound"] = None
    found = results(broken)
    for name in ("driver.responds", "driver.version", "gpu.count", "device.files"):
        assert found[name].verdict == "fail", name
    assert "no driver is installed" in found["driver.responds"].text
    assert not [
        name
        for name, result in found.items()
        if result.verdict == "pass" and name.startswith(("gpu.", "pcie.", "nvlink."))
    ]


def test_nouveau_holds_the_gpu():
    broken = captured("h200-x1-quick")
    broken["facts"]["modules"] = ["nouveau"]
    broken["facts"]["gpus"][0]["bound"] = "nouveau"
    found = results(broken)["nouveau.absent"]
    assert found.verdict == "fail"
    assert "0000:00:06.0" in found.text


def test_nouveau_comes_back_with_the_next_boot():
    document = captured("h200-x1-quick")
    kernel = document["facts"]["kernel"]["next"]
    image = {"path": f"/boot/initrd.img-{kernel}", "kernel": kernel, "nouveau": True, "blacklist": False, "why": None}
    document["facts"]["nouveau"]["initramfs"] = [image]
    assert verdicts(document)["nouveau.absent"] == "fail"
    document["facts"]["nouveau"]["cmdline_next"] = True
    assert verdicts(document)["nouveau.absent"] == "pass"
    document["facts"]["nouveau"] |= {"cmdline_next": False, "initramfs": [image | {"blacklist": True}]}
    assert verdicts(document)["nouveau.absent"] == "pass"
    document["facts"]["nouveau"]["initramfs"] = [image | {"nouveau": None, "blacklist": None, "why": "no zstd"}]
    assert verdicts(document)["nouveau.absent"] == "warn"


def test_a_host_probe_that_failed_passes_nothing():
    document = captured("h200-x1-quick") | {"facts": {"error": "KeyError: 'x'"}}
    assert set(verdicts(document).values()) == {"fail"}
    assert "KeyError" in results(document)["driver.version"].text


def test_the_lock_that_apply_recorded_is_what_is_wanted():
    """Nobody has to name it: the host's own record says which driver it should have."""
    document = captured("h200-x1-quick")
    document["facts"]["state"] = {"lock": {"stack": stack_document(driver="580.178.04"), "wanted": {}}}
    found = results(document)["driver.version"]
    assert (found.verdict, found.expected) == ("fail", "580.178.04")
    assert verdicts(document, Wanted(lock_of(driver="580.159.04")))["driver.version"] == "pass"


def test_nvidia_smi_that_hangs_is_killed_and_the_deadline_is_named():
    broken = captured("h200-x1-quick")
    smi_says(broken, "", -9, error="timeout")
    found = results(broken)["driver.responds"]
    assert found.verdict == "fail"
    assert "30 s" in found.text
    assert "killed" in found.text


def test_permission_denied():
    broken = captured("h200-x1-quick")
    smi_says(broken, "Failed to initialize NVML: Insufficient Permissions\n", 4)
    for entry in broken["quick"]["device_files"]["files"]:
        entry |= {"mode": "0660", "access": False}
    found = results(broken)
    assert "may not open" in found["driver.responds"].text
    assert found["device.files"].verdict == "fail"


def test_uvm_is_missing():
    healthy, broken = captured("h200-x1-quick"), captured("h200-x1-quick")
    broken["quick"]["device_files"]["files"] = [
        entry for entry in broken["quick"]["device_files"]["files"] if "uvm" not in entry["path"]
    ]
    assert differences(healthy, broken) == {"device.files": "fail"}


def test_a_stale_cdi_description():
    document = captured("h200-x1-quick")
    document["quick"]["containers"] = {
        "ctk": {"rc": 0, "error": None, "stdout": "NVIDIA Container Toolkit CLI version 1.18.0\n", "stderr": ""},
        "cdi": [
            {
                "path": "/var/run/cdi/nvidia.yaml",
                "kind": "nvidia.com/gpu",
                "devices": ["0", "all"],
                "driver_versions": ["580.159.04"],
            }
        ],
    }
    assert verdicts(document)["container.toolkit"] == "pass"
    document["quick"]["containers"]["cdi"][0]["driver_versions"] = ["570.86.15"]
    assert verdicts(document)["container.toolkit"] == "fail"


def test_a_machine_without_a_gpu_proves_nothing():
    document = captured("h200-x1-quick")
    smi_says(document, "", 0, error="missing")
    document["facts"]["gpus"] = []
    assert set(verdicts(document).values()) == {"skip"}


def test_a_simulated_gpu_is_skipped():
    document = captured("h200-x8-quick") | {"simulated": True}
    assert set(verdicts(document).values()) == {"skip"}


def test_the_next_kernel_has_no_module():
    document = captured("h200-x1-quick")
    assert verdicts(document)["driver.next_boot"] == "skip", "a container's kernel is another machine's"
    loaded = results(document)["driver.version"].measured
    kernel = document["facts"]["kernel"]

    def next_boot(release, version):
        module = {"path": "x", "version": version, "flavour": "open", "signer": None}
        item = {"release": release, "nvidia": module if version else None}
        document["facts"]["kernel"] = {**kernel, "next": release, "installed": [item]}
        return results(document)["driver.next_boot"]

    assert next_boot(kernel["running"], loaded).verdict == "pass"
    gone = next_boot("6.99.0-1-generic", None)
    assert gone.verdict == "fail"
    assert "6.99.0-1-generic boots next and has no nvidia module" in gone.text
    other = next_boot("6.99.0-1-generic", "1.2.3")
    assert other.verdict == "fail"
    assert "is 1.2.3" in other.text
