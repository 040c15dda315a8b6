"""A bundle as one file and back: whole, in parts, cut, changed, with tricks in it; zstd is real."""

import asyncio
import errno
import hashlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from gpusetup.bootstrap.bundle import MANIFEST, check_bundle, write_manifest
from gpusetup.cli.export import schema_of
from gpusetup.cli.main import main
from gpusetup.errors import GpuSetupError, PreflightError
from gpusetup.model.bundle import BundledFile, Manifest, Since
from gpusetup.supply import parts as parts_module
from gpusetup.supply.fetching import replaced
from gpusetup.supply.packing import pack, unpack
from gpusetup.supply.server import _answer

needs_zstd = pytest.mark.skipif(not shutil.which("zstd"), reason="zstd is not installed (apt-get install zstd)")
MIB = 1 << 20


def silent(_done, _whole):
    """Nobody listens."""


def bundle(folder, contents):
    files = {}
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        files[name] = BundledFile(sha256=hashlib.sha256(content).hexdigest(), size=len(content))
    write_manifest(folder / MANIFEST, Manifest(gpusetup="0.1.0", pip="", sets={}, files=files))
    return folder


@pytest.fixture
def site(tmp_path):
    noise = random.Random(1).randbytes
    return bundle(
        tmp_path / "site",
        {"python/a.whl": noise(3 * MIB), "compute/driver.deb": noise(MIB + 17), "empty": b"", "sbom.json": b"{}"},
    )


@pytest.mark.parametrize("name", ["site.tar", pytest.param("site.tar.zst", marks=needs_zstd)])
@pytest.mark.parametrize("split", ["", "1M"])
def test_there_and_back(site, tmp_path, name, split, capsys):
    words = ["--split", split] if split else []
    assert main(["bundle", "pack", str(site), "--out", str(tmp_path / name), *words]) == 0
    parts = sorted(tmp_path.glob(f"{name}*"))
    assert len(parts) == (5 if split else 1)
    assert all(part.stat().st_size <= MIB for part in parts) or not split
    assert parts[0].name in capsys.readouterr().out
    assert main(["bundle", "unpack", str(parts[0]), "--out", str(tmp_path / "there")]) == 0
    assert "4 of 4 files were new" in capsys.readouterr().out
    check_bundle(tmp_path / "there")
    assert (tmp_path / "there" / MANIFEST).read_bytes() == (site / MANIFEST).read_bytes()


def test_programs_are_told_the_same(site, tmp_path, capsys):
    def told(*words):
        assert main([*words, "--format", "json"]) == 0
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        jsonschema.validate(document, schema_of(document["schema"].split("/")[1]))
        return document

    packed = told("bundle", "pack", str(site), "--out", str(tmp_path / "s.tar"), "--split", "1M")
    assert packed["bytes"] == sum(Path(part).stat().st_size for part in packed["parts"])
    there = told("bundle", "unpack", packed["parts"][0], "--out", str(tmp_path / "there"))
    assert (there["new"], there["files"]) == (4, 4)
    older = bundle(tmp_path / "older", {"sbom.json": b"{}", "empty": b""})
    lacks = told("bundle", "--verify", str(site), "--diff", str(older))
    assert [file["name"] for file in lacks["files"]] == ["compute/driver.deb", "python/a.whl"]
    assert lacks["bytes"] == 4 * MIB + 17


def test_equal_bundles_are_equal_files(site, tmp_path):
    (first,) = pack(site, tmp_path / "a.tar", 0, silent)
    shutil.copytree(site, tmp_path / "copy")
    (second,) = pack(tmp_path / "copy", tmp_path / "b.tar", 0, silent)
    assert first.read_bytes() == second.read_bytes()


def test_parts_of_a_longer_one_go(site, tmp_path):
    (tmp_path / ".s[1].tar.zst.new").touch()  # of another run, which is at work
    assert len(pack(site, tmp_path / "s[1].tar", MIB, silent)) == 5
    there = pack(site, tmp_path / "s[1].tar", 3 * MIB, silent)
    assert there == [tmp_path / "s[1].tar.000", tmp_path / "s[1].tar.001"]
    assert unpack(there[0], tmp_path / "there", silent) == 4
    assert pack(site, tmp_path / "s[1].tar", 0, silent) == [tmp_path / "s[1].tar"]
    assert sorted(path.name for path in tmp_path.glob("*s[[]1*")) == [".s[1].tar.zst.new", "s[1].tar"]


