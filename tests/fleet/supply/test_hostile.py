"""What is carried from hand to hand, broken in every way: a refusal with a reason, nothing outside, nothing in force."""

import hashlib
import json
import random
import shutil
import time
from datetime import datetime, timezone

import msgspec
import pytest

from gpusetup.bootstrap.bundle import LONGEST_MANIFEST, MANIFEST, SIGNATURE, check_bundle, numbered, read_manifest
from gpusetup.errors import GpuSetupError
from gpusetup.matrix import releases
from gpusetup.matrix.load import Matrix
from gpusetup.model.answers import MatrixRelease
from gpusetup.model.request import Request
from gpusetup.plan.lock import lock_of, read_lock
from gpusetup.resolve.api import resolve
from gpusetup_fleet.model.pull import Offer
from gpusetup_fleet.pull import offers
from tests import refusals

CASES = [200, pytest.param(10_000, marks=pytest.mark.fuzz)]
CONTENT = b"{}"
FILE = {"sha256": hashlib.sha256(CONTENT).hexdigest(), "size": len(CONTENT)}
NAMES = (
    ".", "..", "", "/", "a/", "a//b", "./a", "a/./b", "../outside", "/tmp/outside", "a/../../outside", "x" * 300,
    "/".join(["d" * 200] * 30), MANIFEST, SIGNATURE, ".since.json", ".manifest.json.new", "a\nb", "a\0b", "\x1b[31m",
    "\u202eab", "\ud800", "ä" * 150, "a\\b", "~", "con", "a b", "-rf", "$(id)",
)  # fmt: skip


def document(**fields):
    whole = {"schema": "gpusetup/bundle/1", "gpusetup": "0.1.0", "pip": "", "sets": {}, "files": {"a.json": FILE}}
    return json.dumps({**whole, **fields}).encode()


def refused(raw, folder):
    """Check a bundle with this manifest; return whether it was refused."""
    (folder / MANIFEST).write_bytes(raw)
    try:
        check_bundle(folder)
    except GpuSetupError:
        return True
    return False


def values(source):
    """Return what may stand in a document in place of what belongs there."""
    return source.choice([
        None, True, -1, 0, 1 << 70, 1.5, "", "x", "\n", "\0", [], {}, [[]], {"": {}}, "0" * 64, "9" * 400,
        source.choice(NAMES), {source.choice(NAMES): FILE}, [source.choice(NAMES)],
    ])  # fmt: skip


