"""Two hundred hosts of which 199 are dead fit a screen: told by cause, a few named, the number of all."""

from datetime import datetime, timezone

from msgspec.structs import replace

from gpusetup.cli.apply import applied_html, applied_text
from gpusetup.cli.plan import plan_html, plan_text, rows_of
from gpusetup.drive.events import HostProgress
from gpusetup.model.lifecycle import Applied, HostOutcome, Trouble
from gpusetup.model.plan import Action, HostPlan, Plan, Refusal
from gpusetup.model.stack import MatrixStamp
from gpusetup.model.verdict import Result
from gpusetup.rollout.batches import batches_of
from gpusetup.rollout.outcome import exit_of, outcome_of

STAMP = MatrixStamp(date="2026-01-01", digest="0")
NAMES = [f"gpu{number}" for number in range(200)]


def dead(name, number, why="No route to host"):
    return Refusal(
        reference="GS-308",
        message=f"cannot be reached: ssh: connect to host 10.0.{number // 100}.{number} port 22: {why}",
        hint=f"try: ansible -i INVENTORY {name} -m ansible.builtin.ping",
        exit=6,
    )


DEAD = HostOutcome(state="unreachable", refusals=(dead("gpu7", 7),))


def fleet(make):
    hosts = {"gpu0": make(state="unchanged")}
    for number, name in enumerate(NAMES[1:], 1):
        why = "Connection timed out" if number < 10 else "No route to host"
        hosts[name] = make(state="unreachable", refusals=(dead(name, number, why),))
    return hosts


def told_of(hosts, *, ok=False):
    return applied_text(Applied(ok=ok, run="1", log="l", seconds={}, matrix=STAMP, hosts=hosts))


def test_what_apply_did_fits_a_screen():
    text = told_of(fleet(HostOutcome))
    assert len(text.splitlines()) <= 24, text
    assert "gpu1, gpu2, gpu3, gpu4 and 5 more (9 hosts): could not be reached" in text
    assert "gpu10, gpu11, gpu12, gpu13 and 186 more (190 hosts): could not be reached" in text
    assert "ssh: connect to host HOST port 22: No route to host" in " ".join(text.split())
    assert "200 hosts: 1 unchanged, 199 unreachable" in text


def test_the_page_of_a_plan_tells_alike_hosts_once_and_escapes_what_hosts_say():
    told = {**fleet(HostPlan), "gpu0": HostPlan(
        state="change", now="Debian <b>12</b>", reboot=True, reboot_why="the driver changes", package_bytes=5_000_000,
        download_bytes=5_000_000, actions=(Action(id="driver", kind="install", what="driver 580.95.05", why="it fits"),),
    )}  # fmt: skip
    page = plan_html(Plan(ok=False, matrix=STAMP, hosts=told), datetime(2026, 1, 2, tzinfo=timezone.utc), {})
    assert page.count("No route to host") == 1
    assert "10.0." not in page.replace("10.0.0.0", "")
    assert "190 hosts" in page
    assert "Debian &lt;b&gt;12&lt;/b&gt;" in page
    assert "driver 580.95.05" in page
    assert "yes: the driver changes" in page
    assert "<script" not in page
    assert "http" not in page


def test_the_page_of_apply_tells_what_was_done_and_what_failed():
    done = HostOutcome(
        state="done", now="no driver", stack=None, seconds=12.0,
        actions=(Action(id="driver", kind="install", what="driver 580.95.05", why="it <fits>"),),
        checks=(Result(id="driver.version", level="quick", verdict="pass", text="as it should be"),),
    )  # fmt: skip
    hosts = {"gpu0": done, "gpu7": DEAD, "gpu8": HostOutcome(state="unchanged", verified="passed yesterday")}
    applied = Applied(ok=False, run="1", log="l", seconds={"facts": 1.5}, matrix=STAMP, hosts=hosts)
    page = applied_html(applied, datetime(2026, 1, 2, tzinfo=timezone.utc))
    for words in ("driver 580.95.05; because it &lt;fits&gt;", "no answer", "passed yesterday", "driver.version"):
        assert words in page
    assert page.count('<span class="verdict fail">') == 2, "in the table and above its own part"
    unchanged = page.partition('<h2 id="host-3">')[2]
    shown = '<span class="verdict pass">nothing to change</span>'
    assert (unchanged.count('class="verdict'), shown in unchanged) == (1, True), "its state, and no verdict of checks"


