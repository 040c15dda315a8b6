"""A bundle of rpm packages from what dnf solves to what dnf reads of it; dnf, rpm, createrepo_c and gpg are real."""

import json
import shutil

import pytest
from msgspec import structs

from gpusetup.bootstrap.bundle import check_bundle
from gpusetup.errors import BadInputError, GpuSetupError, PreflightError
from gpusetup.matrix.load import matrix
from gpusetup.model.package import Key, Package, Source, Stream
from gpusetup.model.request import Request, Requirement
from gpusetup.model.settings import Settings
from gpusetup.model.variables import RoleVariables
from gpusetup.plan.lock import lock_of
from gpusetup.resolve.api import resolve
from gpusetup_fleet.supply import rpm_repository, rpm_root, site
from gpusetup_fleet.supply.choosing import Asked, Supply
from gpusetup_fleet.supply.fetching import Pool
from gpusetup_fleet.supply.kinds import RPM
from gpusetup_fleet.supply.root import Extras
from gpusetup_fleet.supply.rpm_root import RpmRoot, archives_of
from gpusetup_fleet.supply.signing import fingerprints_of, signer
from gpusetup_fleet.supply.site import add_system
from tests.fleet.supply.conftest import nothing
from tests.fleet.supply.rpms import NEEDED, Rpm, build, described, published, run
from tests.refusals import refused
from tests.stored import stored

REPOSITORY = "compute/cuda/repos/rhel9/x86_64"
KERNELS = ("5.14.0-1.el9", "5.14.0-2.el9")
OLD, NEW = "3:570.1.01-1.el9", "3:580.2.01-1.el9"
STREAM = stored("rpm_stream.txt")
MODULES = STREAM.format(stream="570", version=OLD) + STREAM.format(stream="580", version=NEW)


class Upstream:
    """NVIDIA's repository and a distribution's, each signed by a key of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.nvidia, self.distribution = signer("", folder / "n"), signer("", folder / "d")
        drivers = [Rpm("driver", OLD, "builder"), Rpm("driver", NEW, "builder")]
        published(folder / "cuda", drivers, self.nvidia, MODULES)
        build(
            folder / "base", [Rpm("builder", "3.0-1.el9"), *(Rpm("kernel-devel", version) for version in KERNELS)],
            self.distribution,
        )  # fmt: skip
        run("createrepo_c", "--quiet", str(folder / "base"))
        (folder / "base.key").write_bytes(self.distribution.public())
        self.archive = folder / "base.repo"
        self.archive.write_text(f"[base]\nbaseurl=file://{folder}/base\ngpgkey=file://{folder}/base.key\n")

    def source(self, **more):
        key = Key.at(f"file://{self.folder}/cuda/{self.nvidia.key_file}", (self.nvidia.fingerprint,))
        return Source(name="cuda", kind="dnf", uris=(f"file://{self.folder}/cuda",), key=key, **more)


@pytest.fixture(scope="module")
def upstream(tmp_path_factory):
    return Upstream(tmp_path_factory.mktemp("u"))


def bare(folder, system):
    """Return a release without its own archives."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rpm_root, "archives_of", lambda _system, _arch: ())
        return RpmRoot(folder, system, "x86_64")


def solved(folder, upstream, stream, *packages):
    root = RpmRoot(folder, "rocky9", "x86_64", (str(upstream.archive),))
    root.add([upstream.source()])
    root.refresh()
    root.prefer(RoleVariables(gpu_packages_streams=(Stream(module="nvidia-driver", stream=stream),)), "")
    return root.closure(packages or [Package(name="driver")]), root


@pytest.fixture(autouse=True)
def _without_wheels(monkeypatch):
    monkeypatch.setattr(site, "controller_wheels", lambda _folder, **_what: ("", {}))


