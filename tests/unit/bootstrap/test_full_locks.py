"""Locks of everything: what is reached from the pins, what uv and pip answer, the lock and its PEP 751 document, and faults that leave what was there."""

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from gpusetup.__main__ import run
from gpusetup.bootstrap import hashes
from gpusetup.bootstrap.hashes import Full, Target, hashes_of
from gpusetup.cli import output
from gpusetup.cli.main import main
from gpusetup.content import host_code
from gpusetup.errors import GpuSetupError, NoStackError
from gpusetup.model.lock import PipHashes, PipRequirements
from tests.modules.stand_ins import write
from tests.refusals import refused
from tests.replay import Replay, metadata, packed, serving

TARGET = Target("3.11", "x86_64", "2.35")
ASKED = ["lock", "cupy", "--gpu", "h100", "--os", "ubuntu22.04", "--hashes"]
LOCKED = """lock-version = "1.0"
[[packages]]
name = "frame"
version = "1.0"
wheels = [{ url = "https://x/a.whl", hashes = { sha256 = "aa" } }, { url = "https://x/b.whl", hashes = { sha256 = "bb" } }]
[[packages]]
name = "elsewhere"
version = "2"
marker = "sys_platform == 'win32'"
wheels = [{ url = "https://x/c.whl", hashes = { sha256 = "cc" } }]
"""


def item(name: str, version: str, *requires: str, sha256: str = "aa") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "version": version, "requires_dist": list(requires)},
        "download_info": {"url": "https://x", "archive_info": {"hashes": {"sha256": sha256} if sha256 else {}}},
    }


def pins(*lines: str) -> PipRequirements:
    return PipRequirements(system=lines, wheels=lines)


def choose(monkeypatch: pytest.MonkeyPatch, uv: str) -> None:
    installer = host_code("gpu_host.installer")
    monkeypatch.setattr(installer, "choose", lambda *_: installer.Installer(uv, True))


def answer(*_: Any) -> tuple[PipHashes, Full]:
    line = ("cupy-cuda13x==14.2.0 --hash=sha256:aa",)
    full = Full(line, LOCKED, ("x was withdrawn by its publisher",))
    return PipHashes(python="3.10", arch="x86_64", system=line, wheels=line), full


def test_the_document_stands_beside_the_lock(monkeypatch, capsys, tmp_path):
    asked: list[Any] = []
    monkeypatch.setattr(hashes, "hashes_of", lambda *words: asked.append(words) or answer())
    assert main([*ASKED, "--driver", "580.95.05", "--out", str(tmp_path / "gpu.lock.json")]) == 0
    assert [item[2][:2] for item in asked] == [("9.0", "13.0")], "variants are for the GPU and driver in question"
    assert (tmp_path / "pylock.gpu.toml").read_text() == LOCKED
    assert "x was withdrawn by its publisher" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpu.lock.json", "pylock.gpu.toml"]


@pytest.mark.parametrize(
    ("stop", "code"), [(NoStackError("GS-773", "no wheels"), 4), (KeyboardInterrupt(), 130)], ids=["no wheels", "Ctrl-C"]
)  # fmt: skip
def test_what_was_there_stays_where_there_is_no_lock(monkeypatch, tmp_path, capsys, stop, code):
    monkeypatch.setattr(hashes, "hashes_of", Mock(side_effect=stop))
    kept = tmp_path / "gpu.lock.json"
    kept.write_text("before")
    monkeypatch.setattr(sys, "argv", ["gpusetup", *ASKED, "--out", str(kept)])
    assert run() == code
    assert kept.read_text() == "before"
    assert list(tmp_path.iterdir()) == [kept]
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["gpusetup", *ASKED, "--format", "json"])
    assert run() == code
    assert code != 4 or json.loads(capsys.readouterr().out)["error"]["reference"] == "GS-773"


