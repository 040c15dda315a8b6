"""Facts as documents: read, decoded with the path of a bad field, named by the matrix, grouped, told as text."""

import re
from pathlib import Path

import msgspec
import pytest

from gpusetup.content import host_code
from gpusetup.errors import BadInputError
from gpusetup.facts.collect import captured, from_probe, matrix_lookup, read_facts, this_machine
from gpusetup.facts.text import describe
from gpusetup.matrix.load import matrix
from gpusetup.model.facts import Facts, Failure, HostFacts
from tests.hosts.machines import HOSTS, changed, machine
from tests.refusals import refused

EIGHT = machine("ubuntu24.04-h200x8-keep")


def told(facts, **more):
    """The text of one host, in one line."""
    return " ".join(describe(Facts(hosts={"x": facts}, **more)).split())


@pytest.fixture
def written(tmp_path):
    """Write a document of facts; return its path."""

    def write(content):
        path = tmp_path / "facts.json"
        path.write_bytes(content if isinstance(content, bytes) else msgspec.json.encode(content))
        return path

    return write


@pytest.mark.parametrize(
    "content", [b"", b"not json", b"[1, 2]", b"\xff\xfe", b'{"schema": "gpusetup/facts/1"}', b"{}"]
)
def test_a_file_that_is_no_facts_document(written, content):
    with refused(BadInputError, "GS-306") as caught:
        read_facts(written(content))
    assert caught.value.hint


@pytest.mark.parametrize("name", ["a\nreboot", "a; reboot", "$(reboot)", "-x", "../a", "a b", "a\u202e", ""])
def test_a_name_that_would_be_something_else_in_a_command_or_a_path(written, name):
    failures = {name: Failure(reference="GS-401", message="-", exit=7)}
    for facts in (Facts(hosts={name: EIGHT}), Facts(hosts={}, failures=failures)):
        with pytest.raises(BadInputError, match="contain an invalid host name"):
            read_facts(written(facts))


def test_an_almost_empty_root_is_still_told(tmp_path):
    (tmp_path / "proc").mkdir()
    empty = captured(tmp_path)
    assert (empty.os.id, empty.arch, empty.gpus) == ("unknown", "unknown", ())
    assert told(empty)


def test_this_machine_is_looked_at_by_the_collections_probe():
    assert host_code("gpu_probe.facts") is host_code("gpu_probe.facts")
    assert "plugins/module_utils/gpu_probe" in host_code("gpu_probe.facts").__file__
    seen = this_machine(candidates=False)
    assert (bool(seen.kernel.running), seen.packages.candidates) == (True, None)


def gpu(pci, board="10de:0000", **more):
    return changed(EIGHT.gpus[0], pci_id=pci, subsystem=board, name=None, arch=None, compute_capability=None, **more)


def named(one, lookup):
    return from_probe(msgspec.to_builtins(changed(EIGHT, gpus=(one,))), "x", lookup).gpus[0]


def test_an_unknown_product_keeps_what_the_driver_said():
    one = named(gpu("10de:ffff"), matrix_lookup(matrix()))
    assert (one.name, one.arch, one.compute_capability) == ("NVIDIA H200", None, "9.0")


@pytest.mark.parametrize(
    ("seen", "subsystem", "is_one"), [(None, "10de:1733", True), (None, "10de:16ca", None), (False, "10de:1733", False)]
)
def test_a_subsystem_tells_a_vgpu_where_the_capability_cannot_be_read(seen, subsystem, is_one):
    assert named(gpu("10de:27b8", subsystem, vgpu=seen), matrix_lookup(matrix())).vgpu is is_one


FOLDERS = sorted(path.name for path in HOSTS.iterdir() if (path / "root").is_dir())


@pytest.mark.parametrize("folder", FOLDERS)
def test_text_fits_eighty_columns_and_tells_the_gpus(folder):
    one = machine(folder)
    assert max(len(line) for line in describe(Facts(hosts={"gpu01": one})).splitlines()) <= 80
    assert [item.name for item in one.gpus if item.name not in told(one)] == []
    assert ("do not install a driver" in told(one)) is bool(one.virtualisation.driver_refused)


def test_hosts_alike_are_told_once_and_failures_too():
    failure = Failure(reference="GS-308", message="cannot be reached: timeout", exit=6)
    names = {f"gpu{index:02d}": EIGHT for index in range(12)}
    text = describe(Facts(ok=False, hosts=names, failures={"gpu99": failure}))
    assert text.count("H200") == 1
    assert text.startswith("12 hosts alike: gpu00, gpu01")
    assert "cannot be reached: timeout [GS-308]" in " ".join(text.split())


def test_every_field_of_a_host_is_documented():
    page = (Path(__file__).parents[3] / "docs/reference/facts.md").read_text(encoding="utf-8")
    named = {name for cell in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)}
    assert named == {field.name for field in msgspec.structs.fields(HostFacts)}
