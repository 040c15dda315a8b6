"""What follows from verifications: a bad machine leaves service and returns; what fails there is said and changes no verdict."""

import json
import os
import shlex
import shutil
import subprocess
from datetime import datetime, timezone
from unittest.mock import Mock

import jsonschema
import pytest

from gpusetup.cli import session
from gpusetup.cli.main import main
from gpusetup.errors import VerifyFailedError
from gpusetup.report import history
from gpusetup.report.verification import verification_report
from gpusetup.verify import fleet, probe
from gpusetup.verify.probe import Ask, Observed, deadline
from gpusetup_fleet.cli import verify_quarantine
from gpusetup_fleet.health import schedulers, service
from gpusetup_fleet.health.schedulers import condition_patch
from tests.stored import stored_rows
from tests.unit.verify.verify_documents import FIXTURES, captured, set_smi, smi_says

NOW = datetime.now(timezone.utc)
SLURM = ("--quarantine", "slurm", "--return-after", "2")


@pytest.fixture
def node(machine):
    """A machine that is a node of Slurm's."""
    machine.slurm()
    return machine


def test_slurm_gets_a_drain_with_our_reason_and_its_end(machine, node, printed, says):
    assert machine.look(False, *SLURM) == ""
    assert "n1 failed 1 of 2 verifications in a row: gpu.recovery" in machine.look(True, *SLURM)
    assert machine.node() == ("IDLE", "")
    assert "n1 leaves service: gpu.recovery" in machine.look(True, *SLURM)
    state, reason = machine.node()
    assert state == "IDLE+DRAIN"
    assert reason.startswith("gpusetup-health: gpu.recovery: ")
    updates = machine.calls("scontrol update")
    assert "stays out of service" in machine.look(True, *SLURM)
    assert updates == machine.calls("scontrol update"), "said once"
    assert "n1 passed 1 of 2 verifications in a row" in machine.look(False, *SLURM)
    assert "returns to service" in machine.look(False, *SLURM)
    assert machine.node() == ("IDLE", "")
    out = says(0, "fleet", "history")
    assert "left service: gpu.recovery" in out
    assert "returned to service" in out
    assert "slurm: left service: gpu.recovery" in says(0, "fleet", "history", "--format", "html")
    assert [one["event"] for one in printed(0, "fleet", "history")["service"]] == ["left", "returned"]


def test_a_machine_that_its_cloud_is_about_to_stop_is_neither_good_nor_bad(machine, node):
    event = {"what": "Redeploy", "at": ""}
    machine.bad["facts"]["virtualisation"] = {"events": [event]}
    assert "counts for nothing: the cloud announces Redeploy at any moment" in machine.look(True, *SLURM)
    (host,) = verification_report({"n1": machine.bad}, level="quick", started=NOW, seconds=1).hosts
    assert ("cloud", "announces Redeploy at any moment") in [(row.label, row.text) for row in host.rows]
    assert [one.blame for one in host.results if one.verdict == "fail"] == ["host"]
    event["at"] = "Fri, 21 Jan 2050 09:00:43 GMT"
    assert "1 of 2 verifications in a row" in machine.look(True, *SLURM)


@pytest.mark.parametrize("reason", ["bad fan", "gpusetup"])
def test_what_somebody_else_drained_stays_so(machine, node, reason):
    """An administrator, or an apply of our own."""
    machine.drained(reason)
    assert f"someone else drained it: {reason}" in machine.looks(3, True, *SLURM)
    machine.looks(3, False, *SLURM)
    assert machine.node() == ("IDLE+DRAIN", reason)
    assert service.events(history.file_of("localhost", os.environ, here=True)) == ()


def test_a_drain_that_somebody_took_over_is_theirs(machine, node):
    machine.looks(2, True, *SLURM)
    machine.drained("board ordered")
    assert "by hand; counting starts" in machine.look(False, *SLURM)
    machine.looks(2, False, *SLURM)
    assert machine.node() == ("IDLE+DRAIN", "board ordered")


