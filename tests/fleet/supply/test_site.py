"""A bundle from its packages to what apt and pip read of it; the package index is not asked, apt and gpg are real."""

import dataclasses
import hashlib
import json
import shutil
import threading
import urllib.request
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from gpusetup.bootstrap.bundle import alone_on, check_bundle, read_manifest, write_manifest
from gpusetup.bootstrap.hashes import Full, Target
from gpusetup.cli.main import command_parser, main
from gpusetup.components.base import Offers
from gpusetup.components.driver.sources import context_of
from gpusetup.components.python.environments import with_one_driver
from gpusetup.drive import rundir
from gpusetup.errors import BadInputError, GpuSetupError, PreflightError
from gpusetup.matrix.load import matrix
from gpusetup.model.facts import Facts
from gpusetup.model.lock import PipHashes
from gpusetup.model.package import Package
from gpusetup.model.plan import HostPlan
from gpusetup.plan.host import Planner
from gpusetup.plan.settings import read_level, settings_for
from gpusetup.plan.wanted import wanted_of
from gpusetup.resolve.api import resolve
from gpusetup_fleet.cli.bundle_hosts import systems_of
from gpusetup_fleet.supply import apt_repository, choosing, site
from gpusetup_fleet.supply.apt_repository import AptRoot
from gpusetup_fleet.supply.choosing import choose, wheels_of
from gpusetup_fleet.supply.fetching import path_of
from gpusetup_fleet.supply.server import server_of
from gpusetup_fleet.supply.signing import prove_signature, signer
from gpusetup_fleet.supply.site import add_system
from tests.fleet.supply.conftest import NEEDED, REPOSITORY, deb, described, no_wheels, nothing, published
from tests.hosts.machines import machine
from tests.refusals import refused

pytestmark = NEEDED


def test_apt_takes_it_by_its_key_alone(tmp_path, supply, key):
    out = tmp_path / "site"
    manifest = add_system(out, supply, key, nothing)
    assert manifest.systems["debian12-x86_64"].packages == {"driver": "1:2.0-1", "dkms": "3.0"}
    check_bundle(out)
    bill = json.loads((out / "sbom.json").read_text())["components"]
    assert {item["name"] for item in bill} == {"driver", "dkms", "cupy", "pip"}, "packages, wheels, gpusetup's own"
    assert all(item["hashes"] for item in bill)
    place = out / REPOSITORY
    public = place / key.key_file
    line = f"deb [signed-by={public}] file:{place} /"
    root = AptRoot(tmp_path / "root", "debian12", "x86_64", (line,))
    root.refresh()
    found = root.closure([Package(name="driver", version="1:2.0-*")])
    assert {entry.file.sha256 for entry in found} == {entry.file.sha256 for entry in supply.packages}
    assert all(path_of(entry.file.url).is_file() for entry in found)

    public.write_bytes(signer("", tmp_path / "other").public())
    stranger = AptRoot(tmp_path / "again", "debian12", "x86_64", (line,))
    with pytest.raises(GpuSetupError, match="could not be fetched"):
        stranger.refresh()


def test_the_manifest_says_who_made_it(tmp_path, supply, key, out, says):
    add_system(out, supply, key, nothing)
    there, manifest, signature = tmp_path / "there", out / "manifest.json", out / "manifest.json.asc"

    def verified(code, folder=out, fingerprint=key.fingerprint):
        return says(code, "bundle", "--verify", folder, "--signed-by", fingerprint)

    verified(0)
    verified(0, fingerprint=" ".join([key.fingerprint[:20].lower(), key.fingerprint[20:]]))
    assert "no key with this fingerprint" in verified(3, fingerprint="A" * 40)
    shutil.copytree(out, there)
    verified(0, there)

    # What was signed is not replaced by what is not, whatever its serial, nor by what somebody else signed.
    forged = Path(shutil.copytree(out, tmp_path / "forged"))
    (forged / signature.name).unlink()
    write_manifest(forged / manifest.name, structs.replace(read_manifest(manifest)[0], serial=1 << 40))

    def carried(code, *words):
        shutil.rmtree(there)
        shutil.copytree(forged, there)
        return says(code, "bundle", "--verify", there, *words)

    assert "--unsigned accepts it" in carried(3)
    carried(3, "--unsigned", "--signed-by", key.fingerprint)
    signer("", tmp_path / "forger").detached(forged / manifest.name, forged / signature.name)
    assert "another one's" in carried(3)
    (forged / signature.name).unlink()
    carried(0, "--unsigned")

    # Whoever changes a file and its digest, or signs with a key of his own, is found.
    other = signer("", tmp_path / "other")
    manifest.write_bytes(manifest.read_bytes() + b"\n")
    assert "changed since" in verified(3)
    other.detached(manifest, signature)
    verified(3)
    (out / REPOSITORY / other.key_file).write_bytes(other.public() + key.public())
    verified(3)
    signature.unlink()
    assert "its signature file is missing" in verified(3)