def altered(raw, source):
    """Break bytes as wires, disks and people do."""
    broken = bytearray(raw)
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(broken) or 1)
        match source.randrange(6):
            case 0 if broken:
                broken[at] ^= 1 << source.randrange(8)
            case 1:
                del broken[at : at + source.randint(1, 2000)]
            case 2:
                broken[at:at] = source.randbytes(source.randint(1, 2000))
            case 3:
                broken[at:at] = broken[at // 2 : at]
            case 4:
                broken[at : at + 12] = source.choice([b"\x80" + b"\xff" * 11, b"77777777777\0", b"00000000000\0"])
            case _:
                del broken[at:]
    return bytes(broken)


def manifests(source):
    name = source.choice(["schema", "gpusetup", "pip", "sets", "systems", "files", "serial", "made", "other"])
    match source.randrange(3):
        case 0:
            return document(**{name: values(source)})
        case 1:
            return document(files=dict.fromkeys(source.choices(NAMES, k=source.randint(1, 3)), FILE))
        case _:
            return altered(document(), source)


@pytest.mark.parametrize("cases", CASES)
def test_broken_manifests(cases, tmp_path):
    source = random.Random(17)
    (tmp_path / "a.json").write_bytes(CONTENT)
    assert sum(refused(manifests(source), tmp_path) for _ in range(cases)) > cases // 2


def changed(value, source):
    """Put something else in one place of a document."""
    if not isinstance(value, dict) or not value or source.random() < 0.2:
        return values(source)
    name = source.choice([*value, "other"])
    return {**value, name: changed(value.get(name), source)}


@pytest.mark.parametrize("cases", CASES)
def test_broken_offers(cases, tmp_path, monkeypatch):
    """Each once as it comes, and once as if a trusted key had signed it: what is behind the signature holds too."""
    source, loaded, trusted = random.Random(31), Matrix(), {True: 0, False: 0}
    (tmp_path / "signers").write_text("")
    lock = lock_of(resolve(Request(gpus=("h100",), os="ubuntu22.04"), loaded), loaded)
    whole = json.loads(msgspec.json.encode(Offer(kind="h100", serial=1, lock=lock, made="2030-01-01T00:00:00Z")))
    for number in range(cases):
        signed = {"offer": json.dumps(changed(whole, source)), "signature": "x"}
        raw = json.dumps(changed(signed, source) if number % 4 == 0 else signed).encode()
        with pytest.raises(GpuSetupError):
            offers.opened(altered(raw, source) if number % 4 == 1 else raw, "here", tmp_path / "signers", "h100")
        with monkeypatch.context() as patched:
            patched.setattr(offers.signatures, "check", lambda *_words, **_named: "ops")
            try:
                offer = offers.opened(raw, "here", tmp_path / "signers", "h100")
            except GpuSetupError:
                trusted[False] += 1
                continue
        trusted[True] += 1
        assert offer.kind == "h100"
        assert offers.in_words(offer.budget)
        assert read_lock(msgspec.json.encode(offer.lock), "here") == offer.lock
        offers.expired(offer, datetime.now(timezone.utc))
    assert min(trusted.values()) > cases // 20, trusted


@pytest.mark.parametrize("cases", CASES)
def test_broken_releases_of_the_matrix(cases):
    source = random.Random(37)
    files = {"driver": "{}", "cuda": "{}"}
    whole = msgspec.json.encode(MatrixRelease(date="2030-01-01", sha256=releases.digest(files), files=files))
    for number in range(cases):
        raw = altered(whole, source)
        if number % 2:
            name = source.choice(["schema", "date", "sha256", "files", "other"])
            raw = json.dumps({**json.loads(whole), name: values(source)}).encode()
        try:
            release = releases.opened(raw, "here")
        except GpuSetupError:
            continue
        with pytest.raises(GpuSetupError, match="lacks"):
            releases.examined(release)


@pytest.mark.parametrize("cases", [20, pytest.param(10_000, marks=pytest.mark.fuzz)])
def test_releases_that_are_broken_behind_their_digest(cases):
    source, whole, no = random.Random(53), releases.release_of(Matrix()), 0
    for _ in range(cases):
        name = source.choice(sorted(whole.files))
        files = {**whole.files, name: json.dumps(changed(json.loads(whole.files[name]), source))}
        release = MatrixRelease(date="2030-01-01", sha256=releases.digest(files), files=files)
        try:
            releases.examined(releases.opened(msgspec.json.encode(release), "here"))
        except GpuSetupError:
            no += 1
    assert no > cases // 2


NESTED = "[" * 100_000


def test_deep_documents_are_refused(tmp_path):
    assert refused(NESTED.encode(), tmp_path)
    (tmp_path / "signers").write_text("")
    for raw in (NESTED, json.dumps({"offer": NESTED, "signature": ""})):
        with pytest.raises(GpuSetupError):
            offers.opened(raw.encode(), "here", tmp_path / "signers", "h100")
    files = {**releases.release_of(Matrix()).files, "cuda": NESTED}
    release = MatrixRelease(date="2030-01-01", sha256=releases.digest(files), files=files)
    with pytest.raises(GpuSetupError):
        releases.examined(releases.opened(msgspec.json.encode(release), "here"))


def test_a_release_that_lacks_a_components_file_is_refused_whole():
    files = dict(releases.release_of(Matrix()).files)
    for name in sorted(files):
        fewer = {other: text for other, text in files.items() if other != name}
        release = MatrixRelease(date="2030-01-01", sha256=releases.digest(fewer), files=fewer)
        with pytest.raises(GpuSetupError, match=f"lacks {name}"):
            releases.examined(release)


@pytest.mark.parametrize("names", [*((name,) for name in NAMES[:18]), ("a", "a/b"), ("a/b/c", "a")])
def test_names_that_no_file_can_have(names, tmp_path):
    (tmp_path / MANIFEST).write_bytes(document(files=dict.fromkeys(names, FILE)))
    with refusals.refused(GpuSetupError, "GS-716"):
        read_manifest(tmp_path / MANIFEST)


def test_a_manifest_is_refused_by_its_length(tmp_path):
    with (tmp_path / MANIFEST).open("wb") as file:
        file.truncate(LONGEST_MANIFEST + 1)
    with pytest.raises(GpuSetupError, match="longer than"):
        read_manifest(tmp_path / MANIFEST)


def site(folder, serial, content=CONTENT):
    folder.mkdir()
    (folder / "a.json").write_bytes(content)
    file = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    (folder / MANIFEST).write_bytes(document(serial=serial, made="2030-01-01T00:00:00Z", files={"a.json": file}))
    return folder


def test_an_older_bundle_is_refused_unless_told_so(tmp_path, says):
    there = site(tmp_path / "there", 7)
    says(0, "bundle", "--verify", there)
    for older in (6, 0):
        shutil.rmtree(there)  # a folder that was emptied is no way round it
        said = says(3, "bundle", "--verify", site(there, older, b"old"))
        assert "GS-795" in said
        assert "--older" in said
    says(0, "bundle", "--verify", there, "--older")
    says(0, "bundle", "--verify", there)  # it is the one that was accepted


def test_a_later_bundle_has_a_greater_serial_and_an_equal_one_the_same(tmp_path):
    first = numbered(read_manifest(site(tmp_path / "a", 0) / MANIFEST)[0], None)
    assert first.serial >= int(time.time()) - 60
    assert numbered(msgspec.structs.replace(first, serial=0, made=""), first) == first
    ahead = msgspec.structs.replace(first, serial=first.serial + 10**9)
    assert numbered(msgspec.structs.replace(first, pip="other"), ahead).serial > ahead.serial
