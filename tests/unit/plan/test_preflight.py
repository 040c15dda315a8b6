"""A host without room to look at packages is told so; it is no conflict of versions."""

import msgspec
import pytest

from gpusetup.model.facts_machine import Disk
from gpusetup.plan.preflight import host_refusals


@pytest.mark.parametrize(
    ("place", "free", "refused"), [("/", 3, True), ("/var", 63, True), ("/", 64, False), ("/boot", 1, False)]
)
def test_a_full_disk(host, place, free, refused):
    disk = Disk(total=10 << 30, free=free << 20, writable=True, same_as=None)
    facts = msgspec.structs.replace(host("debian12-t4-open"), disks={place: disk})
    told = [(refusal.reference, refusal.message) for refusal in host_refusals(facts)]
    assert told == ([("GS-332", f"{place} is full: {free} MB are free")] if refused else [])


def test_one_full_disk_is_told_once(host):
    disk = Disk(total=10 << 30, free=0, writable=True, same_as=None)
    facts = msgspec.structs.replace(host("debian12-t4-open"), disks={"/": disk, "/usr": disk, "/var": disk})
    assert len(list(host_refusals(facts))) == 1
