"""A bundle for an inventory: its hosts are looked at by real Ansible, and read, planned and followed as apply does."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from gpusetup.bootstrap.bundle import check_bundle
from gpusetup.cli.main import command_parser
from gpusetup.components.base import Wanted, working_driver
from gpusetup.matrix.load import matrix
from gpusetup.model.package import Package, PackageSet
from gpusetup.model.plan import HostPlan
from gpusetup.model.request import Request, Requirement
from gpusetup.plan.lock import read_lock
from gpusetup.plan.requests import as_delivered
from gpusetup.plan.settings import settings_for
from gpusetup.resolve.api import resolve
from gpusetup_fleet.cli.bundle_hosts import systems_of
from gpusetup_fleet.supply import choosing, site
from gpusetup_fleet.supply.choosing import Asked, choose
from gpusetup_fleet.supply.site import add_system
from tests.fleet.supply.conftest import NEEDED, REPOSITORY, deb, described, nothing, published
from tests.hosts.machines import machine

pytestmark = NEEDED
HOSTS = Path(__file__).resolve().parents[2] / "hosts"
BUNDLE = "A71155CDFDD4EC5478D170C02223059898B8750B"


@pytest.fixture
def inventory(tmp_path, monkeypatch):
    """Five hosts with captured GPUs; a lab of two machines alike, others of other wishes, one without a GPU."""
    monkeypatch.setenv("GPUSETUP_STATE", str(tmp_path / "state"))
    t4, v100, none = (HOSTS / f"debian12-{name}/root" for name in ("t4-open", "v100-proprietary", "none-nothing"))
    (tmp_path / "gpusetup.toml").write_text('cuda = "12.8.*"\n')
    path = tmp_path / "inventory.ini"
    path.write_text(
        f"""[gpus]
