"""A new machine without any package source: real cloud-init, a bundle over TLS, stand-in drivers, real CuPy wheels."""

import json
import shutil

import pytest

from tests.lab.bootstrapping import Served, first_boot, status, user_data, wait_for_end
from tests.lab.places import REPOSITORIES
from tests.lab.plays import kernel_of
from tests.lab.private_site import NAME, private_site
from tests.lab.test_offline import NEWER, bundle, without_sources


@pytest.fixture
def place(tmp_path):
    """Where the lab's server serves from; it is gone afterwards."""
    folder = REPOSITORIES / f"whole-bundle-{tmp_path.name}"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_a_new_machine_comes_up_from_a_bundle_alone(lab_hosts, lab_repositories, tmp_path, place):
    (host,) = lab_hosts(flavour="debian12-cloud", machine="t4", network="none")
    said = bundle(place, lab_repositories, NEWER, kernel_of(host), tmp_path, "cupy")
    without_sources(host)
    key = said["gpusetup_source_fingerprints"][-8:].lower()
    wish = (f"driver=={NEWER}", "cupy", "--gpu", "t4", "--os", "debian12")
    with private_site(tmp_path) as site:
        url = f"{site.url}/{place.name}"
        settings = {
            "gpusetup_source": url, "gpusetup_source_key": f"{url}/compute/cuda/repos/debian12/x86_64/{key}.pub",
            "gpusetup_source_fingerprints": said["gpusetup_source_fingerprints"],
            "gpusetup_python_links": f"{url}/python/",
        }  # fmt: skip
        words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        words += ["--proxy", site.proxy, "--ca", str(site.ca)]
        first_boot(host, user_data(Served(place, url), lab_repositories, *words, wish=wish))
        end = wait_for_end(host)
    assert end["state"] == "done", host.path("/var/log/gpusetup-bootstrap.log").read_text()[-2000:]
    assert len(end["reboots"]) == 1, end["reboots"]
    assert set(site.asked) == {f"{NAME}:443"}, "it asked somebody else"
    assert NEWER in host.ssh("nvidia-smi").stdout
    assert host.ssh("/opt/gpusetup/bin/python", "-c", "import cupy").returncode == 0
    assert json.loads(host.ssh("cloud-init", "status", "--format", "json").stdout)["status"] == "done"
    host.reboot()
    host.wait()
    assert status(host) == end
