"""Sealing: what is one machine's own goes, what the copies need stays."""

from pathlib import Path

import msgspec
import pytest

from gpusetup.bootstrap import effects
from gpusetup.bootstrap.userdata import Config, read_config
from gpusetup.drive.runner import Finished

CONFIG = Config(
    source="https://x.example", manifest_sha256="0" * 64, stage="image", recheck=60, callback="https://cb.example"
)


@pytest.fixture
def commands(monkeypatch):
    ran: list[list[str]] = []

    def run(argv: list[str], **_: object) -> Finished:
        ran.append(argv)
        return Finished(argv=tuple(argv), code=0, out="", err="", seconds=0.0)

    monkeypatch.setattr(effects.shutil, "which", lambda name: f"/usr/bin/{name}" if name != "dnf" else None)
    monkeypatch.setattr(effects, "run", run)
    return ran


def make(root: Path, path: str, text: str = "x") -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_a_sealed_machine_is_nobody_in_particular(tmp_path, commands):
    own_state, etc = "var/lib/gpusetup", "etc/gpusetup"
    names = f"{own_state}/first-boot", f"{own_state}/bootstrap/runs/1/log", f"{etc}/callback.token"
    gone = [make(tmp_path, name) for name in (*names, "var/lib/systemd/random-seed")]
    names = f"{etc}/lock.json", f"{etc}/environment", f"{own_state}/state.json"
    kept = [make(tmp_path, name) for name in (*names, "opt/gpusetup-controller/bin/gpusetup")]
    own, bus = make(tmp_path, "etc/machine-id", "a" * 32), make(tmp_path, "var/lib/dbus/machine-id", "a" * 32)
    for _ in range(2):
        effects.seal(CONFIG, print, tmp_path)
        assert not [path for path in gone if path.exists()]
        assert all(path.read_text() == "x" for path in kept)
        assert own.read_text() == ""
        assert bus.is_symlink()
    assert ["cloud-init", "clean", "--logs", "--seed"] in commands
    assert ["dnf", "clean", "packages"] not in commands
    start = tmp_path / "var/lib/cloud/scripts/per-boot/50-gpusetup"
    assert start.stat().st_mode & 0o777 == 0o755
    assert "launcher boot" in start.read_text()
    file = tmp_path / "etc/gpusetup/bootstrap.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert read_config(file) == msgspec.structs.replace(CONFIG, stage="", callback="")