def test_a_machine_that_somebody_returned_is_counted_anew_without_its_old_kernel_log(machine, node):
    machine.bad = captured("h200-x1-quick")
    line = "2026-11-23T10:00:00+00:00 h kernel: NVRM: Xid (PCI:0000:04:00): 79, pid=1, GPU has fallen off the bus."
    machine.bad["quick"]["kernel_log"] = {"source": "journalctl", "lines": [line], "error": None}
    machine.looks(2, True, *SLURM)
    assert machine.node()[1].startswith("gpusetup-health: kernel.xid: ")
    machine.drained("")
    (machine.folder / "state").write_text("IDLE")
    assert "by hand; counting starts" in machine.look(True, *SLURM)
    machine.observed = Observed(machine.bad)
    assert main(["fleet", "health", *SLURM]) == 0, "what was in the log before counts no more"
    assert machine.node() == ("IDLE", "")


def test_a_history_that_was_lost_is_read_off_our_mark(machine, node):
    machine.drained("gpusetup-health: gpu.ecc: x")
    assert "still out of service: gpu.ecc: x" in machine.look(False, *SLURM)
    machine.look(False, *SLURM)
    assert machine.node() == ("IDLE", "")


def test_a_prolog_refuses_and_the_health_program_tells_why(machine, node):
    job = ["fleet", "health", "--quarantine", "slurm-job"]
    assert main(job) == 0
    machine.observed = Observed(machine.bad)
    assert main(job) == 8
    assert machine.calls("scontrol") == [], "Slurm asks for it: no command of Slurm's in a prolog"
    machine.drained("Prolog error")
    machine.look(True, *SLURM)
    assert machine.node()[1].startswith("gpusetup-health: gpu.recovery: ")
    machine.looks(2, False, *SLURM)
    assert machine.node() == ("IDLE", "")
    machine.drained("Prolog error")
    machine.look(False, *SLURM)
    assert machine.node() == ("IDLE+DRAIN", "Prolog error"), "somebody else's prolog"


def test_around_a_job_one_bad_look_is_repeated_and_a_host_that_changes_is_let_be(machine, monkeypatch):
    answers = [Observed(machine.bad), Observed(machine.good)]
    monkeypatch.setattr(probe, "observe_in_turn", lambda *_: answers.pop(0))
    assert main(["fleet", "health", "--quarantine", "slurm-job"]) == 0
    busy = Observed(None, "verify-7 on n1 changes it", postponed=True)
    answers = [busy, busy, Observed(machine.bad), Observed(machine.good)]
    assert main(["fleet", "health", "--quarantine", "slurm-job"]) == 0
    assert answers == [], "it waited for the other verification"
    answers = [busy] * 11
    assert main(["fleet", "health", "--quarantine", "slurm-job"]) == 0
    path = history.file_of("localhost", os.environ, here=True)
    assert service.events(path) == ()
    service.note(service.Kept(path, "slurm"), "left", "gpu.ecc", 1.0)
    monkeypatch.setenv("SLURM_SCRIPT_CONTEXT", "epilog_slurmd")
    answers = [Observed(machine.bad)] * 2
    assert main(["fleet", "health", "--quarantine", "slurm-job"]) == 0, "it is out of service already"


def test_kubernetes_gets_a_taint_and_a_condition(machine):
    machine.kubernetes()
    words = ("--quarantine", "kubernetes", "--return-after", "1", "--node", "gpu-a")
    machine.look(False, *words)
    (condition,) = json.loads((machine.folder / "patch.json").read_text())["status"]["conditions"]
    assert condition["status"] == "False"
    assert "lastTransitionTime" not in condition, "it never changed"
    machine.looks(2, True, *words)
    assert "gpusetup/gpu-unhealthy" in (machine.folder / "node.json").read_text()
    patch = json.loads((machine.folder / "patch.json").read_text())
    (condition,) = patch["status"]["conditions"]
    assert (condition["status"], condition["type"]) == ("True", "GpuUnhealthy")
    valid(patch, "Patch")
    machine.look(False, *words)
    assert json.loads((machine.folder / "node.json").read_text()) == {"spec": {}}
    asked = machine.calls("kubectl")
    assert "kubectl taint node gpu-a gpusetup/gpu-unhealthy:NoSchedule-" in asked
    assert not any("cordon" in call for call in asked)


def valid(document, name):
    fields = json.loads((FIXTURES / "kubernetes/fields.json").read_text())
    schema = {"$defs": fields["$defs"], "$ref": f"#/$defs/{name}"}
    jsonschema.validate(document, schema, format_checker=jsonschema.FormatChecker())