def test_a_folder_is_unpacked_into_by_one_command_at_a_time(site, tmp_path, monkeypatch):
    (one,) = pack(site, tmp_path / "s.tar", 0, silent)
    there = Path(shutil.copytree(site, tmp_path / "there"))
    (there / "sbom.json").write_bytes(b"[]")
    (there / "empty").unlink()

    def again(_done, _whole):
        with pytest.raises(PreflightError, match="another gpusetup unpacks"):
            unpack(one, there, silent)

    monkeypatch.chdir(there)
    assert unpack(one, Path(), again) == 2
    check_bundle(there)


def test_a_served_bundle_that_cannot_be_read_is_an_answer(tmp_path):
    assert asyncio.run(_answer(tmp_path, "GET", "/sbom.json")).status_code == 503


def test_what_fails_leaves_nothing_beside(tmp_path):
    with pytest.raises(ZeroDivisionError), replaced(tmp_path / "place"):
        _ = 1 / 0
    assert list(tmp_path.iterdir()) == []


def test_into_an_older_bundle_comes_only_what_differs(site, tmp_path):
    newer = bundle(tmp_path / "newer", {"sbom.json": b"{}", "python/b.whl": b"new"})
    there = Path(shutil.copytree(site, tmp_path / "there"))
    (one,) = pack(newer, tmp_path / "n.tar", 0, silent)
    assert unpack(one, there, silent) == 1
    check_bundle(there)
    assert not (there / "python/a.whl").exists()
    assert unpack(one, there, silent) == 0


@pytest.fixture
def newer(site, tmp_path):
    """The next bundle: the same wheel under another name, one file changed, one new."""
    wheel = (site / "python/a.whl").read_bytes()
    return bundle(tmp_path / "newer", {"python/moved.whl": wheel, "sbom.json": b"{1}", "python/b.whl": b"new" * MIB})


@pytest.mark.parametrize("name", ["n.tar", pytest.param("n.tar.zst", marks=needs_zstd)])
@pytest.mark.parametrize("split", ["", "1M"])
@pytest.mark.parametrize("since", ["site", "site/manifest.json"])
def test_an_archive_of_what_is_new_alone(site, newer, tmp_path, name, split, since, capsys):
    there = Path(shutil.copytree(site, tmp_path / "there"))
    words = ["--since", str(tmp_path / since), *(["--split", split] if split else [])]
    assert main(["bundle", "pack", str(newer), "--out", str(tmp_path / name), *words]) == 0
    assert "the folder of the older bundle" in capsys.readouterr().out
    parts = sorted(tmp_path.glob(f"{name}*"))
    assert sum(part.stat().st_size for part in parts) < 3.1 * MIB, "three of six MiB are there already"
    assert main(["bundle", "unpack", str(parts[0]), "--out", str(there)]) == 0
    assert "2 of 3 files were new" in capsys.readouterr().out
    assert check_bundle(there) == check_bundle(newer)
    assert not (there / "python/a.whl").exists()
    assert main(["bundle", "unpack", str(parts[0]), "--out", str(there)]) == 0, "once more changes nothing"
    assert "0 of 3 files were new" in capsys.readouterr().out


def test_an_archive_of_what_is_new_is_refused_without_its_base(site, newer, tmp_path, capsys):
    (one,) = pack(newer, tmp_path / "n.tar", 0, silent, site / MANIFEST)
    base = hashlib.sha256((site / MANIFEST).read_bytes()).hexdigest()
    stranger = bundle(tmp_path / "stranger", {"python/c.whl": b"c"})
    before = check_bundle(stranger)
    for there in (tmp_path / "empty", stranger):
        assert main(["bundle", "unpack", str(one), "--out", str(there)]) == 3
        told = " ".join(capsys.readouterr().err.split())
        assert "GS-794" in told
        assert base in told
        assert "python/moved.whl" in told
    assert check_bundle(stranger) == before
    assert not (tmp_path / "empty").exists()
    assert not list(tmp_path.glob(".*"))

    # The base is there by its manifest, but a file of it was changed since.
    (site / "python/a.whl").write_bytes(b"changed")
    assert main(["bundle", "unpack", str(one), "--out", str(site)]) == 3
    assert "does not match its manifest" in " ".join(capsys.readouterr().err.split())
    assert not (site / "python/b.whl").exists()


