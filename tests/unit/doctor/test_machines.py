"""How a diagnosis goes, what it reads, and how the command answers; whole sick machines are judged in tests/hosts."""

import dataclasses
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpusetup.cli.doctor_hosts import captured
from gpusetup.cli.main import main
from gpusetup.content import host_code
from gpusetup.doctor import steps_software
from gpusetup.doctor.diagnose import diagnose
from gpusetup.facts.collect import matrix_lookup
from gpusetup.matrix.load import matrix
from gpusetup.model.facts import Service
from tests.records import record

HOSTS = Path(__file__).resolve().parents[2] / "hosts"
HEALTHY = HOSTS / "ubuntu24.04-h200-keep" / "root"


def look_at(root):
    return captured(root, matrix_lookup(matrix()))


def environment(root, *packages):
    folder = root / "opt/venv/lib/python3.12/site-packages"
    for package in packages:
        (folder / f"{package}.dist-info").mkdir(parents=True)
    path = root / "gpusetup-capture.json"
    capture = json.loads(path.read_text())
    capture["observations"]["environment"] = {"VIRTUAL_ENV": "/opt/venv"}
    path.write_text(json.dumps(capture))


@pytest.mark.parametrize(
    ("machine", "packages", "cause"),
    [
        ("ubuntu24.04-rtx5090-open", ["tensorflow-2.20.0"], "no-kernel-image"),
        ("debian12-t4-open", ["tensorflow-2.20.0"], None),
        ("debian12-v100-proprietary", ["jax-0.12.0", "jaxlib-0.12.0", "jax_cuda13_plugin-0.12.0"], "no-kernel-image"),
        ("debian12-v100-proprietary", ["jax-0.12.0", "jaxlib-0.12.0", "jax_cuda12_plugin-0.12.0"], None),
    ],
)
def test_the_gpu_code_of_every_framework_counts(tmp_path, machine, packages, cause):
    root = shutil.copytree(HOSTS / machine / "root", tmp_path / "root", symlinks=True)
    environment(root, *packages)
    assert (steps_software.frameworks(look_at(root)).cause or None) == cause


def test_the_loader_cache_is_read_and_a_cut_one_harms_nothing():
    names = b"libcuda.so.1\0/usr/lib/libcuda.so.1\0"
    header = struct.pack("<20sII B3x I 3I", b"glibc-ld.so.cache1.1", 1, len(names), 2, 0, 0, 0, 0)
    begin = len(header) + 24
    raw = header + struct.pack("<iIIIQ", 0x0303, begin, begin + 13, 0, 0) + names
    parse = host_code("gpu_probe.libraries").cached_files
    assert (parse(raw), parse(raw, "aarch64")) == ({"libcuda.so.1": ["/usr/lib/libcuda.so.1"]}, {})
    for cut in range(0, len(raw), 7):
        parse(raw[:cut])


UNIT = "nvidia-dcgm-exporter.service"
LOCK = {
    "schema": "gpusetup/host-lock/1", "key": "k",
    "stack": {"driver": {"version": "580.126.09", "branch": "580", "module": "open", "relation": "native"}},
    "wanted": {
        "manage_driver": True, "packages": None, "requirements": [], "adopted": [], "services": [],
        "monitoring": {"kind": "dcgm", "listen": "127.0.0.1:9400", "dcgm": "4.6.0"},
    },
}  # fmt: skip


def exporting(active: str | None, *, ours: bool) -> Any:
    found = look_at(HEALTHY)
    services = found.facts.services | {"x": Service(unit=UNIT, active=active, enabled="enabled")}
    state = record({"lock": LOCK, "services": {UNIT: {"enabled": True}}}) if ours else None
    facts = msgspec.structs.replace(found.facts, services=services, state=state)
    return dataclasses.replace(found, facts=facts)


@pytest.mark.parametrize(
    ("active", "ours", "answer"),
    [
        ("active", True, "fine"), ("inactive", True, "notice"), ("failed", True, "notice"), ("failed", False, "notice"),
        ("inactive", False, "fine"), (None, True, "fine"),
    ],
)  # fmt: skip
def test_an_exporter_that_failed_or_was_stopped_is_silent(active, ours, answer):
    outcome = steps_software.exporters(exporting(active, ours=ours))
    assert outcome.answer == answer
    if answer == "notice":
        assert (outcome.cause, f"{UNIT} is {active}" in outcome.text) == ("exporter-silent", True)
    elif ours:
        assert outcome.text == "dcgm on 127.0.0.1:9400"


def test_beside_a_silent_exporter_the_diagnosis_stays_healthy_and_says_what_to_do():
    found = diagnose(exporting("failed", ours=True))
    assert found.healthy
    (told,) = [notice for notice in found.notices if notice.cause == "exporter-silent"]
    assert any("gpusetup apply" in command for fix in told.fixes for command in fix.commands)


def test_a_jetson_is_healthy_without_a_gpu_on_pci(tmp_path, capsys):
    """As its kernel and files tell: no GPU on PCI, no nvidia-smi, a driver that no package manager brought."""
    root = shutil.copytree(HOSTS / "ubuntu22.04-wsl-refused/root", tmp_path / "root", symlinks=True)
    shutil.rmtree(root / "usr/lib/wsl")
    (root / "dev/dxg").unlink()
    for name in ("proc/sys/kernel/osrelease", "proc/version", "gpusetup-capture.json"):
        text = (root / name).read_text(encoding="utf-8")
        (root / name).write_text(text.replace("5.15.167.4-microsoft-standard-WSL2", "5.15.148-tegra"), encoding="utf-8")
    capture = json.loads((root / "gpusetup-capture.json").read_text(encoding="utf-8"))
    capture["observations"].pop("command:nvidia-smi")
    (root / "gpusetup-capture.json").write_text(json.dumps(capture), encoding="utf-8")
    assert main(["doctor", "--root", str(root)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("localhost: healthy")
    assert "a Jetson: its GPU is part of the processor" in text
    assert "it is that of Jetson Linux: update it there" in text
    assert "gpusetup apply" not in text