@NEEDED
def test_dnf_says_what_an_empty_machine_needs_of_the_chosen_stream(tmp_path, upstream, supply):
    found, root = solved(tmp_path / "r", upstream, "570")
    assert [(entry.name, entry.version) for entry in found] == [("builder", "3.0-1.el9"), ("driver", OLD)]
    assert [entry.version for entry in supply.packages] == ["3.0-1.el9", NEW], "of the other stream"
    assert root.extras().modules == MODULES
    assert len(root.extras().keys) == 2
    kernels = [Package(name="kernel-devel", version=version) for version in KERNELS]
    both = root.closure([Package(name="builder"), *kernels])
    assert {f"kernel-devel-{version}": version for version in KERNELS}.items() <= supply._replace(
        packages=both
    ).versions().items()
    with pytest.raises(BadInputError, match="finds no way"):
        root.closure([Package(name="driver", version="3:590.*")])


@pytest.fixture(scope="module")
def supply(tmp_path_factory, upstream):
    found, root = solved(tmp_path_factory.mktemp("s") / "r", upstream, "580")
    request = Request(requirements=(Requirement(component="driver"),), gpus=("t4",), os="rocky9", arch="x86_64")
    lock = lock_of(resolve(request, matrix()), matrix())
    return Supply(Asked(request, Settings()), (lock,), REPOSITORY, found, (), "3.9", RPM, root.extras())


@NEEDED
def test_dnf_takes_the_bundle_by_its_keys_alone(tmp_path, supply, key, upstream):
    out = tmp_path / "site"
    manifest = add_system(out, supply, key, nothing)
    check_bundle(out)
    system = manifest.systems["rocky9-x86_64"]
    assert system.packages == {"driver": NEW, "builder": "3.0-1.el9"}
    vendors = {upstream.nvidia.fingerprint, upstream.distribution.fingerprint}
    assert (system.fingerprint, set(system.vendors)) == (key.fingerprint, vendors)
    bill = json.loads((out / "sbom.json").read_text())
    assert "pkg:rpm/rocky/driver@580.2.01-1.el9?arch=x86_64&epoch=3" in {item["purl"] for item in bill["components"]}
    assert manifest.files[f"{REPOSITORY}/driver-580.2.01-1.el9.x86_64.rpm"].sha256 == supply.packages[1].file.sha256

    address = f"file://{out}/{REPOSITORY}"
    trusted = Key.at(f"{address}/{key.key_file}", (key.fingerprint, *system.vendors))
    source = Source(name="bundle", kind="dnf", uris=(address,), key=trusted)
    root = bare(tmp_path / "root", "rocky9")
    root.add([source])
    root.refresh()
    root.prefer(RoleVariables(gpu_packages_streams=(Stream(module="nvidia-driver", stream="580"),)), "")
    found = root.closure([Package(name="driver")])
    assert {entry.file.sha256 for entry in found} == {entry.file.sha256 for entry in supply.packages}
    install = ("dnf", "-y", *root.host.plain, "--setopt=tsflags=justdb,noscripts", "install", "driver")
    run(*install)  # with gpgcheck and repo_gpgcheck, as hosts have it

    shutil.copy(upstream.folder / "cuda/repodata/repomd.xml.asc", out / REPOSITORY / "repodata")
    stranger = bare(tmp_path / "again", "rocky9")
    stranger.add([source])
    with pytest.raises(GpuSetupError, match="could not be fetched"):
        stranger.refresh()


@NEEDED
def test_releases_that_share_a_repository_keep_packages_streams_and_keys(tmp_path, supply, key, upstream):
    out = tmp_path / "site"
    older, root = solved(tmp_path / "r", upstream, "570", Package(name="driver", version=OLD))
    other = supply.asked._replace(request=structs.replace(supply.asked.request, os="rhel9"))
    alone = Extras(STREAM.format(stream="570", version=OLD), root.extras().keys)
    add_system(out, supply, key, nothing)
    for _again in range(2):
        add_system(out, supply._replace(asked=other, packages=older[1:], extras=alone), key, nothing)
        assert {entry.version for entry in rpm_repository.read(out / REPOSITORY)} == {"3.0-1.el9", OLD, NEW}
        beside = rpm_repository.extras_in(out / REPOSITORY, key)
        assert sorted(beside.modules.split("---")) == sorted(MODULES.split("---"))
        assert len(beside.keys) == 3
        check_bundle(out)


