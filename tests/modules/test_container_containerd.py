"""containerd keeps what it read before, told by what it says itself; nvidia-ctk and containerd are stand-ins."""

import os

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import container_runtimes
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger

from tests.modules.container_host import Host, made_call, made_host  # noqa: F401 - fixtures
from tests.stored import stored


@pytest.fixture(name="settings")
def made_settings(host):
    """Write containerd's settings; return their place."""
    return lambda text: host.file("etc/containerd/config.toml", text)


@pytest.mark.parametrize("there", [True, False])
def test_containerd_imports_the_drop_in_once_and_what_it_did_before(call, host, settings, there):
    host.monkeypatch.setenv("STAND_IN_CONTAINERD", "2")
    pattern = f"{host.root}/etc/containerd/conf.d/*.toml"
    text = f'imports = ["{pattern if there else "/srv/more/*.toml"}"]\nversion = 2\n'
    file = settings(text)
    call("containerd")
    assert file.read_text() == (text if there else text.replace('toml"]', f'toml", "{pattern}"]'))
    assert "nvidia-container-runtime" in host.file("etc/containerd/conf.d/99-nvidia.toml").read_text()
    call("containerd")
    assert file.read_text().count("conf.d") == 1


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


def test_a_drop_in_that_took_settings_away_is_taken_back(call, host, settings):
    """An older gpusetup left it there."""
    file = settings(f'imports = ["{host.root}/etc/containerd/conf.d/*.toml"]\n{_DEBIANS}')
    ledger = Ledger(str(host.root / "state"))
    ledger.write(f"{host.root}/etc/containerd/conf.d/99-nvidia.toml", "version = 2\n")
    call("containerd")
    assert list(host.tree()) == ["etc/containerd/config.toml"]
    assert "nvidia-container-runtime" in file.read_text()


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