def test_what_kubernetes_is_given_has_the_fields_of_its_api():
    files = schedulers.hook_files("kubernetes", ())
    items = json.loads(files["kubernetes.json"])["items"]
    assert [item["kind"] for item in items] == ["ServiceAccount", "ClusterRole", "ClusterRoleBinding"]
    for item in items:
        valid(item, item["kind"])
    for name in ("kubernetes-healthy.json", "kubernetes-unhealthy.json"):
        valid(json.loads(files[name]), "Patch")
    with pytest.raises(jsonschema.ValidationError):
        valid({"status": {"conditions": [{"type": "GpuUnhealthy", "state": "True"}]}}, "Patch")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_kubectl_merges_the_condition_with_the_node_s_others(tmp_path):
    """The real kubectl, without a server: strategic merge by the key that Kubernetes' own types have."""
    ready, old = {"type": "Ready", "status": "True"}, condition_patch("", "", "2026-01-01T00:00:00Z")
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {}}
    node["status"] = {"conditions": [ready, *old["status"]["conditions"]]}
    (tmp_path / "node.json").write_text(json.dumps(node))
    patch = json.dumps(condition_patch("gpu.ecc: x", "2026-01-02T00:00:00Z", "2026-01-02T00:00:00Z"))
    command = ["kubectl", "patch", "--local", "-f", str(tmp_path / "node.json"), "--type=strategic", "-o", "json"]
    done = subprocess.run([*command, f"--patch={patch}"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    merged = {one["type"]: one["status"] for one in json.loads(done.stdout)["status"]["conditions"]}
    assert merged == {"Ready": "True", "GpuUnhealthy": "True"}


def test_commands_of_one_s_own_run_once_without_a_shell(machine):
    take, give = machine.program("take"), machine.program("give")
    words = ("--on-bad", f"{take} {{node}} '{{reason}}; touch planted'", "--on-good", f"{give} {{node}}",
             "--leave-after", "1", "--return-after", "1")  # fmt: skip
    machine.look(False, *words)
    assert machine.calls("give") == [], "it never left"
    machine.looks(3, True, *words)
    (call,) = machine.calls("take")
    assert call.startswith("take n1 gpu.recovery: ")
    assert call.endswith("; touch planted")
    machine.looks(2, False, *words)
    assert machine.calls("give") == ["give n1"]
    assert not (machine.folder / "planted").exists()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("echo no such node >&2; exit 3", "exit 3: no such node"), ("sleep 30", "it was ended after 0.3 s"),
        (None, "cannot start"),
    ],
)  # fmt: skip
def test_a_command_that_fails_is_said_and_runs_again(machine, monkeypatch, body, said):
    take, give = machine.program("take", body or ""), machine.program("give")
    take.chmod(0o755 if body else 0o644)
    words = ("--on-bad", str(take), "--on-good", str(give), "--leave-after", "1", "--return-after", "1")
    monkeypatch.setattr(verify_quarantine, "_COMMAND_SECONDS", 0.3 if body == "sleep 30" else 60.0)
    told = machine.look(True, *words)
    monkeypatch.setattr(verify_quarantine, "_COMMAND_SECONDS", 60.0)
    assert said in told
    assert "it runs again after the next verification" in told
    machine.program("take")
    assert "failed" not in machine.look(True, *words)
    assert machine.calls("take")
    machine.look(False, *words)
    assert len(machine.calls("give")) == 1


@pytest.mark.parametrize(
    ("body", "said"),
    [("echo 'Unable to contact slurm controller' >&2; exit 1", "Unable to contact"), (None, "scontrol")],
)
def test_a_scheduler_that_is_away_changes_no_verdict(machine, body, said):
    if body is not None:
        machine.program("scontrol", body)
    for _ in range(3):
        told = machine.look(True, *SLURM)
        assert "nothing was done about its health" in told
        assert said in told
    machine.look(False, *SLURM)


def test_a_driver_that_hangs_every_program_is_bad(machine, node, monkeypatch):
    hangs = VerifyFailedError("GS-502", "the probe on this machine gave no answer: it was stopped after 30 s")
    monkeypatch.setattr(probe, "observe_in_turn", Mock(side_effect=hangs))
    for _ in range(2):
        assert main(["fleet", "health", *SLURM]) == 8
    assert "the probe on this machine gave no answer" in machine.node()[1]
    assert deadline(Ask(level="quick", longest=30.0)) == 30.0 < deadline(Ask(level="quick"))
    assert deadline(Ask(level="full", longest=30.0)) > 1000, "measuring takes its time"