@NEEDED
@pytest.mark.parametrize("signed", ["by nobody", "by a stranger"])
def test_a_package_that_its_vendor_did_not_sign_ends_it(tmp_path, supply, key, signed):
    build(tmp_path / "p", [Rpm("toolkit")], key if signed == "by a stranger" else None)
    more = supply._replace(packages=(*supply.packages, *described(tmp_path / "p")))
    for _again in range(2):
        with pytest.raises(GpuSetupError, match="not signed by the vendor"):
            add_system(tmp_path / "site", more, key, nothing)
        assert not (tmp_path / "site/manifest.json").exists()


@NEEDED
def test_a_package_that_a_signed_list_alone_vouches_for_is_signed_by_the_bundles_key(tmp_path, supply, key, upstream):
    """As NVIDIA's container toolkit is published: gpgcheck=0, repo_gpgcheck=1."""
    toolkit = tmp_path / "toolkit"
    build(toolkit, [Rpm("toolkit", needs="builder")], None)
    run("createrepo_c", "--quiet", str(toolkit))
    upstream.nvidia.detached(toolkit / "repodata/repomd.xml", toolkit / "repodata/repomd.xml.asc")
    vouches = Key.at(f"file://{upstream.folder}/cuda/{upstream.nvidia.key_file}", (upstream.nvidia.fingerprint,))
    source = Source(
        name="toolkit", kind="dnf", uris=(f"file://{toolkit}",), key=vouches, gpgcheck=False, repo_gpgcheck=True
    )
    root = RpmRoot(tmp_path / "r", "rocky9", "x86_64", (str(upstream.archive),))
    root.add([upstream.source(), source])
    root.refresh()
    root.prefer(RoleVariables(gpu_packages_streams=(Stream(module="nvidia-driver", stream="580"),)), "")
    found = root.closure([Package(name="driver"), Package(name="toolkit")])
    assert [entry.name for entry in found if entry.listed] == ["toolkit"]
    more = supply._replace(packages=found, extras=root.extras())
    out = tmp_path / "site"
    system = add_system(out, more, key, nothing).systems["rocky9-x86_64"]
    check_bundle(out)
    (theirs,) = (entry.file.sha256 for entry in found if entry.listed)
    (ours,) = system.sign_unsigned.values()
    assert system.sign_unsigned == {theirs: ours}
    assert ours != theirs

    address = f"file://{out}/{REPOSITORY}"
    prints = (key.fingerprint, *system.vendors)
    host = bare(tmp_path / "host", "rocky9")
    host.add(
        [Source(name="b", kind="dnf", uris=(address,), key=Key.at(f"{address}/{key.key_file}", prints), gpgcheck=True)],
    )
    host.refresh()
    host.prefer(RoleVariables(gpu_packages_streams=(Stream(module="nvidia-driver", stream="580"),)), "")
    run("dnf", "-y", *host.host.plain, "--setopt=tsflags=justdb,noscripts", "install", "driver", "toolkit")

    gone = tuple(entry._replace(file=entry.file._replace(url="file:///nowhere")) for entry in found)
    again = add_system(out, more._replace(packages=gone), key, nothing)
    assert again.systems["rocky9-x86_64"] == system, "neither fetched nor signed once more"


@NEEDED
def test_a_list_of_a_stranger_is_refused(tmp_path, upstream, key):
    (tmp_path / "k.pub").write_bytes(key.public())
    root = bare(tmp_path / "r", "rocky9")
    source = Source(
        name="cuda", kind="dnf", uris=(f"file://{upstream.folder}/cuda",),
        key=Key.at(f"file://{tmp_path}/k.pub", (key.fingerprint,)),
    )  # fmt: skip
    root.add([source])
    with pytest.raises(GpuSetupError, match="could not be fetched"):
        root.refresh()