def test_what_is_there_is_not_fetched_again_and_old_wheels_go(supply, key, out):
    for item in supply.files():
        path_of(item.url).unlink()
    add_system(out, supply, key, nothing)
    manifest = add_system(out, supply._replace(wheels=()), key, nothing)
    assert not list((out / "python").glob("*.whl"))
    assert not (out / ".pool").exists()
    there = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert set(manifest.files) == there - {"manifest.json", "manifest.json.asc"}


def test_a_damaged_key_is_no_key_and_without_gpg_it_says_what_to_install(tmp_path, monkeypatch):
    for damaged in (b"-----BEGIN PGP PUBLIC KEY BLOCK-----", b"\xff\xfe"):
        (tmp_path / "key").write_bytes(damaged)
        with pytest.raises(BadInputError, match="is not signed by"):
            prove_signature(tmp_path / "key", tmp_path / "key", [tmp_path / "key"], "A" * 40)
    monkeypatch.setenv("PATH", "/nowhere")
    with refused(PreflightError, match="gpg, which signs", hint="install gnupg"):
        signer("", tmp_path / "keys")


def test_a_folder_with_other_things_is_left_alone(tmp_path, supply, key):
    (tmp_path / "home").mkdir()
    (tmp_path / "home/letter.txt").write_text("dear")
    with pytest.raises(BadInputError, match="contains other files"):
        add_system(tmp_path / "home", supply, key, nothing)
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["letter.txt"]


def test_a_lock_that_was_deleted_meanwhile_is_nobodys(tmp_path, monkeypatch):
    out = tmp_path / "out"
    monkeypatch.setattr(rundir.fcntl, "flock", lambda _lock, _how: (tmp_path / ".out.lock").unlink())
    with pytest.raises(PreflightError, match="another gpusetup"), alone_on(out, "makes"):
        pass


def test_a_wheel_of_another_content_and_the_same_name_takes_its_place(tmp_path, supply, key):
    out = tmp_path / "site"
    add_system(out, supply, key, nothing)
    (tmp_path / "rebuilt").write_bytes(b"rebuilt")
    digest = hashlib.sha256(b"rebuilt").hexdigest()
    anew = supply.wheels[0]._replace(url=f"file://{tmp_path}/rebuilt", size=7, sha256=digest)
    add_system(out, supply._replace(wheels=(anew, *supply.wheels[1:])), key, nothing)
    check_bundle(out)
    assert (out / "python" / anew.name).read_bytes() == b"rebuilt"