def test_a_fault_of_gpusetup_is_neither_good_nor_bad(machine, node, monkeypatch):
    machine.looks(2, True, *SLURM)
    at = machine.node()
    odd = captured("h200-x1-quick")
    odd["quick"]["kernel_log"]["lines"] = [7]
    for document in (odd, {**odd, "sections": 7}):
        machine.observed = Observed(document)
        for words, answer in ((SLURM, 1), (("--quarantine", "slurm-job"), 0)):
            for _ in range(3):
                assert main(["fleet", "health", *words]) == answer
                assert "a fault of gpusetup" in machine.capsys.readouterr().err
    monkeypatch.setattr(probe, "probe_argv", lambda: ["/bin/false"])
    monkeypatch.setattr(probe, "observe_in_turn", lambda ask, _: Observed(probe.observe_here(ask, os.environ)))
    assert main(["fleet", "health", *SLURM]) == 1, "a probe that ends without an answer"
    assert machine.node() == at


def test_checks_that_are_ignored_take_nothing_out(machine, node):
    for _ in range(3):
        assert machine.look(True, *SLURM, "--ignore", "gpu.recovery,gpu.ecc") == ""
    assert machine.node() == ("IDLE", "")


def test_a_machine_without_gpus_is_bad_where_some_are_expected_and_never_good(machine, node):
    gone = captured("h200-x1-quick")
    smi_says(gone, "No devices were found", 6)
    gone["facts"]["gpus"] = []
    gone["quick"]["proc_gpus"] = {}
    machine.looks(2, True, *SLURM)
    machine.observed = Observed(gone)
    for _ in range(3):
        assert main(["fleet", "health", *SLURM]) == 0
    assert "--gpus N says how many" in machine.capsys.readouterr().err
    assert machine.node()[0] == "IDLE+DRAIN", "it does not return without its GPU"
    assert main(["fleet", "health", *SLURM, "--gpus", "1"]) == 8


def test_what_every_level_sees_any_level_finds_good(machine, node, says):
    full, quick = captured("h200-x1-full"), machine.good
    set_smi(full, 0, "gpu_recovery_action", "Reset")
    machine.observed = Observed(full)
    says(8, "fleet", "health", *SLURM, "--level", "full", "--leave-after", "1")
    assert machine.node()[0] == "IDLE+DRAIN"
    machine.observed = Observed(quick)
    machine.looks(2, False, *SLURM)
    assert machine.node()[0] == "IDLE"


def test_commands_beside_a_scheduler_count_for_themselves(machine, node):
    take = machine.program("take")
    machine.looks(2, True, *SLURM)
    words = ("--on-bad", f"{take} {{node}}")
    machine.look(True, *words)
    assert machine.calls("take") == []
    machine.look(True, *words)
    assert machine.calls("take") == ["take n1"]


def test_a_host_that_changes_is_neither_good_nor_bad(machine, node, says):
    machine.look(True, *SLURM)
    machine.observed = Observed(None, "ann on desk changes it", postponed=True)
    for _ in range(3):
        says(9, "fleet", "health", *SLURM)
    machine.look(True, *SLURM)
    assert machine.node()[0] == "IDLE+DRAIN", "what was counted before goes on"


def test_each_host_of_an_inventory_counts_and_one_that_is_away_does_not(machine, tmp_path, monkeypatch, says):
    fleet_of = {"gpu01": Observed(machine.good), "gpu02": Observed(machine.bad)}
    fleet_of["gpu03"] = Observed(None, "no route to host", unreachable=True)
    monkeypatch.setattr(session, "open_session", lambda _: None)
    monkeypatch.setattr(fleet, "observe_fleet", lambda *_: fleet_of)
    (tmp_path / "inventory.ini").write_text("gpu0[1:3]\n")
    words = ["fleet", "health", str(tmp_path / "inventory.ini"), "--on-bad", f"{machine.program('take')} {{node}}"]
    assert main(words) == 8
    assert machine.calls("take") == []
    main(words), main(words)
    assert machine.calls("take") == ["take gpu02"]
    assert "left service: gpu.recovery" in says(0, "fleet", "history", "gpu02")


@pytest.mark.parametrize(("words", "said"), stored_rows("refused-quarantine.json"))
def test_what_cannot_be_meant_is_refused(machine, words, said, says):
    assert said in says(3, "fleet", "health", *shlex.split(words))
