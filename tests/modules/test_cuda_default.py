"""gpu_cuda_default: module files for Lmod, one for each toolkit."""

from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.modules import gpu_cuda_default

Call = Callable[..., dict[str, Any]]


@pytest.fixture
def call(run_module, tmp_path, monkeypatch):
    for name, place in (
        ("LINK", "usr/local/cuda"),
        ("PROFILE", "etc/profile.d/c.sh"),
        ("LINKER", "etc/ld.so.conf.d/c.conf"),
    ):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        monkeypatch.setattr(gpu_cuda_default, name, str(tmp_path / place))
    monkeypatch.setattr(gpu_cuda_default, "MODULES", tuple(f"{tmp_path}/{name}" for name in ("lmod", "el", "old")))
    monkeypatch.setattr(gpu_cuda_default, "LMOD", (f"{tmp_path}/etc/lmod",))

    def told(*releases, check=False):
        roots = [{"version": release, "path": f"{tmp_path}/usr/local/cuda-{release}"} for release in releases]
        for root in roots:
            (tmp_path / "usr/local" / f"cuda-{root['version']}").mkdir(exist_ok=True)
        host = {"state_dir": str(tmp_path / "state")}
        default = releases[0] if releases else ""
        failed, result = run_module(gpu_cuda_default, check=check, host=host, roots=roots, default=default)
        assert not failed, result
        return dict(result)

    return told


def modules(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.lua"))


def test_each_of_several_toolkits_has_a_module_file(call, tmp_path):
    (tmp_path / "etc/lmod").mkdir(parents=True)
    assert call("12.8", "13.0", check=True)["changed"]
    assert modules(tmp_path) == []
    assert call("12.8", "13.0")["changed"]
    assert modules(tmp_path) == ["lmod/cuda/12.8.lua", "lmod/cuda/13.0.lua"]
    text = (tmp_path / "lmod/cuda/13.0.lua").read_text()
    assert f'prepend_path("PATH", "{tmp_path}/usr/local/cuda-13.0/bin")' in text
    assert 'family("cuda")' in text
    assert not call("12.8", "13.0")["changed"]


def test_one_more_or_one_less_touches_no_other(call, tmp_path):
    (tmp_path / "etc/lmod").mkdir(parents=True)
    call("12.8", "13.0")
    kept = tmp_path / "lmod/cuda/12.8.lua"
    before = kept.stat()
    call("12.8", "13.0", "12.6")
    assert modules(tmp_path) == [f"lmod/cuda/{release}.lua" for release in ("12.6", "12.8", "13.0")]
    call("12.8", "12.6")
    assert modules(tmp_path) == ["lmod/cuda/12.6.lua", "lmod/cuda/12.8.lua"]
    call("12.8")
    assert modules(tmp_path) == ["lmod/cuda/12.8.lua"]
    assert (kept.stat().st_mtime_ns, kept.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


def test_it_is_where_this_lmod_looks(call, tmp_path):
    (tmp_path / "etc/lmod").mkdir(parents=True)
    (tmp_path / "el").mkdir()
    call("12.8", "13.0")
    assert modules(tmp_path) == ["el/cuda/12.8.lua", "el/cuda/13.0.lua"]


def test_without_lmod_there_is_no_module_file(call, tmp_path):
    call("12.8", "13.0")
    assert modules(tmp_path) == []


def test_without_a_toolkit_there_is_none(call, tmp_path):
    (tmp_path / "etc/lmod").mkdir(parents=True)
    call("12.8")
    call()
    assert modules(tmp_path) == []


def test_a_removal_takes_them_away(call, tmp_path):
    (tmp_path / "etc/lmod").mkdir(parents=True)
    call("12.8", "13.0")
    ledger = Ledger(str(tmp_path / "state"))
    for path in sorted(ledger.state["files"], reverse=True):
        ledger.restore(path)
    assert modules(tmp_path) == []