def test_one_host_is_told_in_its_own_words():
    text = told_of({"gpu7": DEAD})
    assert text.startswith("gpu7: could not be reached\n")
    assert "10.0.0.7" in text
    assert "INVENTORY gpu7" in " ".join(text.split())


def test_other_troubles_and_versions_stay_apart():
    first, second = (
        HostOutcome(state="failed", failed_at="x", failure=Trouble(message=f"cudnn {version} is not there"))
        for version in ("9.1.0.70", "9.1.1.17")
    )
    text = told_of({"a": first, "b": second, "c": first})
    assert "a, c (2 hosts): FAILED" in text
    assert "cudnn 9.1.0.70" in text
    assert "b: FAILED" in text


def test_what_waits_is_told_and_not_called_done():
    host = HostProgress("a")
    waits = "nvidia_peermem is not loaded: no such device"
    host.data["gpu_state"] = {"gpu_result": {"state": "done", "waits": [waits]}}
    outcome = outcome_of(HostPlan(state="change"), host, 1.0)
    assert (outcome.state, outcome.waits, exit_of(outcome)) == ("done", (waits,), 9)
    text = told_of({"a": outcome}, ok=True)
    assert "a: done, but not all of it is in effect" in text
    assert f"waits: {waits}" in text
    assert exit_of(replace(outcome, state="verify-failed")) == 8, "what is graver stays so"
    assert "is in effect" not in told_of({"a": replace(outcome, waits=())}, ok=True)


def test_a_plan_tells_its_batches_equal_ones_together():
    change = HostPlan(state="change", reboot=True, reboot_why="the driver changes")
    hosts = {name: HostPlan(state="unchanged") if name == "gpu5" else change for name in NAMES}
    plan = Plan(matrix=STAMP, hosts=hosts, batches=tuple(batches_of(hosts, "1,10%,50")))
    rows = rows_of(plan, {name: f"rack{int(name[3:]) // 50}" for name in NAMES})
    assert [(row.which, row.size, row.reboots, row.domains) for row in rows] == [
        ("batch 1", "1 host", 1, ["rack0"]),
        ("batch 2", "19 hosts", 19, ["rack0"]),
        ("batches 3 to 5", "50 hosts each", 150, ["rack0", "rack1", "rack2", "rack3"]),
        ("batch 6", "29 hosts", 29, ["rack3"]),
    ]
    assert [name for row in rows for name in row.names] == [name for name in NAMES if name != "gpu5"]
    text = " ".join(plan_text(plan, rows).split())
    assert "batch 1 gpu0 (1 host, 1 reboot, in rack0)" in text
    assert "batches 3 to 5 gpu21, gpu22, gpu23, gpu24 and 146 more (50 hosts each, 150 reboots" in text
    page = plan_html(plan, datetime(2026, 1, 2, tzinfo=timezone.utc), {}, rows)
    assert '<td data-label="batch">batches 3 to 5</td>' in page
    assert "rack0, rack1, rack2, rack3" in page
    assert "In this order" not in plan_html(plan, datetime(2026, 1, 2, tzinfo=timezone.utc), {})


def test_a_long_message_keeps_its_reference_once():
    message = "\n".join(["the same line"] * 20)
    failed = HostOutcome(state="failed", failed_at="x", failure=Trouble(message=message, reference="GS-601"))
    text = told_of({"gpu0": failed})
    assert text.count("[GS-601]") == 1
