"""Facts as documents: read, decoded with the path of a bad field, named by the matrix, grouped, told as text."""

import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from gpusetup.content import host_code
from gpusetup.errors import BadInputError, Exit
from gpusetup.facts.classes import fingerprint, group
from gpusetup.facts.collect import Product, captured, from_probe, matrix_lookup, read_facts, this_machine
from gpusetup.facts.text import describe
from gpusetup.matrix.load import matrix
from gpusetup.model.applied import Begun, HostRecord
from gpusetup.model.facts import Facts, Failure, Unreadable
from gpusetup.model.facts_machine import CloudEvent, Slices
from gpusetup.model.settings import MigInstance
from tests.hosts.machines import HOSTS, machine
from tests.records import lock_of

CUT = Slices(instances=(MigInstance(profile="1g.18gb", start=0),))


def host(name="ubuntu24.04-h200x8-keep"):
    return machine(name)


def test_a_document_survives_the_file(tmp_path):
    facts = Facts(hosts={"a": host(), "b": host("debian12-none-nothing")})
    path = tmp_path / "facts.json"
    path.write_bytes(msgspec.json.encode(facts))
    assert read_facts(path) == facts


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda d: d["hosts"]["a"]["kernel"].update(running=6), "$.hosts[...].kernel.running"),
        (lambda d: d["hosts"]["a"]["gpus"][3].update(numa_node="x"), "$.hosts[...].gpus[3].numa_node"),
        (lambda d: d["hosts"]["a"].update(surprise=1), "$.hosts[...]"),
        (lambda d: d.update(schema="gpusetup/stack/1"), "$.schema"),
        (lambda d: d["hosts"]["a"].pop("os"), "$.hosts[...]"),
    ],
)
def test_a_bad_field_is_named_with_its_path(tmp_path, change, where):
    document = msgspec.to_builtins(Facts(hosts={"a": host()}))
    change(document)
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(document))
    with pytest.raises(BadInputError) as refused:
        read_facts(path)
    assert refused.value.path == f"{path}:{where}"
    assert refused.value.exit is Exit.BAD_INPUT


@pytest.mark.parametrize(
    "content", [b"", b"not json", b"[1, 2]", b"\xff\xfe", b'{"schema": "gpusetup/facts/1"}', b"{}", b"null"]
)
def test_a_file_that_is_no_facts_document(tmp_path, content):
    (tmp_path / "facts.json").write_bytes(content)
    with pytest.raises(BadInputError) as refused:
        read_facts(tmp_path / "facts.json")
    assert refused.value.reference == "GS-306"
    assert refused.value.hint


@pytest.mark.parametrize("name", ["a\nreboot", "a; reboot", "$(reboot)", "-x", "../a", "a b", "a\u202e", ""])
def test_a_name_that_would_be_something_else_in_a_command_or_a_path(tmp_path, name):
    for part in (
        {"hosts": {name: host()}},
        {"hosts": {}, "failures": {name: Failure(reference="GS-401", message="-", exit=7)}},
    ):
        (tmp_path / "facts.json").write_bytes(msgspec.json.encode(Facts(**part)))
        with pytest.raises(BadInputError, match="contain an invalid host name"):
            read_facts(tmp_path / "facts.json")


def test_a_missing_file(tmp_path):
    with pytest.raises(BadInputError, match="No such file"):
        read_facts(tmp_path / "none.json")


def test_another_probes_answer_is_bad_input_with_the_hosts_name():
    with pytest.raises(BadInputError, match="facts of gpu07 cannot be used") as refused:
        from_probe({"os": {}}, "gpu07")
    assert "gpu07" in refused.value.path


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.write_text("x")])
def test_a_root_that_is_no_machine(tmp_path, make):
    path = tmp_path / "root"
    make(path)
    with pytest.raises(BadInputError) as refused:
        captured(path)
    assert refused.value.reference == "GS-301"


def test_a_root_with_broken_observations(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "gpusetup-capture.json").write_text("{broken")
    with pytest.raises(BadInputError, match="cannot be read"):
        captured(tmp_path)


def test_an_almost_empty_root_is_still_told(tmp_path):
    (tmp_path / "proc").mkdir()
    told = captured(tmp_path)
    assert (told.os.id, told.arch, told.gpus) == ("unknown", "unknown", ())
    assert describe(Facts(hosts={"x": told}))


def test_the_probe_is_loaded_once_from_the_roles():
    assert host_code("gpu_probe.facts") is host_code("gpu_probe.facts")
    assert "plugins/module_utils/gpu_probe" in host_code("gpu_probe.facts").__file__


def test_this_machine():
    told = this_machine(candidates=False)
    assert told.kernel.running
    assert told.packages.candidates is None


def gpu(pci_id, subsystem="10de:0000"):
    return replace(host().gpus[0], pci_id=pci_id, subsystem=subsystem, name=None, arch=None, compute_capability=None)


def named(one, lookup):
    return from_probe(msgspec.to_builtins(replace(host(), gpus=(one,))), "x", lookup).gpus[0]


def test_the_lookup_is_asked_with_both_ids():
    asked = []

    def lookup(pci_id, subsystem):
        asked.append((pci_id, subsystem))
        return Product(name="A Card", arch="Ada", compute_capability="8.9")

    assert named(gpu("10de:aaaa", "1043:bbbb"), lookup).name == "A Card"
    assert asked == [("10de:aaaa", "1043:bbbb")]


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
    ("seen", "subsystem", "told"), [(None, "10de:1733", True), (None, "10de:16ca", None), (False, "10de:1733", False)]
)
def test_a_subsystem_tells_a_vgpu_where_the_capability_cannot_be_read(seen, subsystem, told):
    one = replace(gpu("10de:27b8", subsystem), vgpu=seen)
    assert named(one, matrix_lookup(matrix())).vgpu is told


