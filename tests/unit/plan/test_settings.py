"""Wishes from the command line, gpusetup.toml and the inventory, laid over each other, what options make of a rollout, and each of one component."""

from contextlib import nullcontext, suppress

import pytest

from gpusetup.components.registry import COMPONENTS
from gpusetup.errors import BadInputError
from gpusetup.matrix.load import matrix
from gpusetup.model.applied import Apply, HostRecord
from gpusetup.model.package import Package, PackageSet
from gpusetup.model.plan import Plan
from gpusetup.model.settings import AppliedWanted, DesktopsWish, Settings
from gpusetup.model.stack import MatrixStamp
from gpusetup.plan.settings import KNOWN, PREFIX, read_level, settings_for
from gpusetup.resolve.requests import parse_requirements
from gpusetup.rollout.batches import batches
from gpusetup.rollout.looks import Rollout, _first, _strangers, _with_own_driver
from gpusetup.rollout.options import Planning
from tests.hosts.machines import changed
from tests.refusals import refused
from tests.stored import stored_rows
from tests.unit.plan.conftest import asked, host, nvidia_ubuntu, planner


def level(**values):
    return read_level({PREFIX + name: value for name, value in values.items()}, "host a", prefix=PREFIX)


def wishes(host):
    return settings_for(host, {}, {}, ())


@pytest.mark.parametrize(
    ("value", "text"),
    [("2.6.*", "torch==2.6.*"), ("2.6", "torch==2.6.*"), ("2.6.0", "torch==2.6.0"), (">=2.4,<2.7", "torch<2.7,>=2.4"),
     ("2.7.1+cu128", "torch==2.7.1+cu128"), ("latest", "torch==latest"), (True, "torch"), (2.6, "torch==2.6.*")],
)  # fmt: skip
def test_versions_as_people_write_them(value, text):
    assert [str(item) for item in wishes(level(torch=value)).requirements] == [text]


@pytest.mark.parametrize("name", KNOWN)
def test_whatever_a_setting_is_given_is_read_or_refused(name):
    odd = ("[" * 99_999, '{"a":' * 99_999, "\u0661\u0669.\u0664", "", "\0", None, 10**99, float("nan"), [[]], [None])
    for value in (*odd, {1: [{}]}):
        with suppress(BadInputError):
            assert str(KNOWN[name](value, name)).isascii()


def test_a_version_that_the_list_leaves_out_is_a_contradiction():
    with pytest.raises(BadInputError, match="does not contain torch"):
        level(components=["driver"], torch="2.6.*")


@pytest.mark.parametrize(("name", "value"), stored_rows("settings-named.json"))
def test_wrong_values_name_the_setting(name, value):
    with refused(BadInputError, path=PREFIX + name) as caught:
        level(**{name: value})
    assert caught.value.hint


def test_a_password_in_an_address_is_refused_and_not_repeated():
    for value in (
        {"source": "https://user:geheim@mirror.example/x"},
        {"extra_sources": [{"name": "a", "urls": ["https://u:geheim@m/x"], "fingerprints": ["A" * 40], "key": "/k"}]},
    ):
        with refused(BadInputError, "GS-317") as caught:
            level(**value)
        assert "geheim" not in str(caught.value.to_document())


def test_other_settings_are_typed_and_what_roles_and_verification_read_passes():
    values = {"source": "distro", "reboot": "never", "replace": "yes", "driver_options": {"NVreg_A": 1}}
    settings = wishes(level(containers="docker podman", **values))
    assert (settings.source, settings.reboot, settings.replace) == ("distro", "never", True)
    assert (settings.containers, settings.driver_options) == (("docker", "podman"), {"NVreg_A": 1})
    words = {"true": True, "1": True, "on": True, "false": False, "no": False, "0": False, "off": False}
    assert {word: wishes(level(replace=word)).replace for word in words} == words
    assert wishes(level(simulated_root="/x", become=True, verify_level="full", proxy="http://u:p@h")).requirements == ()


ALICE = DesktopsWish(users=("alice",))
SHARED = {"listen": "0.0.0.0", "certificate": "/etc/a.crt", "key": "/etc/a.key", "group": "vglusers"}


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        *stored_rows("settings-read.json"),
        ("desktops", ["alice", "bob"], changed(ALICE, users=("alice", "bob"))),
        ("desktops", "alice, bob", changed(ALICE, users=("alice", "bob"))),
        ("desktops", '{"users": ["alice"], "size": "2560x1440"}', changed(ALICE, size="2560x1440")),
        ("desktops", {"users": ["alice"], "session": "startxfce4"}, changed(ALICE, session="startxfce4")),
        ("desktops", {"users": ["alice"], "backend": "x", "port": 7000}, changed(ALICE, backend="x", port=7000)),
        ("desktops", {"users": ["j.doe"], **SHARED}, DesktopsWish(users=("j.doe",), **SHARED)),
    ],
)
def test_a_setting_of_a_host_is_written_one_way(name, value, read):
    assert getattr(wishes(level(**{name: value})), name) == read


