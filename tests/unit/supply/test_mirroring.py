"""A mirror: what is chosen, what a half-published repository does to it, and what hosts read; apt, dnf and gpg are real."""

import json
from pathlib import Path
from typing import NamedTuple

import jsonschema
import pytest

from gpusetup.bootstrap.bundle import alone_on
from gpusetup.cli.export import schema_of
from gpusetup.errors import BadInputError, PreflightError, UnreachableError
from gpusetup.matrix.load import matrix
from gpusetup.model.request import Request
from gpusetup.model.settings import Settings
from gpusetup.supply import apt_repository, fetching, mirroring
from gpusetup.supply.fetching import Wanted
from gpusetup.supply.mirroring import keep, look, require_limit, select
from gpusetup.supply.root import Entry
from gpusetup.supply.signing import Signer, signer
from tests.unit.supply import rpms
from tests.unit.supply.conftest import NEEDED, deb, described, nothing, published

pytestmark = NEEDED


def entry(name, version, needs=""):
    file = Wanted("http://x.invalid/a", f"{name}_{version}_amd64.deb", 1, f"{name}{version}")
    return Entry(name, version, file, apt_repository.needs_of(needs))


def test_the_newest_of_each_line_and_what_they_need():
    versions = ("570.10.01-1", "570.9.01-1", "570.8.01-1", "580.1.01-1")
    drivers = [entry("cuda-drivers", one, f"nvidia-driver (= {one}), libc6 (>= 2.3)") for one in versions]
    needed = [entry("nvidia-driver", one) for one in (*versions, "590.1-1")]
    others = [entry("nsight", "1.0"), entry("nsight-more", "1.0")]
    chosen = select([*drivers, *needed, *others], ("cuda-drivers", "nsight"), 2)
    kept = [one for one in versions if one != "570.8.01-1"]
    assert [(one.name, one.version) for one in chosen] == [
        *(("cuda-drivers", one) for one in kept), ("nsight", "1.0"), *(("nvidia-driver", one) for one in kept),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def vendor(tmp_path_factory):
    return signer("", tmp_path_factory.mktemp("v"))


class Upstream(NamedTuple):
    """A vendor's repository, and how it publishes."""

    system: str
    place: str
    suffix: str
    folder: Path
    key: Signer

    def publish(self, *versions):
        if self.suffix == ".rpm":
            rpms.published(self.folder / self.place, [rpms.Rpm("cuda-drivers", item) for item in versions], self.key)
            return
        raw = self.folder / f"raw-{len(versions)}"
        entries = [described(deb(raw, "cuda-drivers", version=version)) for version in versions]
        published(self.folder / self.place, entries, self.key)

    def chosen(self, folder=None, *signers):
        prints = tuple(signer.fingerprint for signer in (*signers, self.key))
        settings = Settings(source=f"file://{folder or self.folder}", source_fingerprints=prints)
        return look(Request(os=self.system, arch="x86_64"), settings, matrix(), 2)

    def files(self, folder):
        return sorted(path.name for path in (folder / self.place).glob(f"*{self.suffix}"))


@pytest.fixture(
    params=[("debian12", "debian12", ".deb"), pytest.param(("rocky9", "rhel9", ".rpm"), marks=rpms.NEEDED)],
    ids=("deb", "rpm"),
)
def upstream(request, tmp_path, monkeypatch, vendor):
    monkeypatch.setattr(mirroring.time, "sleep", lambda _seconds: None)
    monkeypatch.setattr(fetching, "_PAUSE", 0)
    system, directory, suffix = request.param
    made = Upstream(system, f"compute/cuda/repos/{directory}/x86_64", suffix, tmp_path / "upstream", vendor)
    made.publish("580.1.01-1")
    return made


def contents(place):
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def test_it_follows_what_is_published(tmp_path, upstream, key):
    out = tmp_path / "mirror"
    assert keep(out, upstream.chosen(), key, nothing) == (1, 0)
    assert keep(out, upstream.chosen(), key, nothing) == (0, 0)
    upstream.publish("580.2.01-1", "580.3.01-1")
    assert keep(out, upstream.chosen(), key, nothing) == (2, 1)
    ends = {".deb": "_580.{}.01-1_amd64.deb", ".rpm": "-580.{}.01-1.x86_64.rpm"}[upstream.suffix]
    assert upstream.files(out) == ["cuda-drivers" + ends.format(number) for number in (2, 3)]
    again = upstream.chosen(out, key)
    assert [one.version for one in again.entries] == ["580.2.01-1", "580.3.01-1"], "a mirror can be mirrored"


@pytest.mark.parametrize("harm", ["missing", "other", "index"])
def test_what_is_half_published_leaves_the_mirror_as_it_was(tmp_path, upstream, key, harm):
    out = tmp_path / "mirror"
    keep(out, upstream.chosen(), key, nothing)
    before = contents(out / upstream.place)
    upstream.publish("580.1.01-1", "580.2.01-1")
    place = upstream.folder / upstream.place
    new = place / upstream.files(upstream.folder)[-1]
    if harm == "missing":
        new.unlink()
    elif harm == "other":
        other = b"x" * new.stat().st_size
        new.unlink()  # it is a link
        new.write_bytes(other)
    else:
        for path in (*place.glob("Packages*"), *place.glob("repodata/*primary*")):
            path.write_text("changed")
    with pytest.raises(UnreachableError):
        keep(out, upstream.chosen(), key, nothing)
    assert contents(out / upstream.place) == before


def test_a_stranger_and_too_little_room_are_refused(tmp_path, upstream, key):
    settings = Settings(
        source=f"file://{upstream.folder}", source_fingerprints=(key.fingerprint,),
        source_key=f"file://{upstream.folder}/{upstream.place}/{upstream.key.key_file}",
    )  # fmt: skip
    with pytest.raises(UnreachableError):
        look(Request(os=upstream.system, arch="x86_64"), settings, matrix(), 2)
    with pytest.raises(BadInputError, match="more than --room allows"):
        require_limit(tmp_path / "mirror", [upstream.chosen(), upstream.chosen()._replace(entries=())], 1)
    assert not (tmp_path / "mirror").exists()


def test_programs_are_told_what_people_are(tmp_path, upstream, monkeypatch, says):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    words = ["bundle", "mirror", "--os", upstream.system, "--source", f"file://{upstream.folder}",
             "--source-fingerprints", upstream.key.fingerprint]  # fmt: skip
    out, told = ["--out", tmp_path / "mirror"], []
    for more in (["--dry-run"], out, out):
        told.append(json.loads(says(0, *words, *more, "--format", "json")))
        jsonschema.validate(told[-1], schema_of("mirror"))
    counts = [(each["packages"], each["new"], each["gone"]) for document in told for each in document["repositories"]]
    assert counts == [(1, None, None), (1, 1, 0), (1, 0, 0)]
    assert told[0]["source"] == ""
    kept = [upstream.key.fingerprint] if upstream.suffix == ".rpm" else []
    assert told[1]["fingerprints"][1:] == kept, "rpm packages keep their vendor's signature"
    said = says(0, *words, *out)
    assert f"gpusetup_source={told[1]['source']} " in said
    assert ",".join(told[1]["fingerprints"]) in said


@pytest.mark.parametrize(
    ("words", "reference"),
    [
        (["--os", "debian12"], "GS-779"),
        (["--os", "amzn2023", "--arch", "aarch64", "--source", "distro", "--dry-run"], "GS-777"),
    ],
)
def test_bad_input_is_told(words, reference, says):
    assert reference in says(3, "bundle", "mirror", *words)


def test_the_room_is_one_for_all_and_one_command_at_a_time_writes(tmp_path, upstream, monkeypatch):
    chosen = upstream.chosen()
    first = chosen.entries[0]
    other = chosen._replace(entries=(first._replace(file=first.file._replace(sha256="0" * 64)),))
    require_limit(tmp_path, [chosen, chosen], chosen.size)
    with pytest.raises(BadInputError, match="more than --room allows"):
        require_limit(tmp_path, [chosen, other], chosen.size)
    monkeypatch.chdir(tmp_path)
    for place in (tmp_path / "mirror", Path("new/mirror"), Path(), Path("mirror")):
        with alone_on(place, "renews"), pytest.raises(PreflightError, match="another gpusetup renews"):
            alone_on(place.resolve(), "renews").__enter__()
        with alone_on(place, "renews"):
            pass
    assert list(tmp_path.rglob(".mirror*")) == []
