"""gpu_container_runtime: what nvidia-ctk would write is written through the record, and by nobody else."""

import json
import stat
import time

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import containers
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe.host import LiveHost

from tests.modules.container_host import Host, made_call, made_host  # noqa: F401 - fixtures

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
    assert call(runtime)["changed"]
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


def test_settings_that_somebody_changed_since_are_named_with_their_place_when_a_runtime_is_given_up(call, host):
    path, text = _FOUND["docker"]
    host.file(path, text, 0o600)
    host.toolkit("1.17.8")
    assert call("docker")["saved"] == {}
    settings = host.root / path
    settings.write_text(settings.read_text().replace("journald", "local"))
    edited = settings.read_text()
    found = call()
    place = settings.with_name("daemon.json.gpusetup-saved")
    assert found["saved"] == {str(settings): str(place)}
    assert any(str(place) in text for text in found["warnings"])
    assert (settings.read_text(), place.read_text()) == (text, edited)


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


def test_a_link_stays_a_link(call, host):
    real = host.file("srv/daemon.json", "{}", 0o640)
    link = host.file("etc/docker/daemon.json")
    link.parent.mkdir(parents=True)
    link.symlink_to(real)
    call("docker")
    assert (link.is_symlink(), stat.S_IMODE(real.stat().st_mode)) == (True, 0o640)
    assert "nvidia" in real.read_text()


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


def test_what_only_root_may_read_is_not_shown(call, host):
    host.file("etc/docker/daemon.json", '{"http-proxy": "http://me:hunter2@proxy"}', 0o600)
    assert "hunter2" not in json.dumps(call("docker"))
    assert "hunter2" in host.file("etc/docker/daemon.json").read_text()


def test_a_running_runtime_waits_for_its_restart_until_it_had_one(call, host):
    host.running("docker", since=60)
    assert call("docker")["pending"] == ["docker"]
    told = call("docker")  # nothing is written any more, and it runs as it did
    assert (told["changed"], told["pending"]) == (False, ["docker"])
    time.sleep(0.1)
    host.running("docker", since=0)
    assert call("docker")["pending"] == []
    assert "restart" not in host.did


def test_a_restart_is_made_up_for_after_a_cut_and_a_runtime_that_does_not_run_waits_for_none(call, host):
    assert call("docker")["pending"] == []
    host.running("containerd", since=60)
    call("containerd")
    assert call("containerd", restart="always", check=True)["pending"] == ["containerd"]
    assert "restart" not in host.did
    told = call("containerd", restart="always")
    assert (told["changed"], told["pending"]) == (True, [])
    assert "restart containerd" in host.did


def test_a_runtime_that_does_not_come_back_or_does_not_read_its_settings_is_said(call, host):
    host.running("docker", since=60)
    host.file("broken", "")
    said = ("docker did not start with its new configuration", "Job for docker failed")
    call("docker", restart="always", fails=said)
    (host.root / "broken").unlink()
    host.file("knows", "runc")
    call("docker", restart="always", fails="docker runs without NVIDIA's runtime")


def test_a_runtime_that_is_not_there_is_refused_before_anything_is_written(call, host):
    (host.root / "bin/crio").unlink()
    call("docker", "crio", fails="crio is not installed here")
    assert not host.file("etc").exists()
    call("crio", check=True, fails="crio is not installed here")


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


def test_a_check_before_the_toolkit_is_there_tells_of_a_change(call, host):
    (host.root / "bin/nvidia-ctk").unlink()
    host.monkeypatch.setenv("PATH", f"{host.root}/bin:/usr/bin:/bin")
    assert call("docker", check=True)["changed"]
    call("docker", fails="nvidia-ctk is missing")
