"""What plan and apply tell of many hosts: alike ones together, the batches, and the page of what was done."""

from datetime import datetime, timezone

from gpusetup.cli.apply import applied_html, applied_text
from gpusetup.cli.plan import plan_html, plan_text, rows_of
from gpusetup.model.lifecycle import Applied, HostOutcome, Trouble
from gpusetup.model.plan import Action, HostPlan, Plan, Refusal
from gpusetup.model.stack import MatrixStamp
from gpusetup.model.verdict import Result
from gpusetup.rollout.batches import batches_of

STAMP = MatrixStamp(date="2026-01-01", digest="0")
NAMES = [f"gpu{number}" for number in range(200)]


DEAD = HostOutcome(state="unreachable", refusals=(Refusal(reference="GS-308", message="cannot be reached", exit=6),))


def told_of(hosts):
    return applied_text(Applied(ok=False, run="1", log="l", seconds={}, matrix=STAMP, hosts=hosts))


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


def test_other_troubles_and_versions_stay_apart():
    first, second = (
        HostOutcome(state="failed", failed_at="x", failure=Trouble(message=f"cudnn {version} is not there"))
        for version in ("9.1.0.70", "9.1.1.17")
    )
    text = told_of({"a": first, "b": second, "c": first})
    assert "a, c (2 hosts): FAILED" in text
    assert "cudnn 9.1.0.70" in text
    assert "b: FAILED" in text


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
