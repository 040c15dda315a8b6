"""gpusetup_monitoring: what exports the figures is chosen by the GPUs, with the packages that belong together."""

import msgspec
import pytest

from gpusetup.errors import PreflightError
from gpusetup.matrix.load import matrix
from gpusetup.model.applied import HostRecord
from gpusetup.model.plan import Offer, Preview
from gpusetup.model.settings import Settings

H200, RTX, V100 = "ubuntu24.04-h200-keep", "ubuntu24.04-rtx4090-open", "debian12-v100-proprietary"
NODE = "prometheus-node-exporter"
CORE, EXPORTER = "datacenter-gpu-manager-4-core", "datacenter-gpu-manager-exporter"
SECRETS = {
    "monitoring_certificate": "/etc/ssl/gpu.crt",
    "monitoring_key": "/etc/ssl/gpu.key",
    "monitoring_passwords": "/etc/gpusetup/monitoring.htpasswd",
}


def offered(answer, **more):
    """What repositories offer, with Debian's node_exporter; an empty version takes a name away."""
    added = {NODE: "1.5.0-1+b6"} | {name.replace("_", "-"): version for name, version in more.items()}
    candidates = dict(answer.candidates)
    for name, version in added.items():
        candidates[name] = (Offer(version=version),) if version else ()
    return Preview(candidates=candidates)


def with_packages(facts, **installed):
    there = facts.packages.installed | {name.replace("_", "-"): version for name, version in installed.items()}
    return msgspec.structs.replace(facts, packages=msgspec.structs.replace(facts.packages, installed=there))


@pytest.fixture(name="plan")
def made_plan(host, planner, nvidia_ubuntu):
    def plan(name, monitoring="auto", *, facts=None, offers=None, **more):
        settings = Settings(monitoring=monitoring, **more)
        return planner.second(facts or host(name), settings, offers or offered(nvidia_ubuntu)).plan

    return plan


def names(plan):
    return {item.name: item.version for item in plan.variables.gpu_monitoring_packages}


def test_data_centre_gpus_get_the_newest_pair_of_which_all_is_offered(plan):
    """An exporter is offered that was made for a DCGM that is not."""
    found = plan(H200)
    assert found.refusals == ()
    assert names(found) == {
        "datacenter-gpu-manager-4-core": "1:4.6.0-1",
        "datacenter-gpu-manager-4-cuda13": "1:4.6.0-1",
        "datacenter-gpu-manager-4-proprietary": "1:4.6.0-1",
        "datacenter-gpu-manager-4-proprietary-cuda13": "1:4.6.0-1",
        "datacenter-gpu-manager-exporter": "4.8.3-1",
    }
    assert set(names(found)) <= set(found.holds)
    variables = found.variables
    assert (variables.gpu_monitoring_exporter, variables.gpu_monitoring_listen) == ("dcgm", "127.0.0.1:9400")
    assert variables.gpu_monitoring_dcgm == "4.6.0"
    why = {action.id: action.why for action in found.actions}
    assert why["monitoring-exporter"] == "data-centre GPUs: DCGM reports most about their health"


def test_what_exports_is_looked_for_with_the_rest(host, planner):
    ask = planner.first(host(RTX, driver=None), Settings(monitoring="auto")).ask
    assert {CORE, EXPORTER, NODE, "datacenter-gpu-manager-4-cuda*"} <= set(ask.gpu_preflight_candidates)
    without = planner.first(host(RTX, driver=None), Settings()).ask
    assert not {CORE, NODE} & set(without.gpu_preflight_candidates)


def test_other_gpus_get_a_textfile_whose_exporter_keeps_up_with_updates(plan):
    found = plan(RTX)
    assert names(found) == {NODE: ""}
    assert NODE not in found.holds
    variables = found.variables
    assert (variables.gpu_monitoring_exporter, variables.gpu_monitoring_listen) == ("textfile", "127.0.0.1:9100")
    assert variables.gpu_monitoring_folder == "/var/lib/prometheus/node-exporter"
    (why,) = [action.why for action in found.actions if action.id == "monitoring-exporter"]
    assert "not for GeForce RTX 4090" in why


def test_an_old_gpu_under_a_new_driver_has_diagnostics_of_its_own_cuda(host, planner, nvidia_debian):
    found = planner.second(host(V100, driver=None), Settings(monitoring="dcgm"), offered(nvidia_debian)).plan
    assert found.stack.driver.branch == "580"
    assert "datacenter-gpu-manager-4-cuda12" in names(found)


def test_a_pair_that_is_there_stays_until_it_is_to_be_renewed(plan, host):
    older = {
        "datacenter_gpu_manager_4_core": "1:4.5.3-1",
        "datacenter_gpu_manager_4_cuda13": "1:4.5.3-1",
        "datacenter_gpu_manager_exporter": "4.8.2-1",
    }
    facts = with_packages(host(H200), **older)
    assert names(plan(H200, facts=facts))[EXPORTER] == "4.8.2-1"
    assert names(plan(H200, facts=facts, upgrade=True))[EXPORTER] == "4.8.3-1"


def test_dcgm_3_is_refused_with_what_to_do(plan, host):
    facts = with_packages(host(H200), datacenter_gpu_manager="1:3.3.9")
    for monitoring in ("auto", "dcgm"):
        with pytest.raises(PreflightError) as caught:
            plan(H200, monitoring, facts=facts)
        assert caught.value.reference == "GS-366"
        assert "apt-get remove datacenter-gpu-manager;" in caught.value.hint
    assert names(plan(H200, "textfile", facts=facts)) == {NODE: ""}


