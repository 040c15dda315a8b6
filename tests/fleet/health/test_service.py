"""In service and out of it: how many looks it takes, what flapping costs, what one level says about another, what is kept."""

from dataclasses import replace

import pytest

from gpusetup.recovery.table import newer_than
from gpusetup_fleet.health import service
from gpusetup_fleet.health.service import Kept, Look, Rule, Standing, counted

RULE = Rule(leave=2, back=3)
NOON = 1_800_000_000.0


def after(looks, begin=None, level="quick"):
    """What follows from good (g) and bad (b) looks."""
    found = begin or Standing()
    for number, look in enumerate(looks):
        found = counted(found, Look(moment=NOON + 300 * number, level=level, bad="x" * (look == "b")), RULE)
    return found


@pytest.mark.parametrize(
    ("looks", "out"),
    [("", False), ("b", False), ("bb", True), ("bgb", False), ("bgbgbgbg", False), ("bbgg", True), ("bbggg", False),
     ("bbggbggb", True), ("gggbb", True), ("bbggbggg", False)],
)  # fmt: skip
def test_it_takes_looks_in_a_row(looks, out):
    assert after(looks).out is out


def test_a_machine_that_flaps_needs_twice_as_many_each_time():
    found, needed = Standing(), []
    for _ in range(9):
        found = after("bb", found)
        number = 0
        while found.out:
            found, number = after("g", found), number + 1
        needed.append(number)
    assert needed == [3, 6, 12, 24, 48, 96, 192, 192, 192]


def test_a_less_thorough_look_says_nothing_against_a_bad_one():
    once = after("b", level="full")
    assert after("ggg", once).bad == 1, "bandwidth is not what level quick looks at"
    out = after("b", once, level="full")
    assert out.out
    assert after("g" * 20, out).out
    assert not after("ggg", out, level="stress").out
    assert after("bggg", Standing(), level="quick") == replace(Standing(), good=3)


@pytest.fixture
def kept(tmp_path):
    return Kept(tmp_path / "verifications.sqlite3", "slurm")


def test_what_happened_is_kept(kept):
    before = Standing()
    for number in range(2):
        out = after("bb", before)
        service.keep(kept, before, out, NOON + number * 1000)
        read = service.load(kept, NOON + number * 1000)
        assert (read.out, read.reason, read.departures, read.bad) == (True, "x", number + 1, 2)
        before = replace(read, out=False)
        service.keep(kept, read, before, NOON + number * 1000 + 500)
    assert [one.event for one in service.events(kept.path)] == ["left", "returned"] * 2
    assert service.load(kept, NOON + 1500).departures == 2
    assert service.load(kept, NOON + 86400 + 500).departures == 1, "yesterday's do not count"


def test_somebody_s_hand_begins_anew(kept):
    service.keep(kept, Standing(), after("bb"), NOON)
    service.keep(kept, service.load(kept, NOON), Standing(), NOON + 60, by_hand=True)
    read = service.load(kept, NOON + 61)
    assert (read.out, read.departures, read.forgotten) == (False, 0, NOON + 60)


def test_a_refusal_is_fresh_for_an_hour(kept):
    service.note(kept, "refused", "gpu.ecc", NOON)
    assert [service.load(kept, NOON + later).refused for later in (60, 3700)] == ["gpu.ecc", ""]


def test_it_stays_bounded_and_keeps_who_is_out(kept, monkeypatch):
    monkeypatch.setattr(service, "_KEPT", 5)
    service.keep(kept, Standing(), after("bb"), NOON)
    for number in range(8):
        service.note(kept, "refused", "gpu.ecc", NOON + number)
    assert (len(service.events(kept.path)), service.load(kept, NOON + 400).out) == (6, True)


def test_one_acts_at_a_time(kept):
    with service.alone(kept.path) as first, service.alone(kept.path) as second:
        assert (first, second) == (True, False)
    with service.alone(kept.path) as again:
        assert again


def test_what_was_dealt_with_in_the_kernel_log_is_left_out():
    lines = [
        "2026-11-23T10:00:00+0100 h kernel: NVRM: Xid (PCI:0000:1a:00): 79, old",
        "2026-11-23T10:00:00+00:00 h kernel: NVRM: Xid (PCI:0000:1a:00): 79, new",
        "2026-11-23T10:00:00,123456+00:00 NVRM: dmesg's",
        "[ 12.5] NVRM: without a time",
    ]
    document = {"quick": {"kernel_log": {"lines": lines, "source": "dmesg"}, "smi": {}}}
    moment = 1_795_424_400.0  # 2026-11-23T09:00:00Z
    assert newer_than(document, moment)["quick"]["kernel_log"]["lines"] == lines[1:]
    assert newer_than(document, moment + 3600)["quick"]["kernel_log"]["lines"] == lines[3:]
    assert newer_than(document, 0.0) is document
    assert newer_than({"quick": {}}, moment) == {"quick": {}}
