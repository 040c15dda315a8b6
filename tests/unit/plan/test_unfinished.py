"""An apply that was cut is finished by the same command, at whatever seam between two steps it was cut."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import yaml
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import files, ledger, lifecycle, owner
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure

from gpusetup.components.record import read_record
from gpusetup.content import content_path
from gpusetup.errors import PreflightError
from gpusetup.model.applied import Apply, HostRecord, RecordedRunfile
from gpusetup.model.facts import LoadedModule, Service, Source
from gpusetup.model.facts_machine import ModuleFile
from gpusetup.model.settings import Settings
from gpusetup.plan.lifecycle import differences
from tests.hosts.machines import changed
from tests.lab.repository import catalog
from tests.refusals import refused
from tests.unit.plan.conftest import DRIVER, answer, host, nvidia_ubuntu, planner

PLAYBOOKS = content_path() / "playbooks"


def roles_of(tasks: list[dict[str, Any]]) -> list[str]:
    found = []
    for task in tasks:
        if "ansible.builtin.include_tasks" in task:
            found += roles_of(yaml.safe_load((PLAYBOOKS / task["ansible.builtin.include_tasks"]).read_text()))
        else:
            role = task.get("ansible.builtin.include_role") or task["ansible.builtin.import_role"]
            found.append(role.get("tasks_from") or role["name"].rpartition(".")[2])
    return found


PLAY = yaml.safe_load((PLAYBOOKS / "apply.yml").read_text())[0]
STEPS = [item["role"].rpartition(".")[2] for item in PLAY["roles"]] + roles_of(PLAY["tasks"])


def manager(there: dict[str, str], held: list[str]) -> SimpleNamespace:
    return SimpleNamespace(installed=there.copy, held=held.copy)


@pytest.fixture
def first():
    facts = changed(host("ubuntu24.04-h200-keep"), driver=None)
    return planner.second(facts, DRIVER, nvidia_ubuntu).plan


@pytest.fixture
def rebooted(first):
    """The host after the apply's reboot: everything is there, and the driver runs."""
    keep = host("ubuntu24.04-h200-keep")
    version, packages = first.stack.driver.version, msgspec.to_builtins(first.lock.wanted.packages)
    there = {item["name"]: item["version"].rstrip("*") for group in ("driver", "fabric", "prerequisites")
             for item in ({"version": "", **one} for one in packages.get(group, ()))}  # fmt: skip
    flavour = first.stack.driver.module
    loaded = LoadedModule(version=version, flavour=flavour)
    driver = changed(
        keep.driver, version=version, loaded=loaded, library=version, module=version, flavour=flavour, mismatch=False
    )
    module = ModuleFile(path="/x/nvidia.ko", version=version, flavour=flavour)
    kernels = tuple(changed(kernel, nvidia=module) for kernel in keep.kernel.installed)
    sources = tuple(Source(file="/x", uri=uri) for source in first.lock.wanted.packages.sources
                    for uri in source.uris)  # fmt: skip
    installed = {**keep.packages.installed, **there}
    return changed(
        keep,
        packages={"installed": installed, "held": tuple(sorted(installed)), "sources": sources, "problems": ()},
        driver=driver,
        kernel={"installed": kernels},
        nouveau={"blacklisted": True, "loaded": False, "in_initramfs": False, "initramfs": ()},
        services={
            name: Service(unit=f"{name}.service", active="active", enabled="enabled")
            for name in first.lock.wanted.services
        },
    )


@pytest.fixture
def record(tmp_path, monkeypatch, first):
    monkeypatch.setattr(lifecycle.planning, "manager", lambda *_more, **_named: manager({"nvidia-utils": "580"}, []))

    def opened(**more: Any) -> lifecycle.Lifecycle:
        request = {
            "state_dir": str(tmp_path), "simulated_root": "", "wanted": {"driver": first.stack.driver.version},
            "manager": "apt", "network": {}, "lock": msgspec.to_builtins(first.lock), "id": "", "keep": 10, "python": None, "remove": [],
            "driver_version": "", "driver_module": "", "kernels": [], "verified": {}, **more,
        }  # fmt: skip
        return lifecycle.Lifecycle(request)

    return opened


def state_of(folder: Path) -> dict[str, Any] | None:
    path = folder / "state.json"
    return json.loads(path.read_text()) if path.exists() else None


