"""A bundle as one file and back: whole, in parts, cut, changed, with tricks in it; zstd is real."""

import asyncio
import errno
import hashlib
import itertools
import json
import random
import shutil
from pathlib import Path

import jsonschema
import pytest

from gpusetup.bootstrap.bundle import MANIFEST, check_bundle, read_manifest, replaced, write_manifest
from gpusetup.cli.export import schema_of
from gpusetup.errors import GpuSetupError, PreflightError
from gpusetup.model.bundle import BundledFile, Manifest
from gpusetup.supply import packing, server
from gpusetup.supply import parts as parts_module
from gpusetup.supply.packing import pack, unpack
from gpusetup.supply.server import _answer
from tests.refusals import refused
from tests.unit.supply.conftest import killed_at, nothing

needs_zstd = pytest.mark.skipif(not shutil.which("zstd"), reason="zstd is not installed (apt-get install zstd)")
MIB = 1 << 20


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
@pytest.mark.parametrize("split", [(), ("--split", "1M")])
def test_there_and_back(site, tmp_path, name, split, says):
    told = says(0, "bundle", "pack", site, "--out", tmp_path / name, *split)
    parts = sorted(tmp_path.glob(f"{name}*"))
    assert len(parts) == (5 if split else 1)
    assert all(part.stat().st_size <= MIB for part in parts) or not split
    assert parts[0].name in told
    assert "4 of 4 files were new" in says(0, "bundle", "unpack", parts[0], "--out", tmp_path / "there")
    check_bundle(tmp_path / "there")
    assert (tmp_path / "there" / MANIFEST).read_bytes() == (site / MANIFEST).read_bytes()


def test_programs_are_told_the_same(site, tmp_path, says):
    def told(*words):
        document = json.loads(says(0, "bundle", *words, "--format", "json"))
        jsonschema.validate(document, schema_of(document["schema"].split("/")[1]))
        return document

    packed = told("pack", site, "--out", tmp_path / "s.tar", "--split", "1M")
    assert packed["bytes"] == sum(Path(part).stat().st_size for part in packed["parts"])
    there = told("unpack", packed["parts"][0], "--out", tmp_path / "there")
    assert (there["new"], there["files"]) == (4, 4)
    lacks = told("--verify", site, "--diff", bundle(tmp_path / "older", {"sbom.json": b"{}", "empty": b""}))
    assert [file["name"] for file in lacks["files"]] == ["compute/driver.deb", "python/a.whl"]
    assert lacks["bytes"] == 4 * MIB + 17


def test_equal_bundles_are_equal_files(site, tmp_path):
    (first,) = pack(site, tmp_path / "a.tar", 0, nothing)
    shutil.copytree(site, tmp_path / "copy")
    (second,) = pack(tmp_path / "copy", tmp_path / "b.tar", 0, nothing)
    assert first.read_bytes() == second.read_bytes()


def test_the_manifest_comes_when_the_files_are_on_the_disk(site, tmp_path, monkeypatch):
    (one,), there, seen = pack(site, tmp_path / "s.tar", 0, nothing), tmp_path / "there", []
    monkeypatch.setattr(packing, "on_disk", lambda out: seen.append((out / MANIFEST).exists()))
    unpack(one, there, nothing)
    assert (seen, (there / MANIFEST).exists()) == ([False], True)


def test_parts_of_a_longer_one_go(site, tmp_path):
    (tmp_path / ".s[1].tar.zst.new").touch()  # of another run, which is at work
    assert len(pack(site, tmp_path / "s[1].tar", MIB, nothing)) == 5
    there = pack(site, tmp_path / "s[1].tar", 3 * MIB, nothing)
    assert there == [tmp_path / "s[1].tar.000", tmp_path / "s[1].tar.001"]
    assert unpack(there[0], tmp_path / "there", nothing) == 4
    assert pack(site, tmp_path / "s[1].tar", 0, nothing) == [tmp_path / "s[1].tar"]
    assert sorted(path.name for path in tmp_path.glob("*s[[]1*")) == [".s[1].tar.zst.new", "s[1].tar"]


def test_a_folder_is_unpacked_into_by_one_command_at_a_time(site, tmp_path, monkeypatch):
    (one,) = pack(site, tmp_path / "s.tar", 0, nothing)
    there = Path(shutil.copytree(site, tmp_path / "there"))
    (there / "sbom.json").write_bytes(b"[]")
    (there / "empty").unlink()

    def again(_done, _whole):
        with pytest.raises(PreflightError, match="another gpusetup unpacks"):
            unpack(one, there, nothing)

    monkeypatch.chdir(there)
    assert unpack(one, Path(), again) == 2
    check_bundle(there)