def test_an_archive_of_what_is_new_that_is_cut_or_killed_is_completed_by_the_same_command(site, newer, tmp_path):
    there = Path(shutil.copytree(site, tmp_path / "there"))
    (one,) = pack(newer, tmp_path / "n.tar", 0, silent, site / MANIFEST)
    whole = one.read_bytes()
    one.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(GpuSetupError):
        unpack(one, there, silent)
    assert check_bundle(there) == check_bundle(site)
    one.write_bytes(whole)
    argv = [sys.executable, "-m", "gpusetup", "bundle", "unpack", str(one), "--out", str(there)]
    moments = random.Random(5)
    for _ in range(5):
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.2 + moments.random() * 0.4)
        process.kill()
        process.wait()
        assert check_bundle(there) in (check_bundle(site), check_bundle(newer))
    subprocess.run(argv, check=True, capture_output=True)
    assert check_bundle(there) == check_bundle(newer)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".there")]


@pytest.mark.parametrize("name", ["../outside", "python/none.whl"])
def test_what_an_archive_says_of_its_base_is_not_believed(site, tmp_path, name):
    content = (site / "sbom.json").read_bytes()
    write_manifest(tmp_path / MANIFEST, _naming("../outside", content))
    evil = tmp_path / "evil.tar"
    said = Since(manifest_sha256="0" * 64, left_out=(name,))
    with tarfile.open(evil, "w") as tar:
        for path, raw in ((MANIFEST, (tmp_path / MANIFEST).read_bytes()), (".since.json", msgspec.json.encode(said))):
            entry = tarfile.TarInfo(path)
            entry.size = len(raw)
            tar.addfile(entry, io.BytesIO(raw))
    with pytest.raises(GpuSetupError) as told:
        unpack(evil, site, silent)
    assert told.value.reference == "GS-789"
    assert not list(tmp_path.rglob("outside"))


def test_a_bundle_in_use_is_the_old_one_until_the_new_one_is_whole(site, tmp_path):
    newer = bundle(
        tmp_path / "newer", {"compute/driver.deb": b"newer" * MIB, "python/b.whl": b"new", "sbom.json": b"{}"}
    )
    there = Path(shutil.copytree(site, tmp_path / "there"))
    (one,) = pack(newer, tmp_path / "n.tar", 0, silent)
    whole = one.read_bytes()
    for part in (0.2, 0.5, 0.9):
        one.write_bytes(whole[: int(len(whole) * part)])
        with pytest.raises(GpuSetupError):
            unpack(one, there, silent)
        assert check_bundle(there) == check_bundle(site)
    one.write_bytes(whole)
    unpack(one, there, silent)
    assert check_bundle(there) == check_bundle(newer)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".there")]


def test_an_update_that_is_killed_leaves_a_whole_bundle(site, tmp_path):
    newer = bundle(tmp_path / "newer", {"compute/driver.deb": b"newer" * MIB, "sbom.json": b"[]"})
    (old,), (new,) = pack(site, tmp_path / "o.tar", 0, silent), pack(newer, tmp_path / "n.tar", 0, silent)
    there, moments = tmp_path / "there", random.Random(11)
    argv = [sys.executable, "-m", "gpusetup", "bundle", "unpack", str(new), "--out", str(there)]
    unpack(old, there, silent)
    began = time.monotonic()
    subprocess.run(argv, check=True, capture_output=True)
    took = time.monotonic() - began
    for _ in range(6):
        unpack(old, there, silent)
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(took * (0.4 + moments.random() * 0.6))
        process.kill()
        process.wait()
        assert check_bundle(there) in (check_bundle(site), check_bundle(newer))
        subprocess.run(argv, check=True, capture_output=True)
        assert check_bundle(there) == check_bundle(newer)