one gpusetup_simulated_root={t4}
two gpusetup_simulated_root={t4} gpusetup_reboot=never
old gpusetup_simulated_root={v100} gpusetup_driver="==570.211.01"
serving gpusetup_simulated_root={t4} gpusetup_containers=docker gpusetup_environments='{{"serve": ["vllm"]}}'
bare gpusetup_simulated_root={none}
[gpus:vars]
ansible_connection=local
ansible_python_interpreter=/usr/bin/python3
gpusetup_components=["driver","cuda"]
gpusetup_source=/srv/bundle
gpusetup_source_fingerprints={BUNDLE}
gpusetup_python_links=/srv/bundle/python
gpusetup_extra_sources=[{{"name": "gpusetup-bundle", "urls": ["file:///srv/bundle/archive/debian12/x86_64"], "fingerprints": ["{BUNDLE}"], "key": "/srv/bundle/key.pub"}}]
"""
    )
    return path


def kinds_of(inventory, *words):
    (kinds,) = systems_of(command_parser("bundle").parse_args(["--inventory", str(inventory), *words]), matrix())
    return {kind.names: kind for kind in kinds}


def test_an_inventory_is_read_as_apply_reads_it(inventory):
    kinds = kinds_of(inventory)
    assert list(kinds) == [("one", "two"), ("old",), ("serving",)]
    for kind in kinds.values():
        said = {str(item) for item in kind.settings.requirements}
        assert "cuda==12.8.*" in said, "gpusetup.toml counts"
        assert (kind.settings.source, kind.settings.source_fingerprints) == ("nvidia", ()), "not the bundle itself"
        assert kind.settings.extra_sources == ()
        assert kind.request.requirements == kind.settings.requirements
    assert "driver==570.211.01" in {str(item) for item in kinds["old",].settings.requirements}
    serving = kinds["serving",].settings
    assert (serving.containers, [item.name for item in serving.environments]) == (("docker",), ["serve"])


def test_the_command_line_is_above_the_inventory(inventory):
    words = ["--set", "gpusetup_source=https://mirror.example", "--set", 'gpusetup_environments={"train": ["torch"]}']
    kinds = kinds_of(inventory, *words, "--limit", "serving,old")
    assert list(kinds) == [("old",), ("serving",)]
    for kind in kinds.values():
        assert (kind.settings.source, kind.settings.source_fingerprints) == ("https://mirror.example", ())
        assert [item.name for item in kind.settings.environments] == ["train"]


def test_what_has_no_effect_and_what_is_wrong_is_said(inventory, tmp_path, says):
    inventory.write_text(inventory.read_text().replace('gpusetup_driver="==570.211.01"', "gpusetup_tourch=2.6"))
    words = ("bundle", "--inventory", inventory, "--out", tmp_path / "site")
    assert "gpusetup_tourch" in says(3, *words)
    says(3, *words, "--set", "gpusetup_room=1")
    assert not (tmp_path / "site").exists()


def test_a_host_counts_without_what_we_brought_and_what_passes():
    theirs = machine("debian12-v100-proprietary")
    assert working_driver(as_delivered(theirs)) == working_driver(theirs), "somebody else's driver stays"
    full = replace(theirs, packages=replace(theirs.packages, problems=("dpkg: broken",)))
    assert as_delivered(full) == as_delivered(theirs)


def test_each_kind_has_its_lock_and_one_repository_has_it_all(tmp_path, key, monkeypatch):
    """Two kinds want different versions of a package: apt is asked for each, and the bundle has both."""
    controllers = []
    monkeypatch.setattr(site, "controller_wheels", lambda _folder, **what: controllers.append(what) or ("", {}))
    entries = [described(deb(tmp_path, "gpu", "gpu2", version=version)) for version in ("1.0", "2.0")]
    entries.append(described(deb(tmp_path, "gpu2", version="1")))
    line = published(tmp_path / "mirror" / REPOSITORY, entries, key)
    request = Request(requirements=(Requirement(component="driver"),), gpus=("t4",), os="debian12", arch="x86_64")
    asked = Asked(request, settings_for({}, {}, {}, request.requirements), archives=(line,))
    kinds, made = [asked._replace(names=(version,)) for version in ("1.0", "2.0")], []

    def planned(roots, _facts, asked, _matrix):
        stack = resolve(asked.request, matrix()).stack
        root = roots.of(())
        made.append(root)
        packages = PackageSet(manager="apt", driver=(Package(name="gpu", version=asked.names[0]),))
        driver = replace(stack.driver, version={"1.0": "570.211.01", "2.0": "580.142"}[asked.names[0]])
        stack = replace(stack, driver=driver)
        wanted = Wanted(stack=stack, packages=packages, settings=asked.settings, manage_driver=True)
        return HostPlan(state="change", now="", stack=stack), wanted, root

    monkeypatch.setattr(choosing, "_planned", planned)

    chosen = choose(kinds, matrix(), lambda _text: None)
    assert made[0] is made[1], "the lists of equal sources are fetched once"
    assert sorted((entry.name, entry.version) for entry in chosen.packages) == [
        ("gpu", "1.0"), ("gpu", "2.0"), ("gpu2", "1"),
    ]  # fmt: skip
    out = tmp_path / "site"
    system = add_system(out, chosen, key, nothing).systems["debian12-x86_64"]
    check_bundle(out)
    assert controllers == [{"pythons": ("3.11",), "archs": ("x86_64",)}], "with this Python Debian 12 runs gpusetup"
    locks = [read_lock((out / name).read_bytes(), name).stack.driver for name in (system.lock, *system.locks)]
    assert [driver.version for driver in locks if driver] == ["570.211.01", "580.142"]

    fewer = add_system(out, choose(kinds[:1], matrix(), lambda _text: None), key, nothing)
    assert fewer.systems["debian12-x86_64"].locks == ()
    assert [path.name for path in (out / "systems").iterdir()] == ["debian12-x86_64.lock.json"]
