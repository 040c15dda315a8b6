"""gpu_container_runtime: what nvidia-ctk would write is written through the record, and by nobody else."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import LiveHost, containers
from ansible_collections.gpusetup.stack.plugins.modules import gpu_container_runtime

_CTK = Path(__file__).parents[1] / "lab/repository/stand_in/nvidia-ctk"
_SYSTEMCTL = """#!/bin/sh
# Units are files in $STAND_IN_ROOT/units; what is done to them is noted. The refresh service writes what the real one does.
echo "$@" >>"$STAND_IN_ROOT/did"
case "$1" in
restart) [ ! -e "$STAND_IN_ROOT/broken" ] || { echo "Job for $2 failed" >&2; exit 1; } ;;
start) [ "$2" != nvidia-cdi-refresh.service ] || { mkdir -p "$STAND_IN_ROOT/run/cdi"; : >"$STAND_IN_ROOT/run/cdi/nvidia.yaml"; } ;;
show)
  shift
  for unit; do
    case "$unit" in --*) continue ;; esac
    loaded=not-found active=inactive enabled=disabled
    [ ! -e "$STAND_IN_ROOT/units/$unit" ] || { loaded=loaded; active=$(cat "$STAND_IN_ROOT/units/$unit"); }
    grep -q "^enable .*$unit" "$STAND_IN_ROOT/did" && enabled=enabled
    case "$unit" in *.path) [ $enabled = enabled ] && active=active ;; esac
    printf 'Id=%s\\nLoadState=%s\\nActiveState=%s\\nUnitFileState=%s\\n' "$unit" $loaded $active $enabled
    printf 'ActiveEnterTimestampMonotonic=%s\\n\\n' "$(cat "$STAND_IN_ROOT/since" 2>/dev/null)"
  done ;;
