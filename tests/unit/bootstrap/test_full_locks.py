"""Locks of everything: what is reached from the pins, what uv and pip answer, the lock and its PEP 751 document, and faults that leave what was there."""

import hashlib
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from variantlib.variants_json import VariantsJson

from gpusetup.__main__ import run
from gpusetup.bootstrap import hashes
from gpusetup.bootstrap.hashes import Full, Target, complete, hashes_of
from gpusetup.bootstrap.wheels import target_environment
from gpusetup.cli import output
from gpusetup.cli.main import main
from gpusetup.content import host_code
from gpusetup.errors import BadInputError, GpuSetupError, NoStackError, UnreachableError
from gpusetup.matrix.load import matrix
from gpusetup.model.lock import PipHashes, PipRequirements
from gpusetup.resolve.variants import machine_of
from tests.refusals import refused
from tests.replay import Replay, metadata, packed, serving

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


TARGET = Target("3.11", "x86_64", "2.35")
MARKERS = target_environment("3.10", "x86_64")
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


def test_only_what_is_reached_under_the_targets_markers():
    report = [
        item("Top_Level", "1.0", "dep>=1", "tomli; python_version < '3.11'", "win; sys_platform == 'win32'", "opt; extra == 'ctk'"),
        item("dep", "1.5", "top-level"),
        item("tomli", "2.0"),
        item("opt", "3.0", "deep; extra == 'ctk'"),
        item("left-over", "9"),
    ]  # fmt: skip
    lines, lacking = complete(["top-level==1.0"], report, MARKERS)
    assert lacking == []
    assert [line.partition(" ")[0] for line in lines] == ["dep==1.5", "tomli==2.0", "Top_Level==1.0"]
    assert all(line.endswith(" --hash=sha256:aa") for line in lines)
    lines, _ = complete(["top-level[ctk]==1.0"], report, MARKERS)
    assert "opt==3.0 --hash=sha256:aa" in lines
    newer, _ = complete(["top-level==1.0"], report, target_environment("3.12", "x86_64"))
    assert not [line for line in newer if line.startswith("tomli")]


def test_what_the_report_lacks_is_asked_for_again():
    report = [item("a", "1", "b[x]>=2", "c; python_version < '3.11'"), item("b", "2", "d; extra == 'x'")]
    lines, lacking = complete(["a==1"], report, MARKERS)
    assert sorted(lacking) == ["c", "d"]
    assert len(lines) == 2
    with refused(BadInputError, "GS-772"):
        complete(["a==1"], [item("a", "1", sha256="")], MARKERS)


def pins(*lines: str) -> PipRequirements:
    return PipRequirements(system=lines, wheels=lines)


def choose(monkeypatch: pytest.MonkeyPatch, uv: str) -> None:
    installer = host_code("gpu_host.installer")
    monkeypatch.setattr(installer, "choose", lambda *_: installer.Installer(uv, True))


def stand_in(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str = 'cat pylock > "$lock"') -> None:
    """Put a program in uv's place; $lock is where it was told to write, pylock a document."""
    path = folder / "uv"
    (folder / "pylock").write_text(LOCKED)
    begins = f'cd "{folder}"\necho "$@" > argv\nwhile [ "$1" != --output-file ]; do shift; done\nlock=$2'
    path.write_text(f"#!/bin/sh\n{begins}\n{script}\n")
    path.chmod(0o755)
    choose(monkeypatch, str(path))


def test_what_uv_locked_is_the_lock_and_its_document(monkeypatch, tmp_path):
    script = 'cat pylock > "$lock"\necho "warning: \\`frame==1.0\\` is yanked (reason: \\"a bug\\")" >&2'
    stand_in(monkeypatch, tmp_path, script)
    found, full = hashes_of(pins("--extra-index-url https://y", "frame==1.0"), TARGET)
    assert found.wheels == ("--extra-index-url https://y", "frame==1.0 --hash=sha256:aa --hash=sha256:bb")
    assert (found.python, found.arch, full.pylock) == ("3.11", "x86_64", LOCKED)
    assert full.warnings == ("frame==1.0 was withdrawn by its publisher: a bug",)
    argv = (tmp_path / "argv").read_text()
    assert "--python-version 3.11 --python-platform x86_64-manylinux_2_35 --only-binary :all:" in argv


@pytest.mark.parametrize(
    ("glibc", "platform"), [("2.17", "17"), ("2.26", "17"), ("2.28", "28"), ("2.34", "34"), ("2.99", "40")]
)
def test_the_platform_is_never_newer_than_the_target(monkeypatch, tmp_path, glibc, platform):
    stand_in(monkeypatch, tmp_path)
    hashes_of(pins("frame==1.0"), Target("3.11", "aarch64", glibc))
    assert f"--python-platform aarch64-manylinux_2_{platform} " in (tmp_path / "argv").read_text()


