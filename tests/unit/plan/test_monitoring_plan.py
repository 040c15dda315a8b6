"""gpusetup_monitoring: what exports the figures is chosen by the GPUs, with the packages that belong together."""

import pytest

from gpusetup.errors import PreflightError
from gpusetup.model.plan import Offer, Preview
from gpusetup.model.settings import Settings
from tests.refusals import refused
from tests.unit.plan.conftest import host, nvidia_debian, nvidia_ubuntu, planner, with_installed

H200, RTX, V100 = "ubuntu24.04-h200-keep", "ubuntu24.04-rtx4090-open", "debian12-v100-proprietary"
NODE, NODE_VERSION = "prometheus-node-exporter", "1.5.0-1+b6"
DCGM = "datacenter-gpu-manager"
CORE, EXPORTER = f"{DCGM}-4-core", f"{DCGM}-exporter"
SECRETS = {
    "monitoring_certificate": "/etc/ssl/gpu.crt",
    "monitoring_key": "/etc/ssl/gpu.key",
    "monitoring_passwords": "/etc/gpusetup/monitoring.htpasswd",
}


def offered(answer, more=()):
    """What repositories offer, with Debian's node_exporter; an empty version takes a name away."""
    added = {NODE: NODE_VERSION} | dict(more)
    offers = {name: (Offer(version=version),) if version else () for name, version in added.items()}
    return Preview(candidates=answer.candidates | offers)


def plan(name, monitoring="auto", *, installed=(), facts=None, offers=(), **more):
    facts = facts or with_installed(host(name), dict(installed))
    return planner.second(facts, Settings(monitoring=monitoring, **more), offered(nvidia_ubuntu, offers)).plan


def names(plan):
    return {item.name: item.version for item in plan.variables.gpu_monitoring_packages}


def test_data_centre_gpus_get_the_newest_pair_of_which_all_is_offered():
    """An exporter is offered that was made for a DCGM that is not."""
    found = plan(H200)
    assert found.refusals == ()
    parts = ("core", "cuda13", "proprietary", "proprietary-cuda13")
    assert names(found) == {f"{DCGM}-4-{part}": "1:4.6.0-1" for part in parts} | {EXPORTER: "4.8.3-1"}
    assert set(names(found)) <= set(found.holds)
    variables = found.variables
    assert (variables.gpu_monitoring_exporter, variables.gpu_monitoring_listen) == ("dcgm", "127.0.0.1:9400")
    assert variables.gpu_monitoring_dcgm == "4.6.0"
    why = {action.id: action.why for action in found.actions}
    assert why["monitoring-exporter"] == "data-centre GPUs: DCGM reports most about their health"


@pytest.mark.parametrize("monitoring", ["auto", "none"])
def test_what_exports_is_looked_for_with_the_rest(monitoring):
    ask = planner.first(host(RTX, driver=None), Settings(monitoring=monitoring)).ask
    looked_for = {CORE, EXPORTER, NODE, f"{DCGM}-4-cuda*"}
    assert looked_for & set(ask.gpu_preflight_candidates) == (looked_for if monitoring == "auto" else set())


def test_other_gpus_get_a_textfile_whose_exporter_keeps_up_with_updates():
    found = plan(RTX)
    assert (names(found), NODE in found.holds) == ({NODE: ""}, False)
    variables = found.variables
    assert (variables.gpu_monitoring_exporter, variables.gpu_monitoring_listen) == ("textfile", "127.0.0.1:9100")
    assert variables.gpu_monitoring_folder == "/var/lib/prometheus/node-exporter"
    (why,) = [action.why for action in found.actions if action.id == "monitoring-exporter"]
    assert "not for GeForce RTX 4090" in why


def test_an_old_gpu_under_a_new_driver_has_diagnostics_of_its_own_cuda():
    found = planner.second(host(V100, driver=None), Settings(monitoring="dcgm"), offered(nvidia_debian)).plan
    assert (found.stack.driver.branch, f"{DCGM}-4-cuda12" in names(found)) == ("580", True)


def test_without_a_pair_auto_takes_the_textfile_and_dcgm_is_refused():
    lacking = {EXPORTER: "9.9.9-1"}
    assert plan(H200, offers=lacking).variables.gpu_monitoring_exporter == "textfile"
    with refused(PreflightError, "GS-361", note="exporter: 9.9.9"):
        plan(H200, "dcgm", offers=lacking)


def test_an_exporter_that_no_repository_has_is_refused():
    with refused(PreflightError, "GS-361", hint="gpusetup_extra_sources"):
        plan(RTX, "nvidia_gpu_exporter")
    own = plan(RTX, "nvidia_gpu_exporter", offers={"nvidia-gpu-exporter": "1.9.1"})
    assert (names(own), own.variables.gpu_monitoring_listen) == ({"nvidia-gpu-exporter": ""}, "127.0.0.1:9835")
    with refused(PreflightError, "GS-361", hint="gpusetup_monitoring_textfile="):
        plan(RTX, "textfile", offers={NODE: ""})


def test_a_node_exporter_of_somebody_else_stays_as_it_is():
    found = plan(RTX, installed={NODE: NODE_VERSION})
    assert (names(found), found.variables.gpu_monitoring_listen) == ({}, "")
    assert found.variables.gpu_monitoring_folder == "/var/lib/prometheus/node-exporter"
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
def test_what_others_can_reach_needs_tls_and_a_password(more, lacks):
    with refused(PreflightError, "GS-364", message=lacks, hint="htpasswd -B"):
        plan(H200, "dcgm", **more)


def test_secrets_reach_the_role_as_paths_alone():
    variables = plan(H200, "dcgm", monitoring_listen="0.0.0.0:9400", **SECRETS).variables
    assert variables.gpu_monitoring_passwords == SECRETS["monitoring_passwords"]
    assert variables.gpu_monitoring_key == SECRETS["monitoring_key"]
