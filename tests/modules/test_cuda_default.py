"""gpu_cuda_default: module files for Lmod, one for each toolkit."""

from pathlib import Path

import pytest
from ansible_collections.gpusetup.stack.plugins.modules import gpu_cuda_default

from tests.modules.stand_ins import below, replace, write

BOTH = ("12.8", "13.0")


@pytest.fixture
def call(run_module, tmp_path, monkeypatch):
    """Make these toolkits the host's, the first one its default; return whether that changed it."""
    below(tmp_path, monkeypatch, {gpu_cuda_default: "LINK PROFILE LINKER"})
    write(tmp_path, dict.fromkeys(("etc/lmod/x", "etc/profile.d/x", "etc/ld.so.conf.d/x", "usr/local/x"), ""))
    modules = tuple(f"{tmp_path}/{name}" for name in ("lmod", "el", "old"))
    replace(monkeypatch, gpu_cuda_default, MODULES=modules, LMOD=(f"{tmp_path}/etc/lmod",))

    def told(*releases, check=False):
        roots = [{"version": release, "path": f"{tmp_path}/usr/local/cuda-{release}"} for release in releases]
        for root in roots:
            Path(root["path"]).mkdir(exist_ok=True)
        given = {"host": {"state_dir": str(tmp_path / "state")}, "roots": roots, "default": (*releases, "")[0]}
        return run_module(gpu_cuda_default, check=check, **given)["changed"]

    return told


@pytest.fixture
def modules(tmp_path):
    return lambda: sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.lua"))


def test_one_more_or_one_less_touches_no_other(call, tmp_path, modules):
    call(*BOTH)
    before = (tmp_path / "lmod/cuda/12.8.lua").stat()
    for there in (("12.8", "13.0", "12.6"), ("12.8", "12.6"), ("12.8",)):
        call(*there)
        assert modules() == [f"lmod/cuda/{release}.lua" for release in sorted(there)]
    after = (tmp_path / "lmod/cuda/12.8.lua").stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)
    call()
    assert modules() == []