def test_a_served_bundle_that_cannot_be_read_is_an_answer(tmp_path):
    assert asyncio.run(_answer(tmp_path, "GET", "/sbom.json")).status_code == 503


def test_a_served_manifest_is_read_once_until_it_is_another(site, monkeypatch):
    reads = []
    monkeypatch.setattr(server, "read_manifest", lambda path: reads.append(path) or read_manifest(path))
    told = [asyncio.run(_answer(site, "GET", "/sbom.json")).status_code for _ in range(3)]
    bundle(site, {"new.whl": b"new"})
    told += [asyncio.run(_answer(site, "GET", name)).status_code for name in ("/sbom.json", "/new.whl")]
    assert (told, len(reads)) == ([200, 200, 200, 404, 200], 2)


def test_what_fails_leaves_nothing_beside(tmp_path):
    with pytest.raises(ZeroDivisionError), replaced(tmp_path / "place"):
        _ = 1 / 0
    assert list(tmp_path.iterdir()) == []


def test_into_an_older_bundle_comes_only_what_differs(site, tmp_path):
    newer = bundle(tmp_path / "newer", {"sbom.json": b"{}", "python/b.whl": b"new"})
    there = Path(shutil.copytree(site, tmp_path / "there"))
    (one,) = pack(newer, tmp_path / "n.tar", 0, nothing)
    assert unpack(one, there, nothing) == 1
    check_bundle(there)
    assert not (there / "python/a.whl").exists()
    assert unpack(one, there, nothing) == 0


@pytest.fixture
def newer(site, tmp_path):
    """The next bundle: the same wheel under another name, one file changed, one new."""
    wheel = (site / "python/a.whl").read_bytes()
    return bundle(tmp_path / "newer", {"python/moved.whl": wheel, "sbom.json": b"{1}", "python/b.whl": b"new" * MIB})


@pytest.mark.parametrize("name", ["n.tar", pytest.param("n.tar.zst", marks=needs_zstd)])
@pytest.mark.parametrize("split", [(), ("--split", "1M")])
@pytest.mark.parametrize("since", ["site", "site/manifest.json"])
def test_an_archive_of_what_is_new_alone(site, newer, tmp_path, name, split, since, says):
    there = Path(shutil.copytree(site, tmp_path / "there"))
    told = says(0, "bundle", "pack", newer, "--out", tmp_path / name, "--since", tmp_path / since, *split)
    assert "the folder of the older bundle" in told
    parts = sorted(tmp_path.glob(f"{name}*"))
    assert sum(part.stat().st_size for part in parts) < 3.1 * MIB, "three of six MiB are there already"
    for count in (2, 0):  # once more changes nothing
        assert f"{count} of 3 files were new" in says(0, "bundle", "unpack", parts[0], "--out", there)
        assert check_bundle(there) == check_bundle(newer)
    assert not (there / "python/a.whl").exists()


def test_an_archive_of_what_is_new_is_refused_without_its_base(site, newer, tmp_path, says):
    (one,) = pack(newer, tmp_path / "n.tar", 0, nothing, site / MANIFEST)
    base = hashlib.sha256((site / MANIFEST).read_bytes()).hexdigest()
    stranger = bundle(tmp_path / "stranger", {"python/c.whl": b"c"})
    before = check_bundle(stranger)
    for there in (tmp_path / "empty", stranger):
        told = says(3, "bundle", "unpack", one, "--out", there)
        assert [word for word in ("GS-794", base, "python/moved.whl") if word not in told] == []
    assert check_bundle(stranger) == before
    assert not [*tmp_path.glob("empty"), *tmp_path.glob(".*")]

    # The base is there by its manifest, but a file of it was changed since.
    (site / "python/a.whl").write_bytes(b"changed")
    assert "does not match its manifest" in says(3, "bundle", "unpack", one, "--out", site)
    assert not (site / "python/b.whl").exists()


@pytest.mark.parametrize("since", ["", "site"])
def test_a_bundle_in_use_is_the_old_one_until_the_new_one_is_whole(site, newer, tmp_path, since):
    there = Path(shutil.copytree(site, tmp_path / "there"))
    (one,) = pack(newer, tmp_path / "n.tar", 0, nothing, site / MANIFEST if since else None)
    whole = one.read_bytes()
    for part in (0.2, 0.5, 0.9):
        one.write_bytes(whole[: int(len(whole) * part)])
        with pytest.raises(GpuSetupError):
            unpack(one, there, nothing)
        assert check_bundle(there) == check_bundle(site)
    one.write_bytes(whole)
    unpack(one, there, nothing)
    assert check_bundle(there) == check_bundle(newer)
    assert not list(tmp_path.glob(".there*"))


