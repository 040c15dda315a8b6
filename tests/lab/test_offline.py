"""From a bundle to a proven stack on a host that asks nobody else: real Debian packages, dkms and pip, stand-in drivers."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.lab import machine
from tests.lab.applying import apply
from tests.lab.harm import break_build
from tests.lab.lifecycle import CONFIGURATION, builds_tiny_modules, host_of, rpms
from tests.lab.places import CHECKOUT, STATE
from tests.lab.plays import files_below, kernel_of, packages
from tests.lab.process import run

pytestmark = pytest.mark.slow
OLDER, NEWER = "570.211.01", "580.142"
RPM_SYSTEMS = {
    "rocky9-like": ("rocky9", "/etc/yum.repos.d", OLDER, NEWER),
    "leap15-like": ("opensuse-leap15", "/etc/zypp/repos.d", "580.142", "595.91.07"),
}


def bundle(out, repositories, version, kernel, home, *more, system="debian12"):
    """Make a bundle as a person does; return what it says to put into the inventory."""
    words = [f"driver=={version}", *more, "--gpu", "t4", "--os", system, "--kernel", kernel]
    return bundle_by(words, out, repositories, home)


def bundle_by(words, out, repositories, home):
    argv = [sys.executable, "-m", "gpusetup", "bundle", *words]
    for name, value in (repositories.variables if repositories is not None else {}).items():
        argv += ["--set", f"{name}={value}"]
    env = {**os.environ, "XDG_DATA_HOME": str(home)}
    done = run([*argv, "--out", out], cwd=CHECKOUT, env=env, timeout=3600)
    said = dict(
        line.partition("#")[0].strip().split("=", 1)
        for line in done.stdout.splitlines()
        if line.startswith("gpusetup_")
    )
    return {name: value.replace("/srv/bundle", f"/srv/{out.name}") for name, value in said.items()}


def asked_by(host):
    """How often it has asked the packages' server."""
    log = STATE / "requests.log"
    return log.read_text().count(host.address) if log.exists() else 0


def without_sources(host):
    """A host that knows no archive."""
    host.ssh("rm", "-rf", "/etc/apt/sources.list", "/etc/apt/sources.list.d")
    host.ssh("mkdir", "/etc/apt/sources.list.d")


@pytest.fixture
def alone(lab):
    """A host that knows no archive, and asks nobody while the test runs."""
    (host,) = lab.hosts(flavour="debian12-bare", machine="t4", network="none")
    without_sources(host)
    asked = asked_by(host)
    yield host
    assert asked_by(host) == asked, "the host asked somebody"


def fails_and_goes_back(host, version, tmp_path, inventory):
    """An upgrade fails when the host's source is the next bundle already, which has none of the versions of before."""
    before, files_before = packages(host), files_below(host, *CONFIGURATION)
    override = break_build(host, version)
    failed = apply(tmp_path, inventory, "--upgrade")
    override.unlink()
    assert (failed.code, host_of(failed)["state"]) == (7, "failed"), failed.out + failed.err
    assert "the host has its previous packages" in host_of(failed)["failure"]["note"], failed.out
    assert packages(host) == before
    assert files_below(host, *CONFIGURATION) == files_before


def carry(host, folder):
    target = host.path("/srv") / folder.name
    subprocess.run(["cp", "-a", str(folder), str(target)], check=True)


def test_a_host_without_a_network_comes_up_is_upgraded_and_goes_back(lab, alone):
    host, before, kernel = alone, packages(alone), kernel_of(alone)
    made = {}
    for version in (OLDER, NEWER):
        out = lab.folder / f"bundle-{version}"
        made[version] = bundle(out, lab.repositories, version, kernel, lab.folder, "cupy")
        carry(host, out)
    assert made[OLDER]["gpusetup_source_fingerprints"] == made[NEWER]["gpusetup_source_fingerprints"]

    def wanted(version, place=""):
        more = {"gpusetup_components": '["driver", "cupy"]', "gpusetup_driver": f"=={version}"}
        return lab.inventory([host], {**made[place or version], **more})

    swapped = next((host.path(f"/srv/bundle-{OLDER}") / "python").glob("cupy*.whl"))
    swapped.write_bytes((genuine := swapped.read_bytes()) + b"swapped")
    refused = apply(lab.folder, wanted(OLDER), "--upgrade")
    assert (refused.code, host_of(refused)["failure"]["reference"]) == (7, "GS-486"), refused.out
    assert "DO NOT MATCH THE HASHES" in refused.out
    swapped.write_bytes(genuine)

    for version in (OLDER, NEWER):
        if version == NEWER:
            fails_and_goes_back(host, version, lab.folder, wanted(version))
        apply(lab.folder, wanted(version), "--upgrade").well()
        assert version in host.ssh("nvidia-smi").stdout
        lab.settled(wanted(version))
    told = host.ssh("/opt/gpusetup/bin/python", "-c", "import cupy; print(cupy.__version__)")
    assert told.stdout.strip(), told.stderr

    lab.rolled_back(wanted(NEWER))
    assert OLDER in host.ssh("nvidia-smi").stdout

    older, newer = (host.path(f"/srv/bundle-{version}") for version in (OLDER, NEWER))
    shutil.rmtree(older)
    newer.rename(older)
    fails_and_goes_back(host, NEWER, lab.folder, wanted(NEWER, OLDER))
    lab.removed(wanted(OLDER))
    left = set(packages(host)) - set(before)
    assert not {name for name in left if "nvidia" in name}, left


