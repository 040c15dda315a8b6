"""gpu_container_runtime: what nvidia-ctk would write is written through the record, and by nobody else.

nvidia-ctk, systemctl and the container runtimes are stand-ins below a folder.
"""

import json
import os
import stat
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import (
    cdi,
    container_runtimes,
    process,
    systemd,
)
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import containers, modules
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe.host import LiveHost
from ansible_collections.gpusetup.stack.plugins.modules import gpu_container_runtime

from tests.modules.stand_ins import below, programs, replace, write
from tests.stored import stored

_CTK = Path(__file__).parents[1] / "lab/repository/stand_in/nvidia-ctk"
_CONTAINERD = Path(__file__).with_name("stand_in_containerd.py")
_DOCKERD = stored("container_host_dockerd.txt")
_DOCKER = stored("container_host_docker.txt")
_CTR = stored("container_host_ctr.txt")
_SYSTEMCTL = stored("container_host_systemctl.txt")


class Host:
    def __init__(self, root, monkeypatch):
        self.root, self.monkeypatch, self.driver = root, monkeypatch, ""
        (root / "units").mkdir()
        known = {"systemctl": _SYSTEMCTL, "dockerd": _DOCKERD, "docker": _DOCKER, "ctr": _CTR, "crio": "", "podman": ""}
        containerd = f'#!/bin/sh\nexec {sys.executable} {_CONTAINERD} "$@"\n'
        programs(root, monkeypatch, {**known, "containerd": containerd})
        settings = {name: tuple(f"{root}{path}" for path in paths) for name, paths in containers.SETTINGS.items()}
        replace(monkeypatch, containers, SETTINGS=settings, CDI_FOLDERS=(f"{root}/etc/cdi", f"{root}/run/cdi"))
        replace(monkeypatch, cdi, PLACE=f"{root}/run/cdi/nvidia.yaml")
        below(root, monkeypatch, {cdi: "UNIT", systemd: "FOLDER"})
        replace(monkeypatch, modules, loaded_nvidia=lambda _host: {"version": self.driver} if self.driver else None)
        self.toolkit("1.20.0")

    def toolkit(self, version):
        write(self.root / "bin", {"nvidia-ctk": _CTK.read_text().replace("@VERSION@", version)}, 0o755)

    def load(self, driver):
        for old in self.root.glob("usr/lib/x86_64-linux-gnu/libcuda.so.*"):
            old.unlink()
        if driver:
            self.file(f"usr/lib/x86_64-linux-gnu/libcuda.so.{driver}", "")
        self.driver = driver

    def file(self, path, text=None, mode=0o644):
        found = self.root / path
        if text is not None:
            write(self.root, {path: text}, mode)
        return found

    def running(self, runtime, since):
        """Have a runtime that has been active since some seconds before now."""
        (self.root / f"units/{runtime}.service").write_text("active")
        (self.root / "since").write_text(str(int((time.monotonic() - since) * 1e6)))

    @property
    def did(self):
        return (self.root / "did").read_text() if (self.root / "did").exists() else ""

    def tree(self):
        """Return every file below etc, with its mode."""
        return {
            str(path.relative_to(self.root)): (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
            for path in sorted((self.root / "etc").rglob("*"))
            if path.is_file()
        }

    def folders(self):
        return sorted(path for path in (self.root / "etc").rglob("*") if path.is_dir())

    def remove(self):
        """Do with the recorded files what removal does."""
        ledger = Ledger(str(self.root / "state"))
        for path in sorted(ledger.state["files"], reverse=True):
            ledger.restore(path)


@pytest.fixture
def call(run_module, host):
    def told(*runtimes, **more):
        given = {"host": {"state_dir": str(host.root / "state")}, "cdi": False, "restart": "never", **more}
        return run_module(gpu_container_runtime, runtimes=list(runtimes), **given)

    return told


_FOUND = {
    "containerd": ("etc/containerd/config.toml", '# ours\nimports = ["/srv/more/*.toml"]\nversion = 2\n'),
    "crio": ("etc/crio/crio.conf", '# ours\n[crio.runtime]\ndefault_runtime = "crun"\n'),
    "docker": ("etc/docker/daemon.json", '{"log-driver": "journald"}\n'),
}


@pytest.mark.parametrize("version", ["1.17.8", "1.20.0"])
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("runtime", sorted(_FOUND))
def test_a_runtime_is_told_once_and_forgets_it_on_removal(call, host, runtime, there, version):
    host.toolkit(version)
    (host.root / "etc").mkdir()
    path, text = _FOUND[runtime]
    if there:
        host.file(path, text, 0o600)
    before, folders = host.tree(), host.folders()
    assert call(runtime, check=True)["changed"]
    assert host.tree() == before
    assert "journald" not in json.dumps(call(runtime)), "only root may read it"
    after = host.tree()
    assert runtime != "crio" or set(after) - set(before) == {"etc/crio/crio.conf.d/99-nvidia.toml"}
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


def test_a_runtime_that_is_no_longer_named_gets_its_settings_back(call, host):
    path, text = _FOUND["docker"]
    host.file(path, text, 0o600)
    host.toolkit("1.17.8")
    before = host.tree()
    host.running("docker", 60)
    call("containerd", "docker")
    (host.root / "knows").write_text("runc")
    found = call("containerd", check=True)
    assert found["changed"]
    assert b"nvidia" in host.tree()[path][0]
    found = call("containerd", restart="idle")
    assert (found["changed"], found["pending"]) == (True, [])
    assert host.tree()[path] == before[path]
    assert "restart docker" in (host.root / "did").read_text()
    assert "etc/containerd/config.toml" in host.tree()
    (host.root / "bin/nvidia-ctk").unlink()
    assert call()["changed"]
    assert host.tree() == before


@pytest.mark.parametrize(
    ("version", "text", "said"),
    [("20.10.24", "{oh", "GS-490: nvidia-ctk could not configure docker"),
     ("26.1.5", '{"log-driver": "refused"}', "docker does not take its settings")],
)  # fmt: skip
def test_settings_that_docker_would_not_take_stay_as_they_are(call, host, version, text, said):
    host.file("docker-version", version)
    host.file("etc/docker/daemon.json", text)
    call("docker", fails=said)
    call("containerd", "docker", fails=said)
    assert list(host.tree()) == ["etc/docker/daemon.json"], "of two runtimes none is written when one cannot be"
    assert host.file("etc/docker/daemon.json").read_text() == text


def test_a_runtime_or_toolkit_that_is_not_there_is_refused_before_anything_is_written(call, host):
    host.monkeypatch.setenv("PATH", f"{host.root}/bin:/usr/bin:/bin")
    for program, said in (("crio", "crio is not installed here"), ("nvidia-ctk", "nvidia-ctk is missing")):
        (host.root / "bin" / program).unlink()
        call("docker", *["crio"] * (program == "crio"), fails=said)
        assert not host.file("etc").exists()
    assert call("docker", check=True)["changed"], "the toolkit comes with packages"


@pytest.mark.parametrize("runtime", ["docker", "containerd"])
def test_an_idle_runtime_is_restarted_and_a_busy_one_is_not(call, host, runtime):
    """containerd is idle when no namespace has a task; a runtime that does not say is taken for busy."""
    host.running(runtime, since=60)
    for busy, marks in ((True, {"containers": "4f2a\n"}), (runtime == "docker", {"containers": "", "deaf": ""})):
        for name, text in marks.items():
            host.file(name, text)
        if busy:
            assert call(runtime, restart="idle")["pending"] == [runtime]
            assert "restart" not in host.did
    host.file("deaf").unlink()
    assert call(runtime, restart="idle")["pending"] == []
    assert f"restart {runtime}" in host.did


def test_a_runtime_that_does_not_read_its_settings_is_said(call, host):
    host.running("docker", since=60)
    host.file("knows", "runc")
    call("docker", restart="always", fails="docker runs without NVIDIA's runtime")


# --- containerd keeps what it read before, told by what it says itself ---


@pytest.fixture
def settings(host):
    """Write containerd's settings; return their place."""
    return lambda text: host.file("etc/containerd/config.toml", text)


_DEBIANS = stored("containerd_debian.txt")


@pytest.mark.parametrize("version", ["1.17.8", "1.20.0"])
def test_containerd_1_loses_nothing_by_nvidias_runtime(call, host, settings, version):
    """A drop-in of one runtime would take away Debian's folder of network plugins, and runc itself."""
    host.toolkit(version)
    settings = settings(_DEBIANS)
    call("containerd")
    text = settings.read_text()
    assert container_runtimes.without_ours(text) == _DEBIANS
    assert list(host.tree()) == ["etc/containerd/config.toml"]
    read = container_runtimes.read_by("containerd", str(settings), dict(os.environ))
    cri = '[plugins."io.containerd.grpc.v1.cri"'
    assert read[cri + ".cni]", "bin_dir"].startswith('"/usr/lib/cni"')
    assert read[cri + ".containerd.runtimes.runc]", "runtime_type"] == '"io.containerd.runc.v2"'
    assert read[cri + ".containerd.runtimes.nvidia.options]", "BinaryName"] == '"/usr/bin/nvidia-container-runtime"'
    assert read[cri + "]", "enable_cdi"] == "true"
    assert not call("containerd")["changed"]
    assert settings.read_text() == text


@pytest.mark.parametrize("major", ["1", "2"])
def test_what_a_persons_drop_in_says_counts_too(call, host, settings, major):
    """containerd 1 would forget it, wherever NVIDIA's runtime is named: that is said, and nothing is written."""
    host.monkeypatch.setenv("STAND_IN_CONTAINERD", major)
    plugin = "io.containerd.grpc.v1.cri" if major == "1" else "io.containerd.cri.v1.runtime"
    pattern = f"{host.root}/etc/containerd/conf.d/*.toml"
    file = settings(f'imports = ["{pattern}"]\nversion = {int(major) + 1}\n')
    host.file("etc/containerd/conf.d/10-own.toml", f'[plugins."{plugin}".cni]\nbin_dir = "/srv/cni"\n')
    before = host.tree()
    call("containerd", fails="NVIDIA's runtime itself" if major == "1" else "")
    if major == "1":
        assert host.tree() == before
        return
    read = container_runtimes.read_by("containerd", str(file), dict(os.environ))
    assert read[f'[plugins."{plugin}".cni]', "bin_dir"] == '"/srv/cni"'
    assert container_runtimes.knows_nvidia(read)


def test_what_a_file_says_of_cdi_stays(call, settings):
    file = settings('version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = false\n')
    call("containerd")
    assert file.read_text().count("enable_cdi") == 1


def test_settings_that_containerd_cannot_read_stay_as_they_are(call, settings):
    file = settings("version = [oh")
    call("containerd", fails="containerd cannot read its settings")
    assert file.read_text() == "version = [oh"


# --- descriptions of the GPUs (CDI): by the unit that is there, of the driver that is loaded ---


DRIVER = "580.178.04"


@pytest.fixture
def driven(host):
    """A host with its driver, and the units that the toolkit brings since 1.18."""
    host.load(DRIVER)
    for unit in cdi.REFRESH:
        (host.root / "units" / unit).write_text("inactive")
    return host


def described():
    return containers.collect(LiveHost(), {})["cdi_drivers"]


def test_before_the_driver_is_loaded_the_next_boot_describes_it_and_another_driver_is_described_anew(call, driven):
    """The unit stays active once it has run: to start it does nothing."""
    driven.load("")
    assert [call(cdi=True)["changed"] for _time in range(2)] == [True, False]
    assert "restart nvidia-cdi-refresh" not in driven.did
    driven.load(DRIVER)
    call(cdi=True)
    driven.load("590.48.01")
    assert call(cdi=True, check=True)["changed"]
    assert call(cdi=True)["changed"]
    assert described() == ["590.48.01"]
    assert not call(cdi=True)["changed"]


def test_podman_needs_the_specification_alone(call, driven):
    assert call("podman", check=True)["changed"]
    assert not driven.file("run/cdi").exists()
    assert call("podman")["changed"]
    assert (containers.collect(LiveHost(), {})["configured"], described()) == (["podman"], [DRIVER])
    assert not call("podman")["changed"]
    assert not driven.tree()  # the toolkit's own units do it: nothing of ours is left behind
    assert [call()["changed"] for _time in range(2)] == [True, False]
    assert "disable --now nvidia-cdi-refresh.path" in driven.did


def test_an_older_toolkit_gets_a_unit_that_goes_again(call, driven):
    driven.toolkit("1.17.8")
    for unit in cdi.REFRESH:
        (driven.root / "units" / unit).unlink()
    assert call(cdi=True)["changed"]
    unit = driven.file("etc/systemd/system/gpusetup-cdi.service").read_text()
    assert f"ExecStart={driven.root}/bin/nvidia-ctk cdi generate --output={driven.root}/run/cdi/nvidia.yaml" in unit
    assert "daemon-reload" in driven.did
    assert "enable gpusetup-cdi.service" in driven.did
    (driven.root / "units/gpusetup-cdi.service").write_text("active")
    assert not call(cdi=True)["changed"]
    assert [call()["changed"] for _time in range(2)] == [True, False]
    assert "disable --now gpusetup-cdi.service" in driven.did
    assert not driven.tree()


def test_a_persons_own_description_stays(call, driven):
    text = "libcuda.so." + DRIVER
    file = driven.file("etc/cdi/nvidia.yaml", text)
    for _time in range(2):
        call(cdi=True)
    assert file.read_text() == text


def test_without_its_toolkit_a_description_goes(driven):
    place = driven.file("run/cdi/nvidia.yaml", "{}")
    assert cdi.forget(False, {"PATH": f"{driven.root}/bin"}) == []
    (driven.root / "bin/nvidia-ctk").unlink()
    assert cdi.forget(True, {"PATH": f"{driven.root}/bin"}) == [str(place)]
    assert place.exists()
    assert cdi.forget(False, {"PATH": f"{driven.root}/bin"}) == [str(place)]
    assert not place.exists()


def test_a_description_that_is_older_than_the_layouts_of_the_gpus_is_made_anew(call, driven):
    for unit in cdi.REFRESH:
        (driven.root / "units" / unit).unlink()
    call(cdi=True)
    layouts, env = driven.file("etc/gpusetup/mig.json"), process.environment()
    assert not cdi.describe_again([str(driven.root / "bin")], env)
    layouts.parent.mkdir(parents=True)
    layouts.write_text("{}")
    os.utime(cdi.PLACE, (5, 5))
    assert cdi.describe_again([str(layouts)], env)
    os.utime(layouts, (time.time() + 99,) * 2)
    assert not cdi.describe_again([str(layouts)], env), "a clock that was wrong does not have it made on every run"
    os.utime(layouts, (1, 1))
    assert not cdi.describe_again([str(layouts)], env)