@pytest.mark.parametrize("name", ["s.tar", pytest.param("s.tar.zst", marks=needs_zstd)])
def test_a_file_that_ends_early_is_told_and_the_same_command_completes(site, tmp_path, name):
    (one,) = pack(site, tmp_path / name, 0, silent)
    whole = one.read_bytes()
    one.write_bytes(whole[: len(whole) * 2 // 3])
    with pytest.raises(GpuSetupError) as told:
        unpack(one, tmp_path / "there", silent)
    assert told.value.reference == "GS-789"
    assert not (tmp_path / "there" / MANIFEST).exists(), "it is not in use"
    one.write_bytes(whole)
    assert 0 < unpack(one, tmp_path / "there", silent) < 4, "what came whole was kept"
    check_bundle(tmp_path / "there")


def test_a_changed_byte_is_found(site, tmp_path):
    (one,) = pack(site, tmp_path / "s.tar", 0, silent)
    raw = bytearray(one.read_bytes())
    raw[len(raw) // 2] ^= 1
    one.write_bytes(raw)
    with pytest.raises(GpuSetupError) as told:
        unpack(one, tmp_path / "there", silent)
    assert told.value.reference == "GS-718"
    assert not list((tmp_path / "there").rglob("*.whl"))


def test_a_missing_part_is_named(site, tmp_path, capsys):
    parts = pack(site, tmp_path / "s.tar", MIB, silent)
    parts[2].unlink()
    assert main(["bundle", "unpack", str(parts[0]), "--out", str(tmp_path / "there")]) == 3
    assert "s.tar.002 is missing" in capsys.readouterr().err
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize("name", ["../outside", "/etc/outside", ".hidden", "python/../../outside"])
def test_names_that_lead_elsewhere_are_refused(tmp_path, name):
    content = b"bad"
    write_manifest(tmp_path / MANIFEST, _naming(name, content))
    evil = tmp_path / "evil.tar"
    with tarfile.open(evil, "w") as tar:
        for path, raw in ((MANIFEST, (tmp_path / MANIFEST).read_bytes()), (name, content)):
            entry = tarfile.TarInfo(path)
            entry.size = len(raw)
            tar.addfile(entry, io.BytesIO(raw))
    with pytest.raises(GpuSetupError) as told:
        unpack(evil, tmp_path / "inner" / "there", silent)
    assert told.value.reference == "GS-789"
    assert not list(tmp_path.rglob("outside"))


def _naming(name, content):
    file = BundledFile(sha256=hashlib.sha256(content).hexdigest(), size=len(content))
    return Manifest(gpusetup="0.1.0", pip="", sets={}, files={name: file})


def test_links_and_unknown_files_are_refused(site, tmp_path):
    evil = tmp_path / "evil.tar"
    with tarfile.open(evil, "w") as tar:
        tar.add(site / MANIFEST, MANIFEST)
        link = tarfile.TarInfo("sbom.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(GpuSetupError, match="sbom"):
        unpack(evil, tmp_path / "there", silent)
    assert not (tmp_path / "there/sbom.json").exists()


def test_somebody_elses_folder_and_file_are_left_alone(site, tmp_path):
    (one,) = pack(site, tmp_path / "s.tar", 0, silent)
    (tmp_path / "home").mkdir()
    (tmp_path / "home/letter").write_text("mine")
    with pytest.raises(GpuSetupError) as told:
        unpack(one, tmp_path / "home", silent)
    assert told.value.reference == "GS-713"
    (tmp_path / "text.tar").write_text("no archive")
    with pytest.raises(GpuSetupError) as told:
        unpack(tmp_path / "text.tar", tmp_path / "there", silent)
    assert told.value.reference == "GS-789"
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["letter"]


@pytest.mark.parametrize("name", ["s.tar", pytest.param("s.tar.zst", marks=needs_zstd)])
def test_a_full_disk_leaves_the_former_file(site, tmp_path, name, monkeypatch):
    (one,) = pack(site, tmp_path / name, 0, silent)
    former = one.read_bytes()

    def full(_self, _block):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(parts_module.Parts, "write", full)
    with pytest.raises(OSError, match="No space"):
        pack(site, tmp_path / name, 0, silent)
    assert one.read_bytes() == former
    assert [path.name for path in tmp_path.glob("*s.tar*")] == [name]


def test_without_zstd_it_says_what_to_do(site, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PreflightError) as told:
        pack(site, tmp_path / "s.tar.zst", 0, silent)
    assert "apt-get install zstd" in (told.value.hint or "")


@pytest.mark.parametrize("words", [["--split", "4X"], ["--split", "10"], ["--out", "site.zip"], ["--out", "no/s.tar"]])
def test_bad_words(site, tmp_path, words, capsys):
    out = [] if "--out" in words else ["--out", str(tmp_path / "s.tar")]
    assert main(["bundle", "pack", str(site), *out, *words]) == 3
    assert "GS-788" in capsys.readouterr().err


def test_killed_at_any_moment_the_same_command_completes(site, tmp_path):
    (one,) = pack(site, tmp_path / "s.tar", 0, silent)
    argv = [sys.executable, "-m", "gpusetup", "bundle", "unpack", str(one), "--out", str(tmp_path / "there")]
    began = time.monotonic()
    subprocess.run(argv, check=True, capture_output=True)
    took, moments = time.monotonic() - began, random.Random(7)
    for _ in range(4):
        shutil.rmtree(tmp_path / "there", ignore_errors=True)
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(took * (0.5 + moments.random() / 2))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        subprocess.run(argv, check=True, capture_output=True)
        check_bundle(tmp_path / "there")
        assert not list((tmp_path / "there").rglob(".*.new"))
