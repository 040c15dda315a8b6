"""A mirror: what is chosen, what a half-published repository does to it, and what hosts read; apt and gpg are real."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from gpusetup.cli.main import main
from gpusetup.errors import BadInputError, UnreachableError
from gpusetup.matrix.load import matrix
from gpusetup.model.request import Request
from gpusetup.model.settings import Settings
from gpusetup.supply import apt_repository, mirroring
from gpusetup.supply.entry import Entry
from gpusetup.supply.fetching import Pool, Wanted
from gpusetup.supply.mirroring import Selection, keep, look, select
from gpusetup.supply.signing import signer
from tests.unit.supply.test_site import deb, described

if TYPE_CHECKING:
    from pathlib import Path

    from gpusetup.supply.signing import Signer

pytestmark = pytest.mark.skipif(not (shutil.which("apt-get") and shutil.which("gpg")), reason="needs apt and gpg")
PLACE = "compute/cuda/repos/debian12/x86_64"


def entry(name: str, version: str, needs: str = "") -> Entry:
    file = Wanted("http://x.invalid/a", f"{name}_{version}_amd64.deb", 1, f"{name}{version}")
    return Entry(name, version, file, apt_repository.needs_of(needs))


def test_the_newest_of_each_line_and_what_they_need() -> None:
    drivers = [entry("cuda-drivers", f"{version}-1", f"nvidia-driver (= {version}-1), libc6 (>= 2.3)") for version in
               ("570.10.01", "570.9.01", "570.8.01", "580.1.01")]  # fmt: skip
    needed = [entry("nvidia-driver", f"{version}-1") for version in ("570.10.01", "570.9.01", "570.8.01", "580.1.01")]
    others = [entry("nvidia-driver", "590.1-1"), entry("nsight", "1.0"), entry("nsight-more", "1.0")]
    chosen = select([*drivers, *needed, *others], ("cuda-drivers", "nsight"), 2)
    assert [(one.name, one.version) for one in chosen] == [
        *((name, f"{version}-1") for name in ("cuda-drivers",) for version in ("570.10.01", "570.9.01", "580.1.01")),
        ("nsight", "1.0"),
        *((name, f"{version}-1") for name in ("nvidia-driver",) for version in ("570.10.01", "570.9.01", "580.1.01")),
    ]


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return signer("", tmp_path_factory.mktemp("k"))


@pytest.fixture
def upstream(tmp_path: Path, key: Signer, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(mirroring.time, "sleep", lambda _seconds: None)
    publish(tmp_path, key, "580.1.01-1")
    return tmp_path / "upstream"


def publish(tmp_path: Path, key: Signer, *versions: str) -> None:
    folder = tmp_path / f"debs-{len(versions)}"
    folder.mkdir()
    entries = [
        described(deb(folder / version, "cuda-drivers", version=version))
        for version in versions
        if (folder / version).mkdir() is None
    ]
    pool = Pool(tmp_path / "pool")
    pool.fetch([entry.file for entry in entries], nothing)
    apt_repository.publish(tmp_path / "upstream" / PLACE, entries, pool, key)


def chosen_of(upstream: Path, key: Signer) -> Selection:
    settings = Settings(source=f"file://{upstream}", source_fingerprints=(key.fingerprint,))
    return look(Request(os="debian12", arch="x86_64"), settings, matrix(), 2)


def nothing(_done: int, _whole: int) -> None: ...


def test_it_follows_what_is_published(tmp_path: Path, upstream: Path, key: Signer) -> None:
    out = tmp_path / "mirror"
    assert keep(out, chosen_of(upstream, key), key, None, nothing) == (1, 0)
    assert keep(out, chosen_of(upstream, key), key, None, nothing) == (0, 0)
    publish(tmp_path, key, "580.2.01-1", "580.3.01-1")
    assert keep(out, chosen_of(upstream, key), key, None, nothing) == (2, 1)
    assert sorted(path.name for path in (out / PLACE).glob("*.deb")) == [
        "cuda-drivers_580.2.01-1_amd64.deb", "cuda-drivers_580.3.01-1_amd64.deb",
    ]  # fmt: skip
    again = chosen_of(out, key)
    assert [one.version for one in again.entries] == ["580.2.01-1", "580.3.01-1"], "a mirror can be mirrored"


@pytest.mark.parametrize("harm", ["missing", "other", "index"])
def test_what_is_half_published_leaves_the_mirror_as_it_was(
    tmp_path: Path, upstream: Path, key: Signer, harm: str
) -> None:
    out = tmp_path / "mirror"
    keep(out, chosen_of(upstream, key), key, None, nothing)
    before = {path.name: path.read_bytes() for path in (out / PLACE).iterdir()}
    publish(tmp_path, key, "580.1.01-1", "580.2.01-1")
    new = upstream / PLACE / "cuda-drivers_580.2.01-1_amd64.deb"
    if harm == "missing":
        new.unlink()
    elif harm == "other":
        size = new.stat().st_size
        new.unlink()
        new.write_bytes(b"x" * size)
    else:
        (upstream / PLACE / "Packages").write_text("changed")
        (upstream / PLACE / "Packages.gz").write_text("changed")
    with pytest.raises(UnreachableError):
        keep(out, chosen_of(upstream, key), key, None, nothing)
    assert {path.name: path.read_bytes() for path in (out / PLACE).iterdir()} == before


def test_a_stranger_and_too_little_room_are_refused(tmp_path: Path, upstream: Path, key: Signer) -> None:
    other = signer("", tmp_path / "o")
    settings = Settings(
        source=f"file://{upstream}", source_fingerprints=(other.fingerprint,),
        source_key=f"file://{upstream}/{PLACE}/{key.fingerprint[-8:].lower()}.pub",
    )  # fmt: skip
    with pytest.raises(UnreachableError):
        look(Request(os="debian12", arch="x86_64"), settings, matrix(), 2)
    with pytest.raises(BadInputError, match="more than --room allows"):
        keep(tmp_path / "mirror", chosen_of(upstream, key), key, 1, nothing)
    assert not (tmp_path / "mirror").exists()


def test_bad_input_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mirror", "--os", "debian12"]) == 3
    assert main(["mirror", "--os", "amzn2023", "--arch", "aarch64", "--source", "distro", "--dry-run"]) == 3
    told = capsys.readouterr().err
    assert "GS-779" in told
    assert "GS-777" in told