@pytest.mark.parametrize(
    ("said", "error", "reference"),
    [
        ("error: No solution found when resolving dependencies", NoStackError, "GS-773"),
        ("error: Failed to fetch: `https://x/simple/frame/`", UnreachableError, "GS-770"),
        ("error: No solution found; Failed to fetch `https://x/simple/part/`", UnreachableError, "GS-770"),
        ("error: unexpected argument", UnreachableError, "GS-770"),
    ],
)
def test_a_no_is_told_from_an_index_that_is_away(monkeypatch, tmp_path, said, error, reference):
    stand_in(monkeypatch, tmp_path, f"echo '{said}' >&2; exit 1")
    with refused(error, reference) as caught:
        hashes_of(pins("frame==1.0"), TARGET)
    assert said in caught.value.context


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


@pytest.mark.slow
def test_an_index_that_goes_away_in_the_middle_is_no_answer(site):
    serve(site, "frame", "1.0", "Requires-Dist: part>=1")
    serve(site, "part", "1.5")
    site.status["/simple/part/"] = [503] * 99
    with refused(UnreachableError, "GS-770") as caught:
        hashes_of(pins("frame==1.0"), TARGET)
    assert re.search(r"/simple/part/.*503|503.*/simple/part/", caught.value.context, re.DOTALL)


PLUGIN = "nvidia_variant_provider.plugin:NvidiaVariantPlugin"
KNOWN_TO_UV = {"requires": ["nvidia-variant-provider"], "plugin-api": PLUGIN}
HOPPER, BEFORE, PASCAL = (["h100"], "580.95.05"), (["h100"], "570.86.15"), (["gtx 1080 ti"], "580.95.05")
OLD, NOTHING = (["t4"], "470.57.02"), ([], None)


def serve_variants(site: Replay, *labels: str, **changes: Any) -> None:
    """Serve a package with these variants (`""`: the plain wheel), of which those for GPUs need another package."""
    toy = json.loads((Path(__file__).parents[2] / "fixtures/variants/toy.json").read_text())
    toy["providers"]["nvidia"] = changes.pop("provider", KNOWN_TO_UV)
    toy |= {"$schema": "https://variants-schema.wheelnext.dev/peps/825/v0.1.1.json"} | changes
    files = []
    for label in labels:
        text = metadata("frame", "1.0", *(["Requires-Dist: part>=1"] if label.startswith("cuda") else []))
        own = {**toy, "variants": {label: toy["variants"].get(label, {})}}
        body = packed("frame", "1.0", text, **({"variant.json": json.dumps(own)} if label else {}))
        files.append(site.file(f"frame-1.0-py3-none-any{'-' if label else ''}{label}.whl", body, text))
    listed = {"hashes": toy.pop("hashes")} if "hashes" in toy else {}
    site.package("frame", *files, site.file("frame-1.0-variants.json", json.dumps(toy).encode(), **listed))
    serve(site, "part", "1.5")


def locked(machine: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], dict[str, Any], Full]:
    """The wheels of the package, its table of variants, and the rest."""
    choose(monkeypatch, str(Path(sys.executable).with_name("uv")))
    found, full = hashes_of(pins("frame==1.0"), TARGET, machine_of(matrix(), *machine))
    packages = {item["name"]: item for item in tomllib.loads(full.pylock)["packages"]}
    urls = [item["url"].rpartition("any")[2] for item in packages["frame"]["wheels"]]
    hashed = next(line for line in found.wheels if line.startswith("frame==1.0 "))
    assert hashed.count("--hash=sha256:") == len(urls)
    assert ("part" in packages) == any("cuda" in url for url in urls), "what the variant needs is locked with it"
    return urls, packages["frame"].get("variants-json", {}), full


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "label"),
    [(HOPPER, "cuda13.0"), (BEFORE, "cuda12.8"), (PASCAL, "cuda12.6"), (OLD, "null"), (NOTHING, "")],
)
def test_the_machine_chooses_the_variant_as_uv_does_for_its_dependencies(site, monkeypatch, machine, label):
    serve_variants(site, "cuda12.6", "cuda12.8", "cuda13.0", "null", "")
    urls, table, full = locked(machine, monkeypatch)
    assert urls == ([f"-{label}.whl", ".whl"] if label else [".whl"])
    assert full.warnings == (), "uv would choose another one"
    assert full.variants == ((f"frame: the variant {label}",) if label else ())
    assert ("frame-1.0-variants.json" in "".join(site.asked)) == bool(label)
    if label:  # PEP 825: its content stands in the lock, with the labels that are there
        assert list(VariantsJson(table).variants) == [label]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("labels", "changes", "urls", "warned"),
    [
        (("cuda13.0", ""), {"$schema": None}, [".whl"], "wheel variants are left out: "),
        (("cuda13.0", "null"), {"provider": {"requires": ["other"]}}, ["-null.whl"], "uv chose null, the matrix"),
        (("cuda13.0", ""), {"hashes": {"sha256": "00" * 32}}, [".whl"], "wheel variants are left out: "),
        (("cuda12.6",), {}, ["-cuda12.6.whl"], ""),
    ],
)
def test_what_uv_cannot_read_or_judge_is_said(site, monkeypatch, labels, changes, urls, warned):
    serve_variants(site, *labels, **changes)
    found, _, full = locked(HOPPER, monkeypatch)
    assert (found, warned in "".join(full.warnings), bool(full.warnings)) == (urls, True, bool(warned))
