"""Facts as documents: read, decoded with the path of a bad field, named by the matrix, grouped, told as text."""

import re
from pathlib import Path

import msgspec
import pytest

from gpusetup.content import host_code
from gpusetup.errors import BadInputError
from gpusetup.facts.classes import fingerprint, group
from gpusetup.facts.collect import captured, from_probe, matrix_lookup, read_facts, this_machine
from gpusetup.facts.text import describe
from gpusetup.matrix.load import matrix
from gpusetup.model.applied import Begun, HostRecord
from gpusetup.model.facts import Facts, Failure, HostFacts, Unreadable
from gpusetup.model.facts_machine import CloudEvent, Slices
from gpusetup.model.settings import MigInstance
from tests.hosts.machines import HOSTS, changed, machine
from tests.records import lock_of
from tests.refusals import refused

CUT = Slices(instances=(MigInstance(profile="1g.18gb", start=0),))


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


def test_a_bad_field_is_named_with_its_path(written):
    document = msgspec.to_builtins(Facts(hosts={"a": EIGHT}))
    document["hosts"]["a"]["gpus"][3].update(numa_node="x")
    with pytest.raises(BadInputError) as caught:
        read_facts(written(document))
    assert caught.value.path.endswith("facts.json:$.hosts[...].gpus[3].numa_node")


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


def test_products_that_share_an_id_are_all_named_where_the_subsystem_does_not_decide():
    shared = {}
    for row in matrix().gpus.gpus:
        for pci_id in row.ids:
            shared.setdefault(pci_id, []).append(row)
    pci_id, rows = next((key, rows) for key, rows in shared.items() if len(rows) > 1)
    one = named(gpu(pci_id), matrix_lookup(matrix()))
    assert one.name == " or ".join(row.name for row in rows)
    assert (one.arch is None) is (len({row.arch for row in rows}) > 1)


@pytest.mark.parametrize(
    ("seen", "subsystem", "is_one"), [(None, "10de:1733", True), (None, "10de:16ca", None), (False, "10de:1733", False)]
)
def test_a_subsystem_tells_a_vgpu_where_the_capability_cannot_be_read(seen, subsystem, is_one):
    assert named(gpu("10de:27b8", subsystem, vgpu=seen), matrix_lookup(matrix())).vgpu is is_one


def every(parts, **change):
    return tuple(changed(one, **change) for one in parts)


def disks(free):
    return {place: changed(disk, free=free(disk)) for place, disk in EIGHT.disks.items()}


def test_hosts_that_differ_in_nothing_that_matters_share_a_class():
    gpus = enumerate(EIGHT.gpus)
    twin = changed(
        EIGHT, boot={"id": "another", "time": 5}, disks=disks(lambda disk: disk.free + 12345),
        gpus=tuple(changed(one, uuid=f"GPU-{at}", address=f"0000:{at + 40:02x}:00.0") for at, one in gpus),
        virtualisation={"product": "another chassis"},
    )  # fmt: skip
    assert fingerprint(EIGHT) == fingerprint(twin)


@pytest.mark.parametrize(
    "parts",
    [
        {"gpus": EIGHT.gpus[:-1]},
        {"kernel": {"next": "6.8.0-61-generic"}},
        {"packages": {"installed": {**EIGHT.packages.installed, "gcc-13": "13.3"}}},
        {"disks": disks(lambda _disk: 100 << 20)},
        {"state": HostRecord(lock=lock_of(driver="580"))},
        {"gpus": every(EIGHT.gpus, vgpu=True)},
        {"gpus": every(EIGHT.gpus, slices=CUT)},
        {"unreadable": (Unreadable(field="state", reason="damaged"),)},
    ],
)
def test_hosts_that_differ_in_what_matters_do_not(parts):
    assert fingerprint(changed(EIGHT, **parts)) != fingerprint(EIGHT)


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


def test_text_says_what_is_wrong_and_what_the_cloud_says():
    text = told(machine("ubuntu22.04-a100-mismatch"))
    assert "550.144.03 open from distribution, but 550.127.08 is loaded; libraries are 550.144.03: reboot" in text
    assert "upgrades itself, NVIDIA packages included" in text
    kind = CloudEvent(what="system-reboot", at="21 Jan 2027 09:00:43 GMT")
    cloud = {"cloud": "gcp", "machine_type": "a3-ultragpu-8g", "events": (kind,)}
    said = "a3-ultragpu-8g cloud announces system-reboot from 21 Jan 2027 09:00:43 GMT"
    assert said in told(changed(EIGHT, virtualisation=cloud))


def test_every_field_of_a_host_is_documented():
    page = (Path(__file__).parents[3] / "docs/reference/facts.md").read_text(encoding="utf-8")
    named = {name for cell in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)}
    assert named == {field.name for field in msgspec.structs.fields(HostFacts)}


def test_what_was_begun_on_a_host_is_a_sentence_and_sets_it_apart():
    entry = Begun(what="unit nvidia-persistenced.service", since="20260101T000000Z", aim="be enabled")
    cut, whole = (machine("ubuntu22.04-a100-mismatch", state=HostRecord(open=now)) for now in ({"unit:x": entry}, {}))
    begun = f"{entry.what} is to be enabled, begun at {entry.since} and not finished"
    assert f"{begun}; gpusetup apply installs the stack, gpusetup remove removes it" in told(cut)
    assert list(group({"cut": cut, "finished": whole}).values()) == [("cut",), ("finished",)]
