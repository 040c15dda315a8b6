"""containerd keeps what it read before, told by what it says itself; nvidia-ctk and containerd are stand-ins."""

import os

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import container_runtimes
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger

from tests.modules.container_host import Host, made_call, made_host  # noqa: F401 - fixtures


def test_containerd_imports_the_drop_in_once_and_what_it_did_before(call, host):
    host.monkeypatch.setenv("STAND_IN_CONTAINERD", "2")
    host.file("etc/containerd/config.toml", '# ours\nimports = ["/srv/more/*.toml"]\nversion = 2\n')
    call("containerd")
    pattern = f"{host.root}/etc/containerd/conf.d/*.toml"
    assert f'imports = ["/srv/more/*.toml", "{pattern}"]' in host.file("etc/containerd/config.toml").read_text()
    assert "nvidia-container-runtime" in host.file("etc/containerd/conf.d/99-nvidia.toml").read_text()
    call("containerd")
    assert host.file("etc/containerd/config.toml").read_text().count("conf.d") == 1


def test_an_import_that_was_there_is_not_doubled(call, host):
    host.monkeypatch.setenv("STAND_IN_CONTAINERD", "2")
    text = f'imports = ["{host.root}/etc/containerd/conf.d/*.toml"]\nversion = 2\n'
    host.file("etc/containerd/config.toml", text)
    call("containerd")
    assert host.file("etc/containerd/config.toml").read_text() == text


_DEBIANS = """# as Debian has it
version = 2

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/usr/lib/cni"   # Debian's place
"""


@pytest.mark.parametrize("version", ["1.17.8", "1.20.0"])
def test_containerd_1_loses_nothing_by_nvidias_runtime(call, host, version):
    """A drop-in of one runtime would take away Debian's folder of network plugins, and runc itself."""
    host.toolkit(version)
    settings = host.file("etc/containerd/config.toml", _DEBIANS)
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


def test_a_drop_in_that_took_settings_away_is_taken_back(call, host):
    """An older gpusetup left it there."""
    settings = host.file(
        "etc/containerd/config.toml", f'imports = ["{host.root}/etc/containerd/conf.d/*.toml"]\n{_DEBIANS}'
    )
    ledger = Ledger(str(host.root / "state"))
    ledger.write(f"{host.root}/etc/containerd/conf.d/99-nvidia.toml", "version = 2\n")
    call("containerd")
    assert list(host.tree()) == ["etc/containerd/config.toml"]
    assert "nvidia-container-runtime" in settings.read_text()


@pytest.mark.parametrize("major", ["1", "2"])
def test_what_a_persons_drop_in_says_counts_too(call, host, major):
    """containerd 1 would forget it, wherever NVIDIA's runtime is named: that is said, and nothing is written."""
    host.monkeypatch.setenv("STAND_IN_CONTAINERD", major)
    plugin = "io.containerd.grpc.v1.cri" if major == "1" else "io.containerd.cri.v1.runtime"
    pattern = f"{host.root}/etc/containerd/conf.d/*.toml"
    host.file("etc/containerd/config.toml", f'imports = ["{pattern}"]\nversion = {int(major) + 1}\n')
    host.file("etc/containerd/conf.d/10-own.toml", f'[plugins."{plugin}".cni]\nbin_dir = "/srv/cni"\n')
    before = host.tree()
    told = call("containerd", fails=major == "1")
    if major == "1":
        assert "NVIDIA's runtime itself" in told["msg"]
        assert host.tree() == before
        return
    read = container_runtimes.read_by("containerd", str(host.file("etc/containerd/config.toml")), dict(os.environ))
    assert read[f'[plugins."{plugin}".cni]', "bin_dir"] == '"/srv/cni"'
    assert container_runtimes.knows_nvidia(read)


def test_what_a_file_says_of_cdi_stays(call, host):
    text = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = false\n'
    host.file("etc/containerd/config.toml", text)
    call("containerd")
    assert host.file("etc/containerd/config.toml").read_text().count("enable_cdi") == 1


def test_settings_that_containerd_cannot_read_stay_as_they_are(call, host):
    host.file("etc/containerd/config.toml", "version = [oh")
    assert "containerd cannot read its settings" in call("containerd", fails=True)["msg"]
    assert host.file("etc/containerd/config.toml").read_text() == "version = [oh"