@pytest.mark.parametrize("kind", ["the first", "an update", "an update of what is new alone"])
def test_killed_at_any_moment_the_bundle_is_whole_and_the_same_command_completes(site, newer, tmp_path, kind):
    there, killed = tmp_path / "there", True
    (new,) = pack(newer, tmp_path / "n.tar", 0, nothing, site / MANIFEST if "alone" in kind else None)
    moments = itertools.count(1, 3)
    while killed:
        shutil.rmtree(there, ignore_errors=True)
        if kind != "the first":
            shutil.copytree(site, there)
        killed = killed_at(next(moments), unpack, new, there, nothing)
        if kind != "the first":
            assert check_bundle(there) in (check_bundle(site), check_bundle(newer))
        unpack(new, there, nothing)
        assert check_bundle(there) == check_bundle(newer)
        assert not [*there.rglob(".*.new"), *tmp_path.glob(".there*")]


@pytest.mark.parametrize("name", ["s.tar", pytest.param("s.tar.zst", marks=needs_zstd)])
def test_a_file_that_ends_early_is_told_and_the_same_command_completes(site, tmp_path, name):
    (one,) = pack(site, tmp_path / name, 0, nothing)
    whole = one.read_bytes()
    one.write_bytes(whole[: len(whole) * 2 // 3])
    with refused(GpuSetupError, "GS-789"):
        unpack(one, tmp_path / "there", nothing)
    assert not (tmp_path / "there" / MANIFEST).exists(), "it is not in use"
    one.write_bytes(whole)
    assert 0 < unpack(one, tmp_path / "there", nothing) < 4, "what came whole was kept"
    check_bundle(tmp_path / "there")


def test_a_changed_byte_is_found(site, tmp_path):
    (one,) = pack(site, tmp_path / "s.tar", 0, nothing)
    raw = bytearray(one.read_bytes())
    raw[len(raw) // 2] ^= 1
    one.write_bytes(raw)
    with refused(GpuSetupError, "GS-718"):
        unpack(one, tmp_path / "there", nothing)
    assert not list((tmp_path / "there").rglob("*.whl"))


def test_a_missing_part_is_named(site, tmp_path, says):
    parts = pack(site, tmp_path / "s.tar", MIB, nothing)
    parts[2].unlink()
    assert "s.tar.002 is missing" in says(3, "bundle", "unpack", parts[0], "--out", tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_somebody_elses_folder_and_file_are_left_alone(site, tmp_path):
    (one,) = pack(site, tmp_path / "s.tar", 0, nothing)
    (tmp_path / "home").mkdir()
    (tmp_path / "home/letter").write_text("mine")
    for archive, folder, reference in ((one, "home", "GS-713"), (tmp_path / "home/letter", "there", "GS-789")):
        with refused(GpuSetupError, reference):
            unpack(archive, tmp_path / folder, nothing)
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["letter"]


@pytest.mark.parametrize("name", ["s.tar", pytest.param("s.tar.zst", marks=needs_zstd)])
def test_a_full_disk_leaves_the_former_file(site, tmp_path, name, monkeypatch):
    (one,) = pack(site, tmp_path / name, 0, nothing)
    former = one.read_bytes()

    def full(self, _block):
        self._next()
        self.file = open("/dev/full", "wb")  # noqa: SIM115 - what is left in its buffer fails again
        self.file.write(b"rest")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(parts_module.Parts, "write", full)
    with pytest.raises(OSError, match="No space"):
        pack(site, tmp_path / name, 0, nothing)
    assert one.read_bytes() == former
    assert [path.name for path in tmp_path.glob("*s.tar*")] == [name]


def test_without_zstd_it_says_what_to_do(site, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with refused(PreflightError, hint="apt-get install zstd"):
        pack(site, tmp_path / "s.tar.zst", 0, nothing)


@pytest.mark.parametrize("words", ["s.tar --split 4X", "s.tar --split 10", "site.zip", "no/s.tar"])
def test_bad_words(site, tmp_path, words, says):
    assert "GS-788" in says(3, "bundle", "pack", site, "--out", *str(tmp_path / words).split())
