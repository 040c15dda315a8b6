"""The textfile by NVIDIA's library (a stand-in) and by nvidia-smi: what it says, and that nobody ever reads half of it."""

import re
import subprocess
import sys
import time
from importlib import import_module

import pytest

from gpusetup.content import content_path
from gpusetup.monitoring.files import files

LOOK, FIGURES, SMI, LOG, NVML = (
    import_module(f"gpu_textfile.{name}") for name in ("look", "figures", "smi", "kernel_log", "nvml")
)
FILES = content_path() / "roles/gpu_monitoring/files"
SAMPLE = re.compile(r'^(\w+)(\{(?:\w+="(?:[^"\\]|\\.)*",?)*\})? (\S+)$')
ELSEWHERE = {
    "nvidia_smi_clocks_throttle_reasons_active", "nvidia_smi_gpu_info", "nvidia_smi_xid_last_timestamp_seconds",
}  # fmt: skip
"""nvidia_gpu_exporter's older name of a figure, the GPUs' names, and what the kernel's log tells."""


def samples(text):
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = SAMPLE.match(line)
            assert match, line
            found[match[1]] = float(match[3])
    return found


def test_every_figure_of_the_rules_that_the_light_exporters_have_is_written_and_no_other():
    asked = set(re.findall(r"\bnvidia_smi_\w+", files()["rules/gpusetup-recording.yml"])) - ELSEWHERE
    assert {figure.metric for figure in FIGURES.FIGURES} == asked


def answering(monkeypatch, *answers):
    """nvidia-smi as a stand-in that gives these answers, each (code, text), and the fields that it was asked for."""
    asked, left = [], list(answers)

    def run(argv, _seconds):
        asked.append(argv[1].partition("=")[2].split(","))
        code, text = left.pop(0)
        return {"rc": code, "out": text, "err": ""}

    monkeypatch.setattr(SMI.smi.commands, "run", run)
    return asked


def row(asked, **values):
    known = {"index": "0", "uuid": "GPU-aa", "name": "NVIDIA X", "pci.bus_id": "00000000:17:00.0"} | values
    return ", ".join(known.get(name, "[N/A]") for name in asked)


def test_a_field_that_this_driver_does_not_know_is_left_out_and_an_older_name_taken(monkeypatch):
    head = ["index", "uuid", "name", "pci.bus_id"]
    fields = [figure.field for figure in FIGURES.FIGURES]
    renamed = ["clocks_throttle_reasons.active" if name.startswith("clocks_event") else name for name in fields]
    last = [*head, *(name for name in renamed if name != "gpu_recovery_action"), "fabric.status"]
    values = {"clocks_throttle_reasons.active": "0x0000000000000004", "temperature.gpu": "41", "remapped_rows.pending": "Yes"}  # fmt: skip
    unknown = [
        f'Field "{name}" is not a valid field to query.\n'
        for name in ("clocks_event_reasons.active", "gpu_recovery_action")
    ]
    asked = answering(monkeypatch, (2, unknown[0]), (2, unknown[1]), (0, row(last, **values) + "\n"))
    (gpu,) = SMI.by_smi()
    assert asked[-1] == last
    assert gpu.bus == "0000:17:00"
    assert gpu.values == {
        "nvidia_smi_clocks_event_reasons_active": 4, "nvidia_smi_temperature_gpu": 41, "nvidia_smi_remapped_rows_pending": 1,
    }  # fmt: skip


