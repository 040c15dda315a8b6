"""What schedulers are told: the real kubectl against a small stand-in for an API server; Slurm's reasons as they come back."""

import json
import shutil
import subprocess
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace
from typing import Any

import pytest

from gpusetup.drive.schedulers import SchedulerError, parse_node
from gpusetup.model.verdict import Result
from gpusetup.report.model import HostReport
from gpusetup_fleet.cli import verify_quarantine
from gpusetup_fleet.health.schedulers import CONDITION, TAINT, Kubernetes, Seen, Slurm, hook_files, limit_of, plain
from tests.flaky import listening

VERBS = ["get", "list", "patch"]
NODES = {"name": "nodes", "singularName": "node", "namespaced": False, "kind": "Node", "verbs": VERBS}

ANSWERS: dict[str, Any] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList", "groupVersion": "v1",
        "resources": [NODES, {**NODES, "name": "nodes/status", "singularName": ""}],
    },
}  # fmt: skip
NODE = "/api/v1/nodes/gpu07"
OTHERS = [
    {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"taints": [{"key": key} for key in keys]},
        "status": {"capacity": {"nvidia.com/gpu": "8"} if name.startswith("gpu") else {}},
    }
    for name, keys in (("gpu01", [TAINT, "other"]), ("gpu02", ["other"]), ("gpu03", [TAINT]), ("cpu01", [TAINT]))
]  # fmt: skip
RULES = json.loads(hook_files("kubernetes", ())["kubernetes.json"])["items"][1]["rules"]


class Server(BaseHTTPRequestHandler):
    """One node, and only what the account of our manifest may do."""

    def do_GET(self):
        path = self.path.partition("?")[0]
        found = self.server.node if self._may("get") else ANSWERS.get(path)
        if path == "/api/v1/nodes" and "list" in RULES[0]["verbs"]:
            found = {"apiVersion": "v1", "kind": "NodeList", "items": [self.server.node, *OTHERS]}
        self._answer(200 if found else 403, found or {"kind": "Status", "apiVersion": "v1", "code": 403})

    def _may(self, verb):
        resource = {NODE: "nodes", f"{NODE}/status": "nodes/status"}.get(self.path.partition("?")[0])
        return any(resource in rule["resources"] and verb in rule["verbs"] for rule in RULES)

    def do_PATCH(self):
        path, node = self.path.partition("?")[0], self.server.node
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((path, self.headers["Content-Type"], body))
        if not self._may("patch"):
            self._answer(403, {"kind": "Status", "apiVersion": "v1", "code": 403})
            return
        if path.endswith("/status"):
            node["status"] = body["status"]
        else:
            node["spec"] = {key: value for key, value in body["spec"].items() if value}
        self._answer(200, node)

    def _answer(self, code, document):
        raw = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


@pytest.fixture
def api(tmp_path, monkeypatch):
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with listening(Server) as server:
        server.asked = []
        server.node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu07"}, "spec": {}, "status": {}}
        cluster = {"name": "c", "cluster": {"server": server.url}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        config = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context]}
        (tmp_path / "config").write_text(json.dumps(config | {"current-context": "c"}))
        yield server