@pytest.mark.parametrize("steps", range(len(STEPS) + 1), ids=["nothing", *STEPS])
def test_the_same_command_finishes_it(steps, rebooted, record, first, tmp_path):
    ours = tmp_path / "etc/modprobe.d/gpusetup-nouveau.conf"
    for step in STEPS[:steps]:
        if step == "gpu_state":
            assert not record(id="run-1").begin()["converged"]
        elif step == "gpu_nouveau":
            ledger.Ledger(str(tmp_path)).write(str(ours), "blacklist nouveau\n")
        elif step == "finish":
            record(id="run-1").finish()
    facts = changed(rebooted, state=read_record(state_of(tmp_path))[0])
    plan = planner.first(facts, DRIVER).plan
    finished = "finish" in STEPS[:steps]
    if steps == 0:
        assert plan.state == "unchanged", "a driver of somebody else's that fits is kept"
        return
    assert (plan.state == "unchanged") == finished, plan.actions
    assert ("record-unfinished" in [action.id for action in plan.actions]) != finished
    assert plan.variables.gpu_driver_packages == first.variables.gpu_driver_packages, "it came by this apply"
    assert plan.variables.gpu_packages_hold == first.variables.gpu_packages_hold
    assert [item.id for item in differences(facts)] == ["apply"] or finished

    again = record(id="run-2", lock=msgspec.to_builtins(plan.lock)).begin()
    assert (again["converged"], again.get("resumed", False)) == (finished, not finished)
    if not finished:
        record(id="run-2", lock=msgspec.to_builtins(plan.lock)).finish()
    state = state_of(tmp_path)
    assert state is not None
    assert (state["apply"]["id"], bool(state["apply"]["finished"])) == ("run-1", True)
    assert state["lock"]["key"] == first.lock.key
    assert [item["id"] for item in record().history()["history"]] == ["run-1"]
    after = planner.first(changed(rebooted, state=read_record(state)[0]), DRIVER).plan
    assert (after.state, after.actions) == ("unchanged", ())


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_finish_that_is_cut_at_any_write_is_repeated_whole(cut, record, tmp_path, monkeypatch):
    """What the record calls finished stands in the history; what it calls verified is verified there too."""
    real, left = files.write_atomically, [cut]

    def writes(*more: Any, **named: Any) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        real(*more, **named)

    record(id="run-1").begin()
    monkeypatch.setattr(files, "write_atomically", writes)
    try:
        record(id="run-1").finish()
        record(verified={"verdict": "pass"}).verified()
    except KeyboardInterrupt:
        pass
    monkeypatch.setattr(files, "write_atomically", real)
    state = state_of(tmp_path)
    assert state is not None
    past = {item["id"]: item for item in record().history()["history"]}
    if state["apply"]["finished"]:
        assert state["apply"]["id"] in past
    if state["verified"]:
        assert past[state["apply"]["id"]]["verified"] == state["verified"]
    if not state["apply"]["finished"]:
        record(id="run-2").finish()
        assert [item["id"] for item in record().history()["history"]] == ["run-1"]


def test_a_state_whose_driver_was_somebody_elses_is_not_called_gone_back_to(rebooted, first):
    """Its record has no packages of the driver: nothing would move, and that is no way back."""
    driver = {"version": "570.1", "installed": True}
    kept = changed(first.lock, wanted={"packages": None, "manage_driver": False}, stack={"driver": driver})
    with refused(PreflightError, "GS-815", match="kept driver 570"):
        planner.recorded(rebooted, DRIVER, kept)


def test_a_record_is_given_up_only_when_nothing_of_ours_is_left(record, tmp_path, monkeypatch):
    token = record(id="run-1").begin()["owner"]
    begun = ledger.Ledger(str(tmp_path))
    begun.state.update(
        brought={"nvidia-utils": "580"}, taken={"old": "1"}, moved={"libc6": "1"}, holds=["nvidia-utils"]
    )
    begun.write(str(tmp_path / "etc/mounted"), "x")
    (tmp_path / "mounts").write_text(f"40 36 8:1 /x {tmp_path}/etc/mounted rw - ext4 /d rw\n")
    monkeypatch.setattr(ledger.files, "_MOUNTS", str(tmp_path / "mounts"))
    there, held = {"nvidia-utils": "580"}, ["nvidia-utils"]
    monkeypatch.setattr(lifecycle.planning, "manager", lambda *_more, **_named: manager(there, held))
    left = record(token=token).clean()
    assert left["ours"] == {
        "files": [f"{tmp_path}/etc/mounted is mounted alone, so gpusetup cannot replace it: umount it"],
        "holds": ["nvidia-utils"],
        "packages not restored": ["old=1"],
        "packages that gpusetup installed": ["nvidia-utils"],
    }
    (tmp_path / "mounts").write_text("")
    assert (tmp_path / "state.json").exists()
    there, held = {"old": "1"}, []
    assert record(token=token).clean()["ours"] == {}
    assert not tmp_path.exists()