def test_without_a_pair_auto_takes_the_textfile_and_dcgm_is_refused(plan, nvidia_ubuntu):
    lacking = offered(nvidia_ubuntu, datacenter_gpu_manager_exporter="9.9.9-1")
    assert plan(H200, offers=lacking).variables.gpu_monitoring_exporter == "textfile"
    with pytest.raises(PreflightError) as caught:
        plan(H200, "dcgm", offers=lacking)
    assert caught.value.reference == "GS-361"
    assert "exporter: 9.9.9" in caught.value.note


def test_an_exporter_that_no_repository_has_is_refused(plan, nvidia_ubuntu):
    with pytest.raises(PreflightError) as caught:
        plan(RTX, "nvidia_gpu_exporter")
    assert caught.value.reference == "GS-361"
    assert "gpusetup_extra_sources" in caught.value.hint
    own = offered(nvidia_ubuntu, nvidia_gpu_exporter="1.9.1")
    assert names(plan(RTX, "nvidia_gpu_exporter", offers=own)) == {"nvidia-gpu-exporter": ""}
    assert plan(RTX, "nvidia_gpu_exporter", offers=own).variables.gpu_monitoring_listen == "127.0.0.1:9835"
    with pytest.raises(PreflightError) as caught:
        plan(RTX, "textfile", offers=offered(nvidia_ubuntu, prometheus_node_exporter=""))
    assert "gpusetup_monitoring_textfile=" in caught.value.hint


def test_a_node_exporter_of_somebody_else_stays_as_it_is(plan, host):
    found = plan(RTX, facts=with_packages(host(RTX), prometheus_node_exporter="1.5.0-1+b6"))
    assert names(found) == {}
    assert (found.variables.gpu_monitoring_listen, found.variables.gpu_monitoring_folder) == (
        "",
        "/var/lib/prometheus/node-exporter",
    )
    elsewhere = plan(RTX, "textfile", monitoring_textfile="/srv/textfiles", monitoring_listen="127.0.0.1:9101")
    assert (names(elsewhere), elsewhere.variables.gpu_monitoring_folder) == ({}, "/srv/textfiles")
    assert any("gpusetup_monitoring_listen has no effect" in text for text in elsewhere.warnings)


@pytest.mark.parametrize(
    ("more", "lacks"),
    [
        ({"monitoring_listen": "0.0.0.0:9400"}, "monitoring_certificate"),
        ({"monitoring_listen": "[::]:9400"}, "monitoring_passwords"),
        ({"monitoring_listen": "10.0.0.5:9400", **SECRETS, "monitoring_passwords": ""}, "monitoring_passwords is"),
        ({**SECRETS, "monitoring_key": ""}, "monitoring_key is"),
    ],
)
def test_what_others_can_reach_needs_tls_and_a_password(plan, more, lacks):
    with pytest.raises(PreflightError) as caught:
        plan(H200, "dcgm", **more)
    assert caught.value.reference == "GS-364"
    assert lacks in caught.value.message
    assert "htpasswd -B" in caught.value.hint


def test_secrets_reach_the_role_as_paths_alone(plan):
    variables = plan(H200, "dcgm", monitoring_listen="0.0.0.0:9400", **SECRETS).variables
    assert variables.gpu_monitoring_passwords == SECRETS["monitoring_passwords"]
    assert variables.gpu_monitoring_key == SECRETS["monitoring_key"]


def recorded(facts, plan):
    there = {item.name: item.version or "1.5.0-1+b6" for item in plan.variables.gpu_monitoring_packages}
    state = HostRecord(schema="gpusetup/state/1", lock=plan.lock, brought=there, packages=there)
    return msgspec.structs.replace(with_packages(facts, **there), state=state)


def test_what_is_no_longer_asked_for_goes_and_is_not_on_record(plan, host):
    first = plan(RTX)
    after = recorded(host(RTX), first)
    gone = plan(RTX, "none", facts=after)
    assert gone.variables.gpu_monitoring_exporter == "none"
    assert NODE in gone.removals
    assert [action.what for action in gone.actions if action.kind == "monitoring"] == ["no longer textfile"]
    assert NODE not in (gone.lock.wanted.packages.remove if gone.lock.wanted.packages else ())
    never = plan(RTX, "none")
    assert never.variables.gpu_monitoring_exporter is msgspec.UNSET


def test_another_exporter_takes_the_place_of_the_first(plan, host):
    after = recorded(host(H200), plan(H200, "textfile"))
    other = plan(H200, "dcgm", facts=after)
    assert NODE in other.removals
    assert not {NODE} & set(names(other))
    again = plan(H200, "textfile", facts=after)
    assert not [action for action in again.actions if action.kind == "monitoring"]
    assert NODE not in again.removals


def test_the_record_repeats_what_was_chosen(planner, plan, host):
    """A rollback goes to what was there, whatever the inventory asks for today."""
    facts = host(H200)
    first = plan(H200)
    after = recorded(facts, first)
    back = planner.recorded(after, Settings(), first.lock).plan
    assert back.variables.gpu_monitoring_exporter == "dcgm"
    assert names(back) == names(first)
    bare = plan(H200, "none")
    undone = planner.recorded(after, Settings(monitoring="dcgm"), bare.lock).plan
    assert undone.variables.gpu_monitoring_exporter == "none"
    assert set(names(first)) <= set(undone.removals)


def test_every_gpu_of_every_kind_has_a_cuda_of_dcgm():
    assert min(row.min_branch for row in matrix().monitoring.cuda) == 0
    numbers = [tuple(map(int, row.exporter.split("."))) for row in matrix().monitoring.pairs]
    assert numbers == sorted(numbers, reverse=True)