def test_a_driver_that_does_not_answer_is_said_and_no_figure_is_kept(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(LOOK.nvml, "by_library", lambda: (_ for _ in ()).throw(LOOK.LibraryMissingError("none")))
    answering(monkeypatch, (9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"))
    (tmp_path / LOOK.FILE).write_text("nvidia_smi_temperature_gpu 40\n")
    assert LOOK.main(["--folder", str(tmp_path)]) == 1
    found = samples((tmp_path / LOOK.FILE).read_text())
    assert found["gpusetup_textfile_up"] == 0
    assert not any(name.startswith("nvidia_smi_") for name in found)
    assert "couldn't communicate" in capsys.readouterr().err


def test_xids_have_the_time_of_the_last_one_and_belong_to_the_gpu_on_that_bus():
    records = [
        "4,1201,5000000,-;NVRM: Xid (PCI:0000:17:00): 79, pid='<unknown>', GPU has fallen off the bus.\n",
        "4,1202,9000000,-;NVRM: Xid (PCI:0000:17:00): 79, pid=1, again\n SUBSYSTEM=pci\n",
        "4,1203,9500000,-;NVRM: Xid (PCI:0000:65:00.0): 31, pid=7, name=python\n",
        "6,1204,9500000,-;nvidia 0000:17:00.0: something else\n",
    ]
    seen = LOG.xids(records, 1_700_000_000.0)
    assert seen == {("0000:17:00", "79"): 1_700_000_009.0, ("0000:65:00", "31"): 1_700_000_009.0}
    gpus = [FIGURES.Gpu(0, "GPU-AA", 'He said "X"', "0000:17:00", {})]
    text = LOOK.text_of(gpus, seen, "", 0.01)
    assert 'nvidia_smi_xid_last_timestamp_seconds{uuid="aa",xid="79"} 1700000009' in text
    assert 'xid="31"' not in text
    assert 'name="He said \\"X\\""' in text
    assert "gpusetup_textfile_xid_readable 0" in LOOK.text_of(gpus, None, "", 0.01)


def test_whoever_reads_finds_a_whole_file_however_often_the_writer_is_killed(tmp_path):
    text = "nvidia_smi_temperature_gpu 40\n" * 40000
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\nfrom gpu_textfile import look\n"
        "while True: look.write(sys.argv[2], 'nvidia_smi_temperature_gpu 40\\n' * 40000)"
    )
    path = tmp_path / LOOK.FILE
    for round_ in range(6):
        with subprocess.Popen([sys.executable, "-S", "-c", code, str(FILES), str(tmp_path)]) as writer:
            deadline = time.monotonic() + 20
            while not path.exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.02 * round_)
            writer.kill()
        assert path.read_text() == text
        assert {item.name for item in tmp_path.iterdir()} <= {LOOK.FILE, LOOK.FILE + ".new"}


def test_a_link_in_a_folder_of_others_leads_the_writer_nowhere(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(LOOK, "look", list)
    (tmp_path / "theirs").write_text("kept")
    (tmp_path / (LOOK.FILE + ".new")).symlink_to(tmp_path / "theirs")
    assert LOOK.main(["--folder", str(tmp_path)]) == 1
    assert ((tmp_path / "theirs").read_text(), "symbolic links" in capsys.readouterr().err) == ("kept", True)


def test_a_gpu_tells_its_health_and_what_it_does_not_tell_is_left_out(nvml, told):
    told.gpu(0, recovery_action=2)
    (gpu,) = NVML.by_library(str(nvml))
    assert (gpu.number, gpu.uuid, gpu.name, gpu.bus) == (0, "GPU-0", "NVIDIA H200", "0000:18:00")
    assert {name.partition("nvidia_smi_")[2]: value for name, value in gpu.values.items()} == {
        "utilization_gpu_ratio": 0.97, "utilization_memory_ratio": 0.4, "memory_used_bytes": 100 << 30,
        "memory_total_bytes": 140 << 30, "power_draw_watts": 612, "enforced_power_limit_watts": 700, "temperature_gpu": 64,
        "clocks_current_sm_clock_hz": 1.755e9, "clocks_event_reasons_active": 4,
        "gpu_recovery_action": 2,
    }  # fmt: skip


@pytest.mark.parametrize(("state", "status", "number"), [(3, 2, 4), (2, 0, 2)])
def test_a_fabric_that_ended_with_an_error_is_not_ready_by_the_library(nvml, told, state, status, number):
    told.gpu(0, fabric_state=state, fabric_status=status)
    assert NVML.by_library(str(nvml))[0].values["nvidia_smi_fabric_state"] == number


def test_a_lost_gpu_hides_no_other_and_a_driver_that_is_not_loaded_is_said(nvml, told):
    told.machine(count=2).gpu(0, lost=1).gpu(1, uuid="GPU-1", temperature=40)
    assert [gpu.uuid for gpu in NVML.by_library(str(nvml))] == ["GPU-1"]
    told.machine(count=None)
    with pytest.raises(FIGURES.UnreadableError, match="NVML: Driver Not Loaded"):
        NVML.by_library(str(nvml))


def test_the_log_is_read_to_its_end_and_not_waited_for(tmp_path):
    path = tmp_path / "kmsg"
    path.write_text("4,1,1,-;NVRM: Xid (PCI:0000:17:00): 13, x")
    assert LOG.records(str(path)) == ["4,1,1,-;NVRM: Xid (PCI:0000:17:00): 13, x"]
    assert LOG.records(str(tmp_path / "none")) is None


@pytest.mark.parametrize(
    ("state", "status", "number"), [("Completed", "Insufficient Resources", 4), ("In Progress", "N/A", 2)]
)
def test_a_fabric_that_ended_with_an_error_is_not_ready(monkeypatch, state, status, number):
    fields = ["index", "uuid", "name", "pci.bus_id", *(figure.field for figure in FIGURES.FIGURES), "fabric.status"]
    answering(monkeypatch, (0, row(fields, **{"fabric.state": state, "fabric.status": status})))
    assert SMI.by_smi()[0].values["nvidia_smi_fabric_state"] == number