def test_a_plan_from_before_another_run_is_not_carried_out(record, tmp_path):
    record(id="theirs", token=record(id="theirs").begin()["owner"]).finish()
    late = record(id="ours", wanted={"driver": "1"}, planned=["", ""])
    with pytest.raises(HostFailure, match="another run has changed this host since it was planned"):
        late.begin()
    late.let_go()
    assert (owner.present(str(tmp_path)), ledger.Ledger(str(tmp_path)).state["apply"]["id"]) == (None, "theirs")
    now = [ledger.Ledger(str(tmp_path)).state["apply"][key] for key in ("id", "finished")]
    assert record(id="ours", wanted={"driver": "1"}, planned=now).begin()["id"] == "ours"


def test_a_run_installer_on_record_gets_no_daemon_later():
    facts = host("ubuntu22.04-t4-runfile")
    settings = Settings(source=f"/root/NVIDIA-Linux-x86_64-{facts.driver.version}.run", source_sha256="a" * 64)
    lock = planner.second(changed(facts, driver=None), settings, answer(catalog.ubuntu())).plan.lock
    there = changed(facts, smi=None, state=HostRecord(lock=lock, runfile=RecordedRunfile(version=facts.driver.version)))
    plan = planner.second(there, changed(settings, hold_kernel=True), answer(catalog.ubuntu())).plan
    assert plan.lock.wanted.services == lock.wanted.services == ()


def test_the_persistence_daemon_comes_when_it_is_asked_for_later(rebooted):
    facts = host("ubuntu24.04-h200-keep")
    without = changed(DRIVER, persistence=False)
    lock = planner.second(changed(facts, driver=None, services={}), without, nvidia_ubuntu).plan.lock
    own = {item.name for item in lock.wanted.packages.driver}
    done = changed(rebooted, services={}, state=HostRecord(lock=lock))
    plan = planner.second(done, DRIVER, nvidia_ubuntu).plan
    assert {item.name for item in plan.lock.wanted.packages.driver} - own == {"nvidia-compute-utils-580"}
    assert (lock.wanted.services, plan.lock.wanted.services) == ((), ("nvidia-persistenced",))


@pytest.mark.parametrize("state", [{"lock": 1}, {"apply": 1}], ids=["finished", "cut"])
def test_a_component_that_is_asked_for_no_more_goes_after_a_cut_too(state):
    facts, table = host("ubuntu24.04-h200-keep"), planner.matrix.monitoring
    dcgm = [(name.replace("{major}", "13"), f"1:{table.pairs[0].dcgm}-1") for name in table.dcgm.needed]
    offers = answer(catalog.ubuntu(), *dcgm, (table.dcgm.exporter, f"{table.pairs[0].exporter}-1"))
    plan = planner.second(facts, changed(DRIVER, monitoring="dcgm"), offers).plan
    held = next(action.what for action in plan.actions if action.id == "hold-libraries")
    there = {item.name: item.version for item in plan.lock.wanted.packages.monitoring}
    assert held.split() == sorted(there)
    lock: Any = plan.lock if "lock" in state else Apply(id="run-1", lock=plan.lock)
    packages = changed(facts.packages, installed={**facts.packages.installed, **there})
    now = changed(facts, packages=packages, state=HostRecord(**dict.fromkeys(state, lock), brought=there))
    gone = next(action for action in planner.first(now, DRIVER).plan.actions if action.kind == "remove")
    assert (gone.id, gone.what.split()) == ("remove-unasked", sorted(there))


def test_apply_mends_the_package_database_as_drift_says(rebooted, first):
    packages = changed(rebooted.packages, problems=("dpkg was interrupted",))
    facts = changed(rebooted, packages=packages)
    assert planner.first(facts, DRIVER).plan.state == "unchanged", "nothing of it is gpusetup's"
    state = HostRecord(lock=first.lock, apply=Apply(id="run-1", finished="now"))
    facts = changed(facts, state=state)
    assert [(item.id, item.mend) for item in differences(facts)] == [("packages", "apply")]
    assert [action.id for action in planner.first(facts, DRIVER).plan.actions] == ["repair"]