def test_hosts_that_differ_in_nothing_that_matters_share_a_class():
    one = host()
    twin = replace(
        one,
        boot=replace(one.boot, id="another", time=5),
        gpus=tuple(
            replace(item, uuid=f"GPU-{index}", address=f"0000:{index + 40:02x}:00.0")
            for index, item in enumerate(one.gpus)
        ),
        disks={place: replace(disk, free=disk.free + 12345) for place, disk in one.disks.items()},
        virtualisation=replace(one.virtualisation, product="another chassis"),
    )
    assert fingerprint(one) == fingerprint(twin)
    assert group({"a": one, "c": host("debian12-none-nothing"), "b": twin}) == {
        fingerprint(one): ("a", "b"),
        fingerprint(host("debian12-none-nothing")): ("c",),
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda h: replace(h, gpus=h.gpus[:-1]),
        lambda h: replace(h, secure_boot=True),
        lambda h: replace(h, simulated=True),
        lambda h: replace(h, arch="aarch64"),
        lambda h: replace(h, kernel=replace(h.kernel, next="6.8.0-61-generic")),
        lambda h: replace(h, driver=None),
        lambda h: replace(h, driver=replace(h.driver, library="580.95.05")),
        lambda h: replace(h, nouveau=replace(h.nouveau, loads_at_boot=None)),
        lambda h: replace(h, packages=replace(h.packages, held=("nvidia-open-580",))),
        lambda h: replace(h, packages=replace(h.packages, installed={**h.packages.installed, "gcc-13": "13.3"})),
        lambda h: replace(h, disks={place: replace(disk, free=100 << 20) for place, disk in h.disks.items()}),
        lambda h: replace(h, state=HostRecord(lock=lock_of(driver="580"))),
        lambda h: replace(h, gpus=tuple(replace(item, vgpu=True) for item in h.gpus)),
        lambda h: replace(h, gpus=tuple(replace(item, slices=CUT) for item in h.gpus)),
        lambda h: replace(h, unreadable=(Unreadable(field="state", reason="damaged"),)),
    ],
)
def test_hosts_that_differ_in_what_matters_do_not(change):
    assert fingerprint(change(host())) != fingerprint(host())


def test_all_captured_hosts_are_of_different_classes():
    hosts = {folder.name: host(folder.name) for folder in HOSTS.iterdir() if (folder / "root").is_dir()}
    assert len(group(hosts)) == len(hosts)


@pytest.mark.parametrize("folder", sorted(path.name for path in HOSTS.iterdir() if (path / "root").is_dir()))
def test_text_fits_eighty_columns_and_tells_the_gpus(folder):
    one = host(folder)
    text = describe(Facts(hosts={"gpu01": one}))
    assert max(len(line) for line in text.splitlines()) <= 80
    for item in one.gpus:
        assert item.name in " ".join(text.split())
    assert ("do not install a driver" in " ".join(text.split())) is bool(one.virtualisation.driver_refused)


def test_hosts_alike_are_told_once_and_failures_too():
    failure = Failure(reference="GS-308", message="cannot be reached: timeout", exit=6)
    names = {f"gpu{index:02d}": host() for index in range(12)}
    text = describe(Facts(ok=False, hosts=names, failures={"gpu99": failure}))
    assert text.count("H200") == 1
    assert text.startswith("12 hosts alike: gpu00, gpu01")
    assert "cannot be reached: timeout [GS-308]" in " ".join(text.split())


def test_text_says_what_is_wrong():
    text = " ".join(describe(Facts(hosts={"x": host("ubuntu22.04-a100-mismatch")})).split())
    assert "550.144.03 open from distribution, but 550.127.08 is loaded; libraries are 550.144.03: reboot" in text
    assert "upgrades itself, NVIDIA packages included" in text


def test_text_says_what_the_cloud_says():
    kind = CloudEvent(what="system-reboot", at="21 Jan 2027 09:00:43 GMT")
    one = replace(host().virtualisation, cloud="gcp", machine_type="a3-ultragpu-8g", events=(kind,))
    text = " ".join(describe(Facts(hosts={"x": replace(host(), virtualisation=one)})).split())
    assert "a3-ultragpu-8g cloud announces system-reboot from 21 Jan 2027 09:00:43 GMT" in text


def test_the_os_label_is_what_the_command_line_takes():
    assert [host(name).os.label for name in ("debian12-none-nothing", "ubuntu24.04-h200-keep", "rocky9-a100-open")] == [
        "debian12",
        "ubuntu24.04",
        "rocky9",
    ]


def test_every_field_of_a_host_is_documented():
    import re

    from gpusetup.model.facts import HostFacts

    page = (Path(__file__).parents[3] / "docs/reference/facts.md").read_text(encoding="utf-8")
    told = {name for cell in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)}
    assert told == {field.name for field in msgspec.structs.fields(HostFacts)}


def test_what_was_begun_on_a_host_is_a_sentence_and_sets_it_apart():
    whole = host("ubuntu22.04-a100-mismatch")
    entry = Begun(what="unit nvidia-persistenced.service", since="20260101T000000Z", aim="be enabled")
    state = replace(whole.state or HostRecord(), open={"unit:nvidia-persistenced.service": entry})
    cut = replace(whole, state=state)
    text = " ".join(describe(Facts(hosts={"x": cut})).split())
    assert (
        "unit nvidia-persistenced.service is to be enabled, begun at 20260101T000000Z and not finished; gpusetup apply finishes it,"
        " gpusetup remove undoes it" in text
    )
    finished = replace(whole, state=replace(state, open={}))
    assert list(group({"cut": cut, "finished": finished}).values()) == [("cut",), ("finished",)]