@pytest.mark.parametrize(
    ("name", "reference", "value", "hint"),
    [
        *(("desktops", "GS-386", *row) for row in stored_rows("refused-desktops.json")),
        *(("mig", "GS-370", *row) for row in stored_rows("mig-refused.json")),
        *stored_rows("settings-refused.json"),
    ],
)
def test_what_a_setting_cannot_be_is_refused_with_an_example(name, reference, value, hint):
    with refused(BadInputError, reference, hint=hint):
        level(**{name: value})


@pytest.mark.parametrize(
    ("line", "host", "counts"),
    [("never", "when-needed", "never"), ("when-needed", "never", "never"), ("when-needed", "schedule", "schedule")],
)
def test_of_two_words_on_reboots_the_more_careful_counts(line, host, counts):
    said = read_level({"reboot": line}, "command line")
    assert settings_for(level(reboot=host), {}, said, ()).reboot == counts
    assert settings_for({}, read_level({"reboot": host}, "f"), said, ()).reboot == counts


TWENTY = tuple(f"n{number}" for number in range(20))
WISH = asked("driver==580.*")
KEPT = "ubuntu24.04-h200-keep"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [("", [20]), ("1,10%,50%", [1, 2, 10, 7]), ("8", [8, 8, 4]), ("1%", [1] * 20), ("100%", [20]), ("1, 100", [1, 19])],
)
def test_sizes(spec, expected):
    found = batches(TWENTY, spec)
    assert tuple(name for batch in found for name in batch) == TWENTY, "every host once, in order"
    assert [len(batch) for batch in found] == expected
    assert batches((), spec or "1,10%") == []


@pytest.mark.parametrize(("words", "driver", "becomes"), stored_rows("settings-words-of-a-driver.json"))
def test_a_working_driver_stays_where_the_rest_of_the_lock_goes_with_it(words, driver, becomes):
    wish = asked("driver==580.178.04", *words)
    kept = _with_own_driver(planner, host(KEPT, driver=driver), wish)
    assert [item.specifier for item in kept.requirements if item.component == "driver"] == [becomes]
    assert (kept is wish) is (driver is None or "mismatch" in driver or bool(words))


THEIRS = HostRecord(apply=Apply(id="theirs", finished="now"))


@pytest.mark.parametrize(
    ("wish", "kernel", "state", "carried_out"),
    [
        ({}, {}, None, True), ({"reboot": "never"}, {}, None, True),  # more care is no other wish
        ({}, {}, "cut", True), ({}, {}, THEIRS, False),
        ({"persistence": False}, {}, None, False), ({}, {"next": "6.8.0-99-generic"}, None, False),
    ],
)  # fmt: skip
def test_only_the_host_that_a_plan_was_made_for_is_changed_by_it(wish, kernel, state, carried_out):
    facts = host("ubuntu24.04-rtx4090-open", driver=None)
    made = planner.second(facts, WISH, nvidia_ubuntu).plan
    plan = Plan(matrix=MatrixStamp(date="", digest=""), hosts={"a": made, "b": made})
    assert {name: told.refusals[0].reference for name, told in _strangers(plan, "a").items()} == {"b": "GS-416"}
    state = HostRecord(apply=Apply(id="run-1", lock=made.lock)) if state == "cut" else state
    now = {"a": changed(facts, kernel=kernel, state=state)}
    rollout = Rollout(None, matrix(), None, facts=now, settings={"a": changed(WISH, **wish)})
    with nullcontext() if carried_out else refused(BadInputError, "GS-411"):
        draft = _first(planner, rollout, "a", Planning(made=plan))
        assert (draft.stage, draft.plan) == ("transaction", made)


DERIVED = {"requirements", "hashed", "vgpu_token_sha256", "proxy", "policy"}
"""Settings that nobody writes: what follows from others, from the lock, or from the inventory."""


def test_every_setting_group_of_packages_and_wish_on_record_is_of_one():
    assert set(KNOWN) - {"components"} == set(Settings.__struct_fields__) - DERIVED
    of_packages = {name for name, kind in PackageSet.__annotations__.items() if kind == tuple[Package, ...]}
    assert sorted(name for component in COMPONENTS for name in component.packages) == sorted(of_packages)
    kept = [component.kept for component in COMPONENTS if component.kept]
    of_the_stack = {"packages", "manage_driver", "requirements", "interpreter", "adopted", "services", "settings"}
    assert sorted(kept) == sorted(set(AppliedWanted.__struct_fields__) - of_the_stack)


@pytest.mark.parametrize(
    ("host", "line", "becomes"),
    [
        ({"torch": "2.6.*"}, "torch==2.4.* cuda>=12", "torch==2.6.* cuda>=12"), ({"nccl": "none"}, "torch nccl", "torch"),
        ({"components": ["driver", "torch"]}, "python==3.12 cupy", "torch driver python==3.12"),
        ({"flash_attn": "2.8.*"}, "", "flash-attn==2.8.*"),
    ],
)  # fmt: skip
def test_the_host_wins_over_the_line(host, line, becomes):
    found = settings_for(level(**host), {}, {}, parse_requirements(line.split())).requirements
    assert [str(item) for item in found] == becomes.split()