def test_debians_own_driver_comes_from_a_bundle_on_a_host_that_reaches_nothing(lab, alone):
    """Debian's real packages, whose DKMS compiles tiny modules of the same names."""
    host, kernel = alone, kernel_of(alone)
    builds_tiny_modules(host)
    words = ["driver", "cupy", "--gpu", "t4", "--os", "debian12", "--kernel", kernel, "--set", "gpusetup_source=distro"]
    made = bundle_by(words, lab.folder / "own", None, lab.folder)
    assert made["gpusetup_source"] == "distro"
    carry(host, lab.folder / "own")
    inventory = lab.inventory([host], {**made, "gpusetup_components": '["driver", "cupy"]'})

    done = apply(lab.folder, inventory).well()
    driver = host_of(done)["stack"]["driver"]["version"]
    assert f"version:        {driver}" in host.ssh("modinfo", "-k", kernel, "nvidia-current").stdout
    lab.settled(inventory)


def test_a_bundle_for_an_inventory_is_all_that_apply_needs_of_it(lab, alone):
    """The same inventory for both: components, versions and a named environment are said there alone."""
    host = alone
    wishes = {
        "gpusetup_components": '["driver"]', "gpusetup_driver": f"=={NEWER}",
        "gpusetup_environments": '{"serve": ["cupy"]}', "gpusetup_source": "/srv/site",
    }  # fmt: skip
    made = bundle_by(
        ["--inventory", str(lab.inventory([host], wishes))], lab.folder / "site", lab.repositories, lab.folder
    )
    carry(host, lab.folder / "site")

    inventory = lab.inventory([host], {**wishes, **made})
    apply(lab.folder, inventory).well()
    assert NEWER in host.ssh("nvidia-smi").stdout
    told = host.ssh("/opt/gpusetup-serve/bin/python", "-c", "import cupy; print(cupy.__version__)")
    assert told.stdout.strip(), told.stderr
    lab.unchanged(inventory)


def archive(path, repositories, flavour):
    """Write where the distribution's own packages are, as its hosts have it."""
    places = {"leap15-like": [f"{repositories.leap}/oss"]}.get(
        flavour, [f"{repositories.rocky}/{name}" for name in ("baseos", "appstream", "epel")]
    )
    key = f"{repositories.base}/lab-key.asc"
    path.write_text(
        "".join(f"[{url.rpartition('/')[2]}]\nbaseurl={url}\ngpgcheck=1\ngpgkey={key}\n\n" for url in places)
    )
    return path


@pytest.mark.parametrize("flavour", RPM_SYSTEMS)
def test_a_host_with_rpm_lives_on_bundles_alone(flavour, lab):
    """Both signatures are checked: that of the list by the bundle's key, those of the packages by their vendors'."""
    machine.prepare({"dnf": "dnf", "zypper": "zypper", "rpmkeys": "rpm"})
    system, definitions, older, newer = RPM_SYSTEMS[flavour]
    (host,) = lab.hosts(flavour=flavour, machine="t4", network="none")
    host.ssh("rm", "-rf", definitions)
    host.ssh("mkdir", definitions)
    before, kernel = rpms(host), kernel_of(host)
    asked = asked_by(host)
    archives = ("--archive", str(archive(lab.folder / "archive.repo", lab.repositories, flavour)))

    made = {}
    for version in (older, newer):
        out = lab.folder / f"bundle-{version}"
        made[version] = bundle(out, lab.repositories, version, kernel, lab.folder, *archives, system=system)
        carry(host, out)

    def wanted(version):
        more = {"gpusetup_components": '["driver"]', "gpusetup_driver": f"=={version}"}
        return lab.inventory([host], {**made[version], **more})

    for version in (older, newer):
        apply(lab.folder, wanted(version), "--upgrade").well()
        assert version in host.ssh("nvidia-smi").stdout
        (ours,) = (path for path in host.path(definitions).iterdir() if path.name.startswith("cuda-"))
        checks = dict(line.split("=", 1) for line in ours.read_text().splitlines() if "gpgcheck=" in line)
        assert set(checks.values()) == {"1"}, checks
        lab.settled(wanted(version))

    old, new, aside = (host.path(f"/srv/{name}") for name in (f"bundle-{older}", f"bundle-{newer}", "aside"))
    new.rename(aside)
    old.rename(new)
    swapped = lab.inventory(
        [host], {**made[newer], "gpusetup_components": '["driver"]', "gpusetup_driver": f"=={older}"}
    )
    refusal = lab.refused(swapped, "--upgrade", "--no-way-back")
    assert refusal["reference"] == "GS-427", refusal
    new.rename(old)
    aside.rename(new)

    lab.rolled_back(wanted(newer))
    assert older in host.ssh("nvidia-smi").stdout
    lab.removed(wanted(older))
    assert not {name for name in set(rpms(host)) - set(before) if "nvidia" in name}
    assert asked_by(host) == asked, "the host asked somebody"
