"""The rules, dashboards and examples of `gpusetup export monitoring` with Debian's real Prometheus, Alertmanager and promtool.

The exporters are stand-ins: texts in the form of dcgm-exporter (both generations) and nvidia_gpu_exporter, after their documentation.
"""

import json
import re

import pytest

from tests.lab.process import run, until
from tests.lab.prometheus import NEXT, Exporter, program, running

OLD = """
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-aa",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"} 97
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-aa",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"} 1024
DCGM_FI_DEV_FB_TOTAL{gpu="0",UUID="GPU-aa",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"} 81559
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-aa",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"} 41
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-aa",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"} 1980
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-aa",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"} 350.5
DCGM_FI_DEV_THERMAL_VIOLATION{gpu="0",UUID="GPU-aa",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"} 2500000
DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu="0",UUID="GPU-aa",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"} 0
"""
NEW = """
DCGM_FI_DEV_GPU_UTIL_RATIO{gpu="1",UUID="GPU-bb",modelName="NVIDIA H200",hostname="n2"} 0.97
DCGM_FI_DEV_FB_USED_BYTES{gpu="1",UUID="GPU-bb",modelName="NVIDIA H200",hostname="n2"} 1073741824
DCGM_FI_DEV_FB_CAPACITY_BYTES{gpu="1",UUID="GPU-bb",modelName="NVIDIA H200",hostname="n2"} 150754820096
DCGM_FI_DEV_GPU_TEMP_CELSIUS{gpu="1",UUID="GPU-bb",modelName="NVIDIA H200",hostname="n2"} 41
DCGM_FI_DEV_SM_CLOCK_HERTZ{gpu="1",UUID="GPU-bb",modelName="NVIDIA H200",hostname="n2"} 1.98e+09
DCGM_FI_DEV_BOARD_POWER_WATTS{gpu="1",UUID="GPU-bb",modelName="NVIDIA H200",hostname="n2"} 350.5
DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL{gpu="1",UUID="GPU-bb",modelName="NVIDIA H200",hostname="n2"} 2.5
"""
PERCENT_UNDER_THE_NEW_NAME = """
DCGM_FI_DEV_GPU_UTIL_RATIO{gpu="0",UUID="GPU-cc",modelName="NVIDIA H200",hostname="n3"} 97
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-cc",modelName="NVIDIA H200",hostname="n3"} 41
"""
SMI = """
nvidia_smi_gpu_info{uuid="dd",index="0",name="NVIDIA GeForce RTX 4090"} 1
nvidia_smi_utilization_gpu_ratio{uuid="dd"} 0.97
nvidia_smi_memory_used_bytes{uuid="dd"} 1.073741824e+09
nvidia_smi_memory_total_bytes{uuid="dd"} 2.5757220864e+10
nvidia_smi_temperature_gpu{uuid="dd"} 41
nvidia_smi_clocks_current_sm_clock_hz{uuid="dd"} 1.98e+09
nvidia_smi_power_draw_watts{uuid="dd"} 350.5
"""
BROKEN = OLD.replace(
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{", 'DCGM_EXP_XID_ERRORS_COUNT{xid="79",'
).replace('"n1"} 0\n', '"n1"} 1\n')  # fmt: skip


@pytest.fixture(params=["", pytest.param(NEXT, marks=pytest.mark.slow)], ids=["stable", "next"])
def suite(request):
    """The release of Debian whose Prometheus is asked: this one's, and the next one's, which is of another major."""
    return str(request.param)


def promtool(folder, *words, suite=""):
    finished = run([program("promtool", suite), *words], cwd=folder, timeout=600, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_promtool_and_amtool_accept_the_files(written, suite):
    version = run([program("promtool", suite), "--version"], check=False).stdout
    assert (int(re.search(r"version (\d+)", version)[1]) >= 3) == (suite == NEXT), version
    rules = ("rules/gpusetup-recording.yml", "rules/gpusetup-alerts.yml")
    promtool(written, "check", "rules", *rules, suite=suite)
    promtool(written, "check", "config", "prometheus-example.yml", suite=suite)
    run([program("amtool", suite), "check-config", "alertmanager-example.yml"], cwd=written)


def test_every_alert_fires_and_is_silent_as_its_tests_say(written, suite):
    promtool(written / "rules", "test", "rules", "gpusetup-tests.yml", suite=suite)


def test_a_recorded_exporter_goes_bad_and_the_alert_arrives(written, suite):
    receiver = Exporter("")
    exporters = [Exporter(text) for text in (OLD, NEW, PERCENT_UNDER_THE_NEW_NAME, SMI)]
    with running(written, [exporter.address for exporter in exporters], receiver, suite=suite) as prometheus:
        until(lambda: len(prometheus.ask("gpu:utilization:ratio")) == len(exporters), "figures of every exporter")
        for name, value in (
            ("gpu:utilization:ratio", 0.97),
            ("gpu:sm_clock:hertz", 1.98e9),
            ("gpu:memory_used:bytes", 2**30),
            ("gpu:power:watts", 350.5),
            ("gpu:thermal_throttle:seconds_total", 2.5),
        ):
            until(lambda name=name: prometheus.ask(name), f"the rule {name}, which is evaluated after the first")
            found = {row["metric"]["uuid"]: float(row["value"][1]) for row in prometheus.ask(name)}
            assert all(other == pytest.approx(value) for other in found.values()), (name, found)
        models = {row["metric"]["model"] for row in prometheus.ask("gpu:temperature:celsius")}
        assert models == {"NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA GeForce RTX 4090"}
        assert receiver.alerts() == set()
        exporters[0].text = BROKEN
        until(lambda: "GpuXidFatal" in receiver.alerts(), "the alert at its receiver")
        message = next(alert for m in receiver.received for alert in m["alerts"])
        assert message["labels"]["xid"] == "79"
        assert message["annotations"]["runbook"] == "gpusetup doctor GpuXidFatal"
        for path in (written / "dashboards").iterdir():
            for panel in json.loads(path.read_text())["panels"]:
                for target in panel["targets"]:
                    prometheus.ask(target["expr"].replace("$instance", ".*").replace("$gpu", ".*"))
        exporters[0].text = OLD
        until(lambda: "GpuXidFatal" in receiver.alerts("resolved"), "the word that it is over")
