"""The play that applies: what a host wants nothing of is not loaded for it, and what it wants comes in the one order."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpusetup.content import collections_path
from gpusetup.drive.argv import ansible_environment
from tests.simulated_fleet import SimulatedFleet
from tests.stored import stored_rows

PACKAGE = Path(__file__).resolve().parents[2] / "gpusetup"
HOSTS = stored_rows("apply_hosts.json")
"""What each host wants, and the modules that it is asked by in their order."""


@pytest.fixture
def fleet(tmp_path):
    """Hosts of which each wants something else, said by the inventory to the roles themselves."""
    made = SimulatedFleet(tmp_path / "fleet", len(HOSTS), kinds=("ubuntu24.04-h200-keep",))
    made.answer("gpu_state", {"converged": False})
    made.answer("gpu_reboot_need", {"needed": False})
    made.answer("gpu_venv", {"python": {}})
    for name, host in zip(made.names, HOSTS, strict=True):
        folder = made.folder / "host_vars"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(host["wanted"]))
    return made


def play(fleet, tmp_path, *words, book="apply", code=0):
    outside = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    environment = ansible_environment(
        outside, collections=collections_path(), package=PACKAGE, events=tmp_path / "events.jsonl"
    )
    argv = [sys.executable, "-m", "ansible", "playbook", "-i", str(fleet.inventory), f"gpusetup.stack.{book}", *words]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return [tuple((fleet.folder / "calls" / name).read_text().split()) for name in fleet.names]


def test_every_host_gets_what_its_inventory_wants_in_the_one_order(fleet, tmp_path):
    assert play(fleet, tmp_path) == [tuple(host["called"]) for host in HOSTS]
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    idle = [event["name"] for event in events if event.get("host") == fleet.names[0] and event["event"] == "skipped"]
    assert len(idle) <= 10, idle  # not one for every task of every role


@pytest.mark.parametrize(
    ("tag", "called"),
    [
        ("mig", [(), ("gpu_mig",), (), ()]),
        ("driver", [("gpu_repo_source", "gpu_packages"), ("gpu_repo_source", "gpu_packages", "gpu_service"),
                    ("gpu_repo_source", "gpu_packages", "gpu_nouveau"),
                    ("gpu_repo_source", "gpu_monitoring", "gpu_packages", "gpu_kernel_module", "gpu_service")]),
        ("persistence", [(), ("gpu_service",), (), ("gpu_service",)]),
        ("nouveau", [(), (), ("gpu_nouveau",), ()]),
        ("fabric", [("gpu_repo_source", "gpu_packages"), ("gpu_repo_source", "gpu_packages", "gpu_service"),
                    ("gpu_repo_source", "gpu_packages"), ("gpu_repo_source", "gpu_monitoring", "gpu_packages", "gpu_service")]),
        ("licence", [(), (), ("gpu_licence",), ()]),
    ],
)  # fmt: skip
def test_a_tag_takes_its_part_alone(fleet, tmp_path, tag, called):
    assert play(fleet, tmp_path, "--tags", tag) == [("gpu_state", *words, "gpu_state") for words in called]


@pytest.mark.parametrize("tag", ["container", "nouveau", "imex"])
def test_a_tag_that_is_skipped_takes_its_part_alone(fleet, tmp_path, tag):
    gone = {"container": "gpu_container_runtime"}.get(tag, f"gpu_{tag}")
    wanted = [tuple(module for module in host["called"] if module != gone) for host in HOSTS]
    assert play(fleet, tmp_path, "--skip-tags", tag) == wanted


def test_the_tag_of_the_reboot_reaches_what_follows_from_it(fleet, tmp_path):
    fleet.answer("gpu_reboot_need", {"needed": True, "reasons": ["the module is another"]})
    play(fleet, tmp_path, "--tags", "reboot")
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    said = [
        event["host"]
        for event in events
        if event.get("name") == "Say that a reboot is pending" and event["event"] == "ok"
    ]
    assert said == [fleet.names[3]]


def test_a_scheduled_reboot_cuts_nothing_of_what_follows_it(fleet, tmp_path):
    fleet.answer("gpu_reboot_need", {"needed": True, "reasons": ["the module is another"], "processes": []})
    fleet.answer("gpu_mig", {"reboot": ["a change of mode"]})
    variables = {
        "gpu_reboot_policy": "schedule", "gpu_reboot_resume": ["/bin/true"], "gpu_driver_version": "580.159.04",
        "gpu_mig_layouts": [{"gpu": "0000:01:00.0", "enabled": True}], "gpu_imex_channels": 0,
    }  # fmt: skip
    (tmp_path / "wish.json").write_text(json.dumps(variables))
    fleet.listen()
    for called in play(fleet, tmp_path, "-e", f"@{tmp_path}/wish.json"):
        assert called[-2:] == ("gpu_state", "gpu_reboot_stage"), called
        assert called.count("gpu_reboot_stage") == 1
    (asked,) = fleet.asked(fleet.names[0], "gpu_reboot_stage")
    assert (asked["when"], asked["resume"]) == ("+1", ["/bin/true"])


@pytest.mark.parametrize(("command", "outcome"), [("false", "failed"), ("", "pending")])
def test_a_reboot_that_failed_or_waits_is_not_on_record_as_done(fleet, tmp_path, command, outcome):
    fleet.answer("gpu_recover", {"owner": "token"})
    fleet.answer(
        "gpu_reboot_need", {"needed": True, "reasons": ["the bus lost a GPU"], "processes": [], "changing": []}
    )
    policy = "when-needed" if command else "never"
    variables = {
        "gpu_recover_reboot": True, "gpu_recover_why": ["x"], "gpu_reboot_policy": policy, "gpu_reboot_timeout": 3,
        "gpu_state_owner": {},
    }  # fmt: skip
    (tmp_path / "wish.json").write_text(json.dumps(variables))
    fleet.listen()
    play(fleet, tmp_path, "-e", f"@{tmp_path}/wish.json", book="recover", code=2 if command else 0)
    assert [asked["outcome"] for asked in fleet.asked(fleet.names[0], "gpu_recover") if asked["mode"] == "note"] == [
        outcome
    ]


PARTS = stored_rows("apply_parts.json")


@pytest.mark.parametrize(
    ("tags", "lacking"),
    [
        ((), [(), (), (), ()]),
        (("--tags", "mig"), [(), ("services",), ("nouveau", "nouveau_argument", "container", "licence", "rdma", "imex"),
                             ("driver", "runfile", "signing", "module_options", "modules_load", "services", "cuda",
                              "python", "monitoring", "desktops")]),
        (("--skip-tags", "cuda,python"), [(), (), (), ("cuda", "python")]),
    ],
    ids=["all", "mig", "not some"],
)  # fmt: skip
def test_a_run_records_the_parts_that_it_did(fleet, tmp_path, tags, lacking):
    fleet.listen()
    play(fleet, tmp_path, *tags)
    for name, parts in zip(fleet.names, lacking, strict=True):
        finish = fleet.asked(name, "gpu_state")[-1]
        assert set(finish["wanted"]) == set(PARTS)
        assert set(PARTS) - set(finish["ran"]) == set(parts), name
        assert not any(finish["waits"].values())
        assert not any(finish["pending"].values())


def test_all_that_waits_comes_to_the_record(fleet, tmp_path):
    fleet.answer("gpu_reboot_need", {"needed": True, "reasons": ["a change of mode"], "processes": []})
    fleet.answer("gpu_mig", {"reboot": ["a change of mode"]})
    fleet.answer("gpu_rdma", {"pending": ["nvidia_peermem is not loaded: no"], "reboot": ["no static BAR1"]})
    fleet.answer("gpu_imex", {"pending": ["IMEX starts with the driver"]})
    fleet.answer("gpu_desktops", {"pending": ["gpusetup-desktop-anna.service"]})
    fleet.answer("gpu_container_runtime", {"pending": ["docker"]})
    fleet.answer("gpu_kernel_module", {"options_waiting": ["A=1"]})
    variables = {
        "gpu_mig_layouts": [{"gpu": "0000:01:00.0", "enabled": True}], "gpu_imex_channels": 0, "gpu_rdma_stack": "inbox",
        "gpu_desktop_backend": "egl", "gpu_container_runtimes": ["docker"], "gpu_driver_version": "580.159.04",
    }  # fmt: skip
    (tmp_path / "wish.json").write_text(json.dumps(variables))
    fleet.listen()
    play(fleet, tmp_path, "-e", f"@{tmp_path}/wish.json")
    finish = fleet.asked(fleet.names[0], "gpu_state")[-1]
    assert finish["pending"] == {"module_options": ["A=1"], "mig": ["a change of mode"], "rdma": ["no static BAR1"]}
    assert all("A=1" in asked["also"] for asked in fleet.asked(fleet.names[0], "gpu_reboot_need"))
    assert finish["waits"] == {
        "container": ["`systemctl restart docker` puts its new settings in effect, and may stop running containers"],
        "rdma": ["nvidia_peermem is not loaded: no"],
        "imex": ["IMEX starts with the driver"],
        "desktops": [
            "`systemctl restart gpusetup-desktop-anna.service` puts its new settings in effect, and ends the programs in it"
        ],
    }