def test_a_full_disk_leaves_what_was_there(monkeypatch, tmp_path):
    kept = tmp_path / "gpu.lock.json"
    kept.write_text("before")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
    with refused(GpuSetupError, message="No space left"):
        output.write_answer("an answer", str(kept))
    assert kept.read_text() == "before"
    assert list(tmp_path.iterdir()) == [kept]


def test_links_pipes_and_modes_are_kept(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("before")
    real.chmod(0o600)
    link.symlink_to(real)
    output.write_answer("after", str(link))
    assert link.is_symlink()
    assert (real.read_text(), real.stat().st_mode & 0o777) == ("after\n", 0o600)
    output.write_answer("gone", os.devnull)
    assert Path(os.devnull).is_char_device()


@pytest.fixture(params=["uv", "pip"])
def site(request, monkeypatch):
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") or ""
    if request.param == "uv" and not uv:
        pytest.skip("uv is not here: pip install --group index")
    choose(monkeypatch, uv if request.param == "uv" else "")
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with serving() as one:
        monkeypatch.setenv("PIP_INDEX_URL", one.index)
        monkeypatch.setenv("UV_DEFAULT_INDEX", one.index)
        yield one


def serve(site: Replay, name: str, version: str, *lines: str, tag: str = "py3-none-any", **more: Any) -> str:
    """Serve a wheel; returns its digest."""
    text = metadata(name, version, *lines)
    body = packed(name, version, text, tag)
    site.package(name, site.file(f"{name}-{version}-{tag}.whl", body, text, **more))
    return hashlib.sha256(body).hexdigest()


@pytest.mark.slow
def test_the_whole_set_for_another_machine_with_every_digest(site):
    needs = ("Requires-Dist: part>=1", "Requires-Dist: old; python_version < '3.12'")
    digests = [serve(site, "frame", "1.0", *needs, yanked="a bug"), serve(site, "old", "3")]
    digests += [serve(site, "part", "1.5", tag="cp311-cp311-manylinux_2_34_x86_64")]
    found, full = hashes_of(pins("frame==1.0"), TARGET)
    pinned = zip(("frame==1.0", "old==3", "part==1.5"), digests, strict=True)
    assert sorted(found.wheels) == [f"{name} --hash=sha256:{digest}" for name, digest in pinned]
    assert [name in full.pylock for name in ('name = "frame"', 'name = "old"', 'name = "part"', *digests)] == [True] * 6
    (warning,) = full.warnings
    assert warning.startswith("frame==1.0 was withdrawn by its publisher")


@pytest.mark.slow
@pytest.mark.parametrize(
    "tag", ["cp311-cp311-win_amd64", "cp311-cp311-manylinux_2_39_x86_64", "cp312-cp312-manylinux_2_17_x86_64"]
)
def test_a_platform_without_wheels_is_a_no(site, tag):
    serve(site, "frame", "1.0", tag=tag)
    with refused(NoStackError, message="Python 3.11 on x86_64 with glibc 2.35") as caught:
        hashes_of(pins("frame==1.0"), TARGET)
    assert "frame" in caught.value.context


def test_what_uv_locks_is_the_lock_and_what_has_no_digest_is_refused(monkeypatch, tmp_path):
    program = tmp_path / "uv"
    write(tmp_path, {"pylock": LOCKED})
    write(
        tmp_path,
        {"uv": f'#!/bin/sh\nwhile [ "$1" != --output-file ]; do shift; done\ncat {tmp_path}/pylock > "$2"\n'},
        0o755,
    )
    choose(monkeypatch, str(program))
    assert hashes_of(pins("frame==1.0"), TARGET)[0].wheels == ("frame==1.0 --hash=sha256:aa --hash=sha256:bb",)
    write(tmp_path, {"pylock": LOCKED.replace('{ sha256 = "bb" }', "{}")})
    with refused(GpuSetupError, "GS-772"):
        hashes_of(pins("frame==1.0"), TARGET)
