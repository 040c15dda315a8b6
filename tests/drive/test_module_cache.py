"""Modules that Ansible packed are taken by the next Ansible process, as long as nothing of them has changed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ansible import release
from ansible.utils.collection_loader._collection_meta import _meta_yml_to_dict

from gpusetup.content import collections_path
from gpusetup.drive import module_cache
from gpusetup.drive.argv import ansible_environment
from tests.simulated_fleet import SimulatedFleet

ROOT = Path(__file__).resolve().parents[2]
MODULE = "ansible_collections.gpusetup.stack.plugins.modules.gpu_facts-ZIP_DEFLATED"
PACKING = {"ANSIBLE_DEBUG": "1", "ANSIBLE_PYTHON_MODULE_RLIMIT_NOFILE": "99"}  # then Ansible starts each module itself


def looked(fleet, home):
    """What Ansible says of its packing while it looks at the hosts."""
    outside = {"PATH": os.environ["PATH"], "HOME": str(home)}
    places = {"collections": collections_path(), "package": ROOT / "gpusetup", "events": home / "events.jsonl"}
    environment = ansible_environment(outside, **places)
    argv = [sys.executable, "-m", "ansible", "playbook", "-i", str(fleet.inventory), "gpusetup.stack.facts"]
    done = subprocess.run(argv, env=environment | PACKING, capture_output=True, text=True, check=True)
    return [line.partition("ANSIBALLZ: ")[2] for line in done.stdout.splitlines() if "ANSIBALLZ: " in line]


def test_the_next_process_packs_nothing_anew(tmp_path):
    fleet = SimulatedFleet(tmp_path / "fleet", 1, kinds=("ubuntu24.04-h200-keep",))
    first, second = looked(fleet, tmp_path), looked(fleet, tmp_path)
    assert "Creating module" in first
    assert "Creating module" not in second
    assert any(line.startswith("using cached module: ") for line in second)
    (place,) = (tmp_path / ".cache/gpusetup/packed").iterdir()
    assert [path.name.startswith(MODULE.replace("gpu_facts", "gpu_shared_code")) for path in place.iterdir()] == [True]
    assert place.stat().st_mode & 0o777 == 0o700


@pytest.fixture
def collection(tmp_path):
    folder = tmp_path / "collections/ansible_collections/gpusetup/stack/plugins"
    shutil.copytree(ROOT / "plugins/module_utils/gpu_judge", folder / "module_utils/gpu_judge")
    return folder


@pytest.fixture
def place(tmp_path, collection):
    environment = {"HOME": str(tmp_path), "ANSIBLE_COLLECTIONS_PATH": f"{tmp_path}/collections:/elsewhere"}

    def of(version="2.19.1", overriding=(), **other):
        return module_cache.place_of(environment | other, Path(release.__file__), version, overriding)

    return of


def test_another_ansible_or_another_line_of_code_has_a_place_of_its_own(place, collection):
    before = place()
    assert place() == before
    assert place("2.19.2") != before
    path = next(collection.rglob("driver.py"))
    path.write_text(path.read_text() + "# more\n")
    assert place() != before


def test_where_something_is_unusual_there_is_no_place(place, tmp_path):
    assert place(overriding=[str(tmp_path)]) is None
    assert place(HOME="") is None
    assert place(HOME="", GPUSETUP_CACHE="cache") is None
    assert place(GPUSETUP_CACHE=str(tmp_path / "own")).parent == tmp_path / "own/packed"
    assert place(ANSIBLE_COLLECTIONS_PATH="/nowhere") is None


def filled(place, tmp_path, name="a"):
    """Ansible's temporary folder after it packed a module."""
    temporary = tmp_path / name
    (temporary / "ansiballz_cache").mkdir(parents=True)
    (temporary / "ansiballz_cache" / MODULE).write_bytes(b"packed")
    for other in (f"{MODULE}.lock", f"{MODULE}-part", "ansible.legacy.setup-ZIP_DEFLATED"):
        (temporary / "ansiballz_cache" / other).write_bytes(b"")
    module_cache.keep(place, temporary)
    return temporary


def taken(place, tmp_path):
    temporary = tmp_path / "next"
    temporary.mkdir()
    module_cache.take(place, temporary)
    return sorted(path.name for path in temporary.rglob("ansible*") if path.is_file())


def test_only_whole_modules_of_ours_are_kept(place, tmp_path):
    filled(place(), tmp_path)
    assert taken(place(), tmp_path) == [MODULE]


def test_what_others_may_write_is_neither_taken_nor_added_to(place, tmp_path):
    filled(place(), tmp_path)
    place().chmod(0o777)
    assert taken(place(), tmp_path) == []
    (place() / MODULE).unlink()
    filled(place(), tmp_path, "again")
    assert list(place().iterdir()) == []


def test_a_large_table_is_parsed_once(tmp_path):
    seen = []

    def parse(text, _id):
        seen.append(text)
        return _meta_yml_to_dict(text, _id)

    table = b"plugin_routing: {modules: {" + b", ".join(b"m%d: {redirect: '%d'}" % (n, n) for n in range(9999)) + b"}}"
    read = module_cache.reading_once(parse, {"GPUSETUP_CACHE": str(tmp_path)})
    first = read(table, "a")
    assert [read(table, "a"), read(table.decode(), "b")] == [first, first] == [_meta_yml_to_dict(table, "a")] * 2
    assert len(seen) == 1
    read(table.replace(b"m1:", b"n1:"), "a")
    assert len(seen) == 2  # another text
    for kept in (tmp_path / "tables").glob("*/*"):
        kept.write_text("{")  # a damaged file
    assert read(table, "a") == first
    (tmp_path / "tables").chmod(0o777)  # others can write there
    again = [read(table, "a"), read(b"a: b", "a"), module_cache.reading_once(parse, {})(table, "a")]
    assert again == [first, {"a": "b"}, first]
    assert len(seen) == 6