def test_kubectl_asks_for_what_is_meant(api):
    place, day = Kubernetes(node="gpu07"), "2026-11-23T10:00:00Z"
    seen = place.seen()
    assert not seen.ours
    known = subprocess.run(["kubectl", "patch", "--help"], capture_output=True, text=True, check=True).stdout
    if "--subresource" not in known:
        # Before 1.24, as Debian 12 has it, kubectl cannot write a status: it is said, and nothing says that the node is well.
        with pytest.raises(SchedulerError, match="--subresource"):
            place.settle(seen, "gpu.ecc: 3 errors", day, day)
        assert "conditions" not in api.node["status"]
        return
    place.settle(seen, "gpu.ecc: 3 errors", day, day)
    assert api.node["spec"]["taints"] == [{"key": TAINT, "effect": "NoSchedule"}]
    (condition,) = api.node["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["message"]) == (CONDITION, "True", "gpu.ecc: 3 errors")
    assert [(path, kind) for path, kind, _ in api.asked] == [
        (NODE, "application/strategic-merge-patch+json"),
        (f"{NODE}/status", "application/strategic-merge-patch+json"),
    ]
    seen = place.seen()
    assert seen.ours
    place.settle(seen, "gpu.ecc: 3 errors", day, day)
    assert len(api.asked) == 3, "the taint is there; the condition is confirmed"
    place.give_back(seen)
    assert (place.seen().ours, api.node["status"]["conditions"][0]["status"]) == (False, "True")
    place.settle(place.seen(), "", day, day)
    assert not place.seen().ours
    assert api.node["status"]["conditions"][0]["status"] == "False"


def test_kubectl_counts_the_other_nodes_with_gpus_that_are_out(api):
    api.node["status"]["capacity"] = {"nvidia.com/gpu": "0"}
    api.node["spec"]["taints"] = [{"key": TAINT, "effect": "NoSchedule"}]
    assert Kubernetes(node="gpu07").others_out() == (2, 4)


def test_slurm_counts_the_other_nodes_with_gpus_that_are_out():
    marked = "State=IDLE+DRAIN Reason=gpusetup-health: gpu.ecc: 3 [root@2026-11-22T03:10:03]"
    rows = [f"NodeName=n{number} Gres=gpu:8 {marked}" for number in (1, 2, 7)]
    rows += ["NodeName=n3 Gres=gpu:8 State=IDLE+DRAIN Reason=disk", "NodeName=n4 Gres=gpu:8 State=IDLE"]
    rows += [f"NodeName=c1 Gres=(null) {marked}"]
    assert Slurm(node="n7", call=SimpleNamespace(output_of=lambda *_, **_more: "\n".join(rows))).others_out() == (2, 5)


@pytest.mark.parametrize(
    ("text", "machines", "most"), [("3", 900, 3), ("10%", 900, 90), ("10%", 19, 1), ("10%", 4, 1), ("100%", 7, 7)]
)
def test_how_many_may_be_out(text, machines, most):
    assert limit_of(text, machines) == most


class Fleet:
    """Twenty machines of which all turn bad at once; `late`: each counts before any of the others has left."""

    def __init__(self, late):
        self.out: set[int] = set()
        self.late = late

    def others(self, number):
        blind = self.late and number not in self.out
        return 0 if blind else len(self.out - {number}), 20

    def place(self, number):
        return SimpleNamespace(
            seen=lambda: Seen(ours=number in self.out),
            others_out=lambda: self.others(number),
            settle=lambda _seen, reason, *_: (self.out.add if reason else self.out.discard)(number),
            give_back=lambda _seen: self.out.discard(number),
        )


@pytest.mark.parametrize("late", [False, True])
def test_what_all_have_at_once_empties_no_fleet(late, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GPUSETUP_STATE", str(tmp_path))
    fleet = Fleet(late)
    monkeypatch.setattr(verify_quarantine, "_place", lambda _arguments, node: fleet.place(int(node)))
    asked = SimpleNamespace(
        quarantine="slurm", on_bad="", on_good="", node=None, inventory="hosts", ignore=None, forget=False,
        leave_after=1, return_after=1, most_out="10%",
    )  # fmt: skip

    def look(verdict):
        results = (Result(verdict=verdict, id="driver.loaded", text="no driver", level="quick"),)
        hosts = [HostReport(name=str(number), level="quick", results=results) for number in range(20)]
        verify_quarantine.act(asked, SimpleNamespace(hosts=hosts, level="quick"))

    look("fail")
    assert len(fleet.out) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("leaves service") == 2
    assert said.count("stays in service: 2 of 20 are out already (--most-out 10%)") == 18
    look("fail")
    assert len(fleet.out) == 2
    look("pass")
    assert not fleet.out


@pytest.mark.parametrize(
    "reason", ["x: a=b State=IDLE Reason=none", "34 °C  two\nlines", "y" * 500, "'; $(reboot) `id`"]
)
def test_a_reason_comes_back_from_slurm_as_it_went(reason):
    said: list[str] = []
    place = Slurm(node="n1", call=SimpleNamespace(output_of=lambda *words, **_: said.append(words[-1]) or ""))
    place.settle(place.seen(), reason, "", "")
    text = said[-1].removeprefix("Reason=")
    assert parse_node(f"NodeName=n1 State=IDLE+DRAIN {said[-1]} [root@2026-11-22T03:10:03]\n").reason == text
    assert len(text) < 230
    assert plain(plain(reason)) == plain(reason)