@pytest.fixture
def ask(out):
    (out / "secret").write_text("not in the manifest")
    server = server_of(out, ("127.0.0.1", 0), None, print)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()

    def asked(path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/{path}", timeout=5) as answer:
                answer.read()
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    yield asked
    server.stop()
    thread.join(20)


def test_it_is_served_by_its_manifest(ask):
    served = ("manifest.json", "manifest.json.asc", f"{REPOSITORY}/InRelease", "python/", "sbom.json")
    refused = ("secret", "..%2f..%2fetc/passwd", "", REPOSITORY, ".lock")
    assert [ask(name) for name in (*served, *refused)] == [200] * 5 + [404] * 5


def test_hosts_that_were_looked_at_say_what_they_are(tmp_path, says):
    hosts = {name: machine(name) for name in ("ubuntu24.04-h200-keep", "debian12-t4-open")}
    facts = tmp_path / "facts.json"
    facts.write_bytes(msgspec.json.encode(Facts(hosts=hosts)))
    words = ["driver", "--from", str(facts)]
    ((asked,),) = systems_of(command_parser("bundle").parse_args([*words, "--os", "debian12"]), matrix())
    assert (asked.request.os, asked.request.arch, asked.request.gpus) == ("debian12", "x86_64", ("10de:1eb8",))
    assert (asked.names, asked.host) == (("debian12-t4-open",), hosts["debian12-t4-open"])
    other = [*words, "--gpu", "8x", "h100", "--os", "debian12"]
    (((asked, *_),),) = systems_of(command_parser("bundle").parse_args(other), matrix())
    assert (asked.gpus, asked.gpu_count) == (("h100",), 8)
    every = systems_of(command_parser("bundle").parse_args(words), matrix())
    assert [[kind.request.os for kind in kinds] for kinds in every] == [["debian12"], ["ubuntu24.04"]]
    assert "no host with a requested GPU" in says(3, "bundle", *words, "--os", "rocky9", "--out", tmp_path / "x")


def test_the_best_wheel_of_each_package_is_taken():
    names = ["n-1-cp312-cp312-manylinux_2_28_x86_64.whl", "n-1-cp311-cp311-manylinux_2_34_x86_64.whl"]
    names += ["n-1-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", "n-1-py3-none-any.whl"]
    text = locked("n", "1", *((f"https://x.invalid/{name}", "a" * 64) for name in names))
    (old,) = wheels_of(text, Target("3.11", "x86_64", "2.28"))
    (new,) = wheels_of(text, Target("3.11", "x86_64", "2.36"))
    assert (old.name, new.name) == (names[2], names[1])
    for other in ("n-1-cp310-none-win_amd64.whl", "no-wheel.whl", "n-1-1%2F..%2Fx-py3-none-any.whl"):
        with pytest.raises(GpuSetupError, match="no wheel"):
            wheels_of(text.replace(names[3], other), Target("3.9", "aarch64"))


def locked(name, version, *wheels):
    made = ", ".join(f'{{ url = "{url}", hashes = {{ sha256 = "{digest}" }} }}' for url, digest in wheels)
    return f'[[packages]]\nname = "{name}"\nversion = "{version}"\nwheels = [{made}]\n'


def test_every_named_environment_brings_its_wheels(tmp_path, supply, key, monkeypatch):
    """The wishes of hosts, planned for real; what the repositories and the index answer is given here."""
    asked_of_index: list[str] = []

    def answered(wanted, target):
        text = ""
        for line in wanted.wheels:
            name, equals, version = line.partition("==")
            if not equals or line.startswith("-"):
                continue
            asked_of_index.append(f"{name} for {target.python}")
            name = name.partition("[")[0]
            wheel = tmp_path / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
            wheel.write_bytes(line.encode())
            text += locked(name, version, (wheel.as_uri(), hashlib.sha256(line.encode()).hexdigest()))
        return PipHashes(python="", arch="", system=(), wheels=()), Full((), text)

    wishes = {"environments": {"serve": ["vllm"], "train": ["torch==2.9.*"]}}
    settings = settings_for({}, {}, read_level(wishes, "--set"), supply.asked.request.requirements)
    asked = supply.asked._replace(settings=settings)
    planner = Planner(matrix(), resolve)

    def planned(_roots, facts, asked, *_more):
        settings = asked.settings
        request = structs.replace(asked.request, wheels_only=True)
        answer, named = with_one_driver(facts, settings, request, resolve(request, matrix()), planner.resolve)
        context = dataclasses.replace(context_of(matrix().repos, facts, settings, Offers(None)), named=named)
        wanted = wanted_of(context, None, answer.stack, matrix())
        return HostPlan(state="change", now="", stack=answer.stack), wanted, None

    monkeypatch.setattr(choosing, "_planned", planned)
    monkeypatch.setattr(choosing, "hashes_of", answered)
    chosen = choose([asked], matrix(), lambda _what: None)
    assert set(chosen.environments) == {"serve", "train"}
    assert any(name.startswith("vllm-") for name in chosen.environments["serve"])
    assert any(name.startswith("torch-2.9.") for name in chosen.environments["train"])
    assert all(line.endswith("for 3.11") for line in asked_of_index)
    out = tmp_path / "site"
    system = add_system(out, chosen, key, nothing).systems["debian12-x86_64"]
    check_bundle(out)
    assert {name for names in system.environments.values() for name in names} == set(system.wheels)
    links = (out / "python/index.html").read_text()
    assert all(name.rpartition("/")[2] in links for name in system.wheels)


def packages_in(folder):
    return {path.name.partition("_")[0] for path in folder.rglob("*.deb")}


def test_releases_that_share_a_repository_keep_their_packages(tmp_path, supply, key, out):
    asked = supply.asked
    other = asked._replace(request=structs.replace(asked.request, os="lmde6"))
    more = described(deb(tmp_path / "debs", "cuda"))
    for _again in range(2):
        add_system(out, supply._replace(asked=other, packages=(more,)), key, nothing)
        assert packages_in(out / REPOSITORY) == {"driver", "dkms", "cuda"}
        check_bundle(out)
    add_system(out, supply._replace(packages=supply.packages[:1]), key, nothing)
    assert packages_in(out / REPOSITORY) == {"driver", "cuda"}


def test_the_repository_of_a_former_source_goes(supply, key, out):
    own = "archive/debian12/x86_64"
    manifest = add_system(out, supply._replace(repository=own), key, nothing)
    assert packages_in(out / own) == {"driver", "dkms"}
    assert not (out / REPOSITORY).exists()
    assert not [name for name in manifest.files if name.startswith("compute/")]
    check_bundle(out)


def test_every_cpu_that_is_asked_for_counts():
    words = ["driver", "--gpu", "t4", "--os", "ubuntu24.04", "--arch", "x86_64", "--arch", "arm64"]
    systems = systems_of(command_parser("bundle").parse_args(words), matrix())
    assert [[asked.request.arch for asked in kinds] for kinds in systems] == [["x86_64"], ["aarch64"]]


def test_what_an_older_bundle_lacks(tmp_path, supply, key, out, says):
    add_system(tmp_path / "old", supply._replace(wheels=()), key, nothing)
    for older in ("old", "old/manifest.json"):
        told = says(0, "bundle", "--verify", out, "--diff", tmp_path / older).split()
        assert "python/cupy-1.0-py3-none-any.whl" in told
        assert told[-2:] == ["manifest.json", "manifest.json.asc"]
        assert not [name for name in told if name.endswith(".deb")]


_OWN = {
    "debian12": ("535.309.01-0+deb12u1", ["nvidia-kernel-dkms", "libcuda1", "nvidia-smi", "firmware-nvidia-gsp"]),
    "ubuntu24.04": ("580.178.04-0ubuntu1", [
        "nvidia-dkms-580-server-open", "nvidia-headless-no-dkms-580-server-open", "nvidia-utils-580-server",
        "nvidia-compute-utils-580-server",
    ]),
}  # fmt: skip
"""A distribution → a version of its own driver, and packages of it."""
_TOOLS = ("dkms", "gcc", "make", "linux-headers-amd64", "linux-headers-generic", "linux-headers-6.1.0-9-amd64")


@pytest.mark.parametrize("system", _OWN)
def test_a_distributions_own_driver_packages_become_one_more_repository_of_its_hosts(
    system, tmp_path, key, monkeypatch, capsys
):
    """Stub packages with the distribution's names in an archive of their own."""
    monkeypatch.setattr(site, "controller_wheels", no_wheels)
    version, names = _OWN[system]
    debs = [deb(tmp_path, name, "dkms", version) for name in names] + [deb(tmp_path, name) for name in _TOOLS]
    archive = published(tmp_path / "archive", [described(path) for path in debs], key)
    words = ["driver", "--gpu", "t4", "--os", system, "--set", "gpusetup_source=distro", "--archive", archive]
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    assert main(["bundle", *words, "--out", str(tmp_path / "out")]) == 0
    lines = [line.partition("   ")[0] for line in capsys.readouterr().out.splitlines() if line.startswith("gpusetup_")]
    told = dict(line.split("=", 1) for line in lines)
    place = f"archive/{system}/x86_64"
    packages = {entry.name: entry.version for entry in apt_repository.read(tmp_path / "out" / place)}
    assert {name: version for name in names if "persist" not in name}.items() <= packages.items()
    assert "dkms" in packages
    check_bundle(tmp_path / "out")
    settings = settings_for({}, {}, read_level(told, "inventory", prefix="gpusetup_"), ())
    assert settings.source == "distro"
    (extra,) = settings.extra_sources
    assert extra.uris == (f"file:///srv/bundle/{place}",)
    (told_key,) = [item["key"] for item in json.loads(told["gpusetup_extra_sources"])]
    assert (tmp_path / "out" / told_key.removeprefix("/srv/bundle/")).is_file()


def test_a_source_that_is_no_repository_makes_no_bundle(says):
    words = ("--gpu", "t4", "--os", "debian12", "--set", "gpusetup_source=/srv/NVIDIA-Linux-x86_64-580.142.run")
    assert "--set gpusetup_source=distro" in says(3, "bundle", "driver", *words, "--dry-run")