@NEEDED
def test_zypper_solves_and_takes_it_too(tmp_path, upstream, key):
    root = RpmRoot(tmp_path / "solved", "opensuse-leap15", "x86_64", (str(upstream.archive),))
    root.add([structs.replace(upstream.source(), kind="zypper")])
    root.refresh()
    found = root.closure([Package(name="driver", version="3:570.*")])
    assert [(entry.name, entry.version) for entry in found] == [("builder", "3.0-1.el9"), ("driver", OLD)]
    pool = Pool(tmp_path / "pool")
    pool.fetch([entry.file for entry in found], nothing)
    place = tmp_path / "bundle"
    rpm_repository.publish(place, found, pool, key, root.extras())

    prints = (key.fingerprint, *fingerprints_of(root.extras().keys))
    assert len(set(prints)) == 3
    source = Source(
        name="bundle", kind="zypper", uris=(f"file://{place}",), key=Key.at(f"file://{place}/{key.key_file}", prints)
    )
    host = bare(tmp_path / "host", "opensuse-leap15")
    host.add([source])
    host.refresh()
    (trusted,) = rpm_root.repositories(host.definitions)[0].keys
    run("rpmkeys", "--root", str(host.folder / "root"), "--import", str(trusted))  # as the role does it
    options = [word for word in host.host.options if word != "--no-gpg-checks"]
    run("zypper", "--non-interactive", *options, "refresh", "--force")
    run("zypper", "--non-interactive", *options, "install", "--no-recommends", "driver")

    (place / "repodata/repomd.xml.asc").write_bytes((upstream.folder / "cuda/repodata/repomd.xml.asc").read_bytes())
    with pytest.raises(GpuSetupError, match="could not be fetched"):
        host.refresh()


def test_dnf_needs_root(tmp_path, monkeypatch):
    monkeypatch.setattr(rpm_root.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(rpm_root.os, "geteuid", lambda: 1000)
    with refused(PreflightError, hint="sudo"):
        RpmRoot(tmp_path, "rocky9", "x86_64")


def test_without_its_tools_it_says_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setattr(rpm_root.shutil, "which", lambda _name: None)
    with refused(PreflightError, match="createrepo-c, dnf, rpm", hint="apt-get install createrepo-c dnf rpm"):
        RpmRoot(tmp_path, "rocky9", "x86_64")


@pytest.mark.parametrize("system", ["rocky8", "rocky10", "almalinux8", "almalinux9", "centos9", "fedora43"])
def test_a_known_distribution_has_its_archives_and_their_key(system):
    version = system.lstrip("abcdefghijklmnopqrstuvwxyz")
    for source in archives_of(system, "aarch64"):
        (url,) = source.uris or ()
        assert url.startswith("https://")
        assert "aarch64" in url
        assert version in url
        assert "{" not in url
        assert isinstance(source.key, Key)
        assert "{" not in str(source.key.url)
        assert source.key.fingerprints


@pytest.mark.parametrize("system", ["rhel9", "amzn2023", "opensuse-leap15", "rocky7"])
def test_of_another_the_archives_are_named_by_hand(system):
    with refused(BadInputError, match="gpusetup knows no archive", hint="--archive FILE.repo"):
        archives_of(system, "x86_64")


@pytest.mark.parametrize(
    "text",
    [
        "[a]\nmirrorlist=https://x.invalid\ngpgkey=file:///k\n",
        "[a]\nbaseurl=https://x.invalid\n",
        "baseurl=x",
        "[a]\nenabled=no\n",
    ],
)
def test_a_definition_that_proves_nothing_is_refused(tmp_path, text):
    (tmp_path / "a.repo").write_text(text)
    with refused(BadInputError, "GS-764"):
        rpm_root.add_definitions(tmp_path / "a.repo", tmp_path / "d", tmp_path / "k", {})


def test_a_definition_of_a_host_is_taken_over(tmp_path, key):
    (tmp_path / "k.asc").write_bytes(key.public())
    text = "[on]\nenabled=True\nbaseurl=https://x.invalid/$releasever/$basearch https://y.invalid\ngpgkey=file://{0}/k.asc\n"
    (tmp_path / "a.repo").write_text(text.format(tmp_path) + "[off]\nenabled=0\nmirrorlist=https://x.invalid\n")
    texts = {"releasever": "9", "basearch": "x86_64"}
    rpm_root.add_definitions(tmp_path / "a.repo", tmp_path / "d", tmp_path / "k", texts)
    (only,) = rpm_root.repositories(tmp_path / "d")
    assert (only.name, only.url, only.signed) == ("on", "https://x.invalid/9/x86_64", True)
    assert only.keys[0].read_bytes() == key.public()