esac
"""


class Host:
    """A host below a folder, with a stand-in nvidia-ctk and systemctl."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.monkeypatch = monkeypatch
        settings = {name: tuple(f"{root}{path}" for path in paths) for name, paths in containers.SETTINGS.items()}
        (root / "bin").mkdir()
        (root / "units").mkdir()
        monkeypatch.setenv("PATH", f"{root}/bin:{os.environ['PATH']}")
        monkeypatch.setenv("STAND_IN_ROOT", str(root))
        monkeypatch.setattr(containers, "SETTINGS", settings)
        monkeypatch.setattr(containers, "CDI_FOLDERS", (f"{root}/etc/cdi", f"{root}/run/cdi"))
        monkeypatch.setattr(gpu_container_runtime, "CDI", f"{root}/etc/cdi/nvidia.yaml")
        monkeypatch.setattr(gpu_container_runtime, "DRIVER", f"{root}/dev/nvidiactl")
        self.program("systemctl", _SYSTEMCTL)
        self.toolkit("1.20.0")

    def program(self, name: str, text: str) -> None:
        path = self.root / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def toolkit(self, version: str) -> None:
        self.program("nvidia-ctk", _CTK.read_text().replace("@VERSION@", version))

    def file(self, path: str, text: str | None = None, mode: int = 0o644) -> Path:
        found = self.root / path
        if text is not None:
            found.parent.mkdir(parents=True, exist_ok=True)
            found.write_text(text)
            found.chmod(mode)
        return found

    def running(self, runtime: str, since: float) -> None:
        """Have a runtime that has been active since some seconds before now."""
        (self.root / f"units/{runtime}.service").write_text("active")
        (self.root / "since").write_text(str(int((time.monotonic() - since) * 1e6)))

    @property
    def did(self) -> str:
        return (self.root / "did").read_text() if (self.root / "did").exists() else ""

    def tree(self) -> dict[str, tuple[bytes, int]]:
        """Return every file below etc, with its mode."""
        return {
            str(path.relative_to(self.root)): (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
            for path in sorted((self.root / "etc").rglob("*"))
            if path.is_file()
        }

    def folders(self) -> list[Path]:
        return sorted(path for path in (self.root / "etc").rglob("*") if path.is_dir())

    def remove(self) -> None:
        """Do with the recorded files what removal does."""
        ledger = Ledger(str(self.root / "state"))
        for path in sorted(ledger.state["files"], reverse=True):
            ledger.restore(path)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


@pytest.fixture
def call(run_module: Any, host: Host) -> Any:
    def told(*runtimes: str, check: bool = False, fails: bool = False, **more: Any) -> dict[str, Any]:
        options = {"cdi": False, **more}
        given = {"state_dir": str(host.root / "state")}
        failed, result = run_module(gpu_container_runtime, check=check, host=given, runtimes=list(runtimes), **options)
        assert failed == fails, result
        return dict(result)

    return told


_FOUND = {
    "containerd": ("etc/containerd/config.toml", '# ours\nimports = ["/srv/more/*.toml"]\nversion = 2\n'),
    "crio": ("etc/crio/crio.conf", '# ours\n[crio.runtime]\ndefault_runtime = "crun"\n'),
    "docker": ("etc/docker/daemon.json", '{"log-driver": "journald"}\n'),
}


@pytest.mark.parametrize("version", ["1.17.8", "1.20.0"])
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("runtime", sorted(_FOUND))
def test_a_runtime_is_told_once_and_forgets_it_on_removal(
    call: Any, host: Host, runtime: str, there: bool, version: str
) -> None:
    host.toolkit(version)
    (host.root / "etc").mkdir()
    path, text = _FOUND[runtime]
    if there:
        host.file(path, text, 0o600)
    before, folders = host.tree(), host.folders()
    assert call(runtime, check=True)["changed"]
    assert host.tree() == before
    assert call(runtime)["changed"]
    after = host.tree()
    assert runtime in containers.collect(LiveHost(), {})["configured"]
    assert all(mode == (before[name][1] if name in before else 0o644) for name, (_raw, mode) in after.items())
    assert str(host.root / "etc") in json.dumps(Ledger(str(host.root / "state")).state["files"])
    assert not any(b"/tmp/gpusetup-" in raw for raw, _mode in after.values())
    assert not call(runtime, check=True)["changed"]
    assert not call(runtime)["changed"]
    assert host.tree() == after
    host.remove()
    assert host.tree() == before
    assert host.folders() == folders


def test_containerd_imports_the_drop_in_once_and_what_it_did_before(call: Any, host: Host) -> None:
    host.file(*_FOUND["containerd"])
    call("containerd")
    pattern = f"{host.root}/etc/containerd/conf.d/*.toml"
    assert f'imports = ["/srv/more/*.toml", "{pattern}"]' in host.file("etc/containerd/config.toml").read_text()
    assert "nvidia-container-runtime" in host.file("etc/containerd/conf.d/99-nvidia.toml").read_text()
    call("containerd")
    assert host.file("etc/containerd/config.toml").read_text().count("conf.d") == 1


def test_an_import_that_was_there_is_not_doubled(call: Any, host: Host) -> None:
    text = f'imports = ["{host.root}/etc/containerd/conf.d/*.toml"]\nversion = 2\n'
    host.file("etc/containerd/config.toml", text)
    call("containerd")
    assert host.file("etc/containerd/config.toml").read_text() == text


def test_cri_o_gets_its_drop_in_where_it_reads_it(call: Any, host: Host) -> None:
    call("crio")
    assert list(host.tree()) == ["etc/crio/crio.conf.d/99-nvidia.toml"]


def test_a_link_stays_a_link(call: Any, host: Host) -> None:
    real = host.file("srv/daemon.json", "{}", 0o640)
    link = host.file("etc/docker/daemon.json")
    link.parent.mkdir(parents=True)
    link.symlink_to(real)
    call("docker")
    assert (link.is_symlink(), stat.S_IMODE(real.stat().st_mode)) == (True, 0o640)
    assert "nvidia" in real.read_text()


def test_settings_that_are_no_json_stay_as_they_are(call: Any, host: Host) -> None:
    host.file("etc/docker/daemon.json", "{oh")
    told = call("docker", fails=True)
    assert "GS-490: nvidia-ctk could not configure docker" in told["msg"]
    assert host.file("etc/docker/daemon.json").read_text() == "{oh"


def test_what_only_root_may_read_is_not_shown(call: Any, host: Host) -> None:
    host.file("etc/docker/daemon.json", '{"http-proxy": "http://me:hunter2@proxy"}', 0o600)
    assert "hunter2" not in json.dumps(call("docker"))
    assert "hunter2" in host.file("etc/docker/daemon.json").read_text()


def test_a_running_runtime_waits_for_its_restart_until_it_had_one(call: Any, host: Host) -> None:
    host.running("docker", since=60)
    assert call("docker")["pending"] == ["docker"]
    told = call("docker")  # nothing is written any more, and it runs as it did
    assert (told["changed"], told["pending"]) == (False, ["docker"])
    time.sleep(0.1)
    host.running("docker", since=0)
    assert call("docker")["pending"] == []
    assert "restart" not in host.did


def test_a_runtime_that_does_not_run_waits_for_nothing(call: Any) -> None:
    assert call("docker")["pending"] == []


def test_a_restart_is_made_up_for_after_a_cut(call: Any, host: Host) -> None:
    host.running("containerd", since=60)
    call("containerd")
    told = call("containerd", restart=True)
    assert (told["changed"], told["pending"]) == (True, [])
    assert "restart containerd" in host.did


def test_nothing_is_restarted_in_a_check(call: Any, host: Host) -> None:
    host.running("docker", since=60)
    assert call("docker", restart=True, check=True)["pending"] == ["docker"]
    assert "restart" not in host.did


def test_a_runtime_that_does_not_come_back_is_said(call: Any, host: Host) -> None:
    host.running("docker", since=60)
    host.file("broken", "")
    told = call("docker", restart=True, fails=True)
    assert "docker did not start with its new configuration" in told["msg"]
    assert "Job for docker failed" in told["msg"]


def test_podman_needs_the_specification_alone(call: Any, host: Host) -> None:
    host.file("dev/nvidiactl", "")
    assert call("podman", check=True)["changed"]
    assert not host.file("etc/cdi").exists()
    assert call("podman")["changed"]
    assert "podman" in containers.collect(LiveHost(), {})["configured"]
    assert not call("podman")["changed"]
    host.remove()
    assert not host.file("etc/cdi/nvidia.yaml").exists()


def test_the_toolkits_own_units_write_the_specification(call: Any, host: Host) -> None:
    host.file("dev/nvidiactl", "")
    for unit in gpu_container_runtime.REFRESH:
        (host.root / "units" / unit).write_text("inactive")
    assert call(cdi=True)["changed"]
    assert host.file("run/cdi/nvidia.yaml").exists()
    assert not host.file("etc/cdi/nvidia.yaml").exists()
    assert not call(cdi=True)["changed"]


def test_a_check_before_the_toolkit_is_there_tells_of_a_change(call: Any, host: Host) -> None:
    (host.root / "bin/nvidia-ctk").unlink()
    host.monkeypatch.setenv("PATH", f"{host.root}/bin:/usr/bin:/bin")
    assert call("docker", check=True)["changed"]
    assert "nvidia-ctk is not there" in call("docker", fails=True)["msg"]
