"""An apply that was cut is finished by the same command, at whatever seam between two steps it was cut."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import yaml
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import files, ledger, lifecycle, owner
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import gpudirect, versions

from gpusetup.components.parsing import yes
from gpusetup.components.record import hidden, read_record
from gpusetup.components.registry import COMPONENTS
from gpusetup.content import content_path
from gpusetup.errors import PreflightError
from gpusetup.model.applied import Apply, HostRecord, RecordedFile, RecordedRunfile, RecordedService
from gpusetup.model.facts import LoadedModule, Python, Service, Source, Unreadable
from gpusetup.model.facts_machine import ModuleFile
from gpusetup.model.settings import DesktopsWish, GpuDirect, ImexWish, Settings
from gpusetup.plan.lifecycle import differences
from tests.hosts.machines import changed
from tests.lab.repository import catalog
from tests.refusals import refused
from tests.unit.plan.conftest import DRIVER, answer, asked, debian12_archive, drafted, host, nvidia_ubuntu, planner

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


@pytest.mark.parametrize(
    ("machine", "source", "offers"),
    [("debian12-rtx4090-nouveau", "distro", debian12_archive), ("ubuntu24.04-rtx4090-open", "auto", nvidia_ubuntu)],
)
def test_the_same_command_asks_for_the_same_whatever_has_come_already(machine, source, offers):
    """Else the host would refuse it while its own transaction goes on, and the second run would not be a quick one."""

    def parts(*, complete):
        kernels = tuple(changed(one, headers=complete) for one in host(machine).kernel.installed)
        python = Python(path="/usr/bin/python3", version="3.11", ensurepip=complete)
        return {"driver": None, "kernel": {"installed": kernels}, "pythons": (python,)}

    offered, settings = offers, asked("driver", "cupy", source=source)
    nothing = host(machine, **parts(complete=False))
    plan = drafted(planner, nothing, settings, offered).plan
    names = [package.name for package in plan.lock.wanted.packages.wanted()]
    assert len(names) > 3
    for come in range(len(names) + 1):
        installed = {**nothing.packages.installed, **dict.fromkeys(names[:come], "1")}
        facts = changed(
            nothing, state=HostRecord(apply=Apply(id="run-1", lock=plan.lock)), packages={"installed": installed}
        )
        again = drafted(planner, changed(facts, **parts(complete=come == len(names))), settings, offered).plan
        asks = [changed(one.variables, gpu_state_planned=()) for one in (plan, again)]
        assert asks[0] == asks[1], names[:come]


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


def lost_facts(facts, why):
    return changed(facts, state=None, unreadable=(Unreadable(field="state", reason=why),))


def test_a_host_whose_record_is_lost_is_told_so(rebooted):
    why = "/var/lib/gpusetup/state.json is no JSON"
    plan = planner.first(lost_facts(rebooted, why), DRIVER).plan
    assert plan.state == "change"
    assert [(action.id, action.why) for action in plan.actions if action.kind == "record"] == [("record-lost", why)]
    assert [text for text in plan.warnings if f"damaged or gone ({why})" in text]
    refusal = hidden(lost_facts(rebooted, why))
    assert refusal is not None
    assert "starts a new record" in refusal.hint
    denied = lost_facts(rebooted, "/var/lib/gpusetup/state.json: Permission denied")
    assert "record-lost" not in [action.id for action in planner.first(denied, DRIVER).plan.actions], "it may be there"
    assert hidden(denied) is not None
    assert hidden(rebooted) is None


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


def test_imex_and_desktops_come_beside_a_driver_on_record(rebooted, first):
    facts = changed(rebooted, state=HostRecord(lock=first.lock))
    full = next(item.version for item in first.lock.wanted.packages.driver if item.version)
    table = planner.matrix.repos.desktops
    names = {*table.packages, *(name for server in table.servers for name in server), *table.session}
    offers = answer(catalog.ubuntu(), *((name, "1-1") for name in names), *((name, full) for name in table.graphics))
    wish = changed(DRIVER, imex=ImexWish(nodes=("10.0.0.1",)), desktops=DesktopsWish(users=("alice",)))
    plan = planner.second(facts, wish, offers).plan
    assert [item.name for item in plan.variables.gpu_fabric_packages] == ["nvidia-imex"]
    drawing = {*plan.variables.gpu_driver_packages} - {*first.variables.gpu_driver_packages}
    assert {item.name for item in drawing} == {"libnvidia-gl-580", "nvidia-driver-libs"}
    assert not [text for text in plan.warnings if "half of this driver that draws" in text]


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


@pytest.mark.parametrize("name", [name for one in COMPONENTS for name, read in one.settings.items() if read is yes])
def test_what_a_setting_turned_on_goes_when_it_is_turned_off(rebooted, name):
    off = asked("driver", "cuda", "cudnn", "nccl", persistence=False, rdma="inbox" if name == "ipoib" else "none")
    names = [package for row in planner.matrix.rdma.packages for package in row.packages if "{" not in package]
    offers = answer(catalog.ubuntu(), *((package, "2.5-1") for package in names))
    bare = changed(host("ubuntu24.04-h200-keep"), driver=None, services={})
    on, never = (planner.second(bare, changed(off, **{name: way}), offers).plan for way in (True, False))
    assert (on.state, never.state) == ("change", "change"), on.refusals
    there = {item.name: item.version.rstrip("*") or "1-1" for item in on.lock.wanted.packages.wanted()}
    there |= {item: "1-1" for item in bare.packages.installed if versions.matches(item, on.lock.wanted.packages.hold)}
    setup = on.lock.wanted.gpudirect or GpuDirect()
    files = gpudirect.files(setup.stack, setup.modules, setup.storage == "p2pdma")
    done = HostRecord(
        lock=on.lock, brought=there, packages=there, holds=tuple(there),
        services={f"{unit}.service": RecordedService(enabled=True) for unit in on.lock.wanted.services},
        files={path: RecordedFile(sha256=hashlib.sha256(text.encode()).hexdigest()) for path, text in files.items() if text},
    )  # fmt: skip
    packages = changed(bare.packages, installed={**bare.packages.installed, **there}, held=tuple(there))
    services = rebooted.services if on.lock.wanted.services else {}
    now = planner.second(changed(rebooted, state=done, packages=packages, services=services), off, offers).plan
    wanted = {item.name for item in now.lock.wanted.packages.wanted()}
    assert wanted == {item.name for item in never.lock.wanted.packages.wanted()}
    gone = {word for action in now.actions if action.kind == "remove" for word in action.what.split()}
    assert gone == there.keys() - wanted - set(bare.packages.installed)
    told = {action.id for action in now.actions}
    undone = {"remove-unasked", "hold-release", "file-rdma", "module-rdma", "service-nvidia-persistenced-given-up"}
    assert told & undone, told
    assert now.lock.wanted.services == never.lock.wanted.services


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


def test_other_module_options_are_a_change(rebooted, first):
    facts = changed(rebooted, state=HostRecord(lock=first.lock))
    settings = changed(DRIVER, driver_options={"NVreg_EnableGpuFirmware": 0})
    plan = planner.second(facts, settings, nvidia_ubuntu).plan
    (action,) = plan.actions
    assert (action.id, action.what) == ("module-options", "options of nvidia: NVreg_EnableGpuFirmware=0")
    facts = changed(rebooted, state=HostRecord(lock=plan.lock))
    assert planner.first(facts, settings).plan.state == "unchanged"
    assert [item.what for item in planner.second(facts, DRIVER, nvidia_ubuntu).plan.actions] == [
        "options of nvidia: none"
    ]
    theirs = planner.second(rebooted, settings, nvidia_ubuntu).plan
    assert theirs.state == "unchanged"
    assert len([text for text in theirs.warnings if "driver_options has no effect" in text]) == 1


def test_apply_mends_the_package_database_as_drift_says(rebooted, first):
    packages = changed(rebooted.packages, problems=("dpkg was interrupted",))
    facts = changed(rebooted, packages=packages)
    assert planner.first(facts, DRIVER).plan.state == "unchanged", "nothing of it is gpusetup's"
    state = HostRecord(lock=first.lock, apply=Apply(id="run-1", finished="now"))
    facts = changed(facts, state=state)
    assert [(item.id, item.mend) for item in differences(facts)] == [("packages", "apply")]
    assert [action.id for action in planner.first(facts, DRIVER).plan.actions] == ["repair"]
