"""Named environments in `gpusetup verify`: each is looked into by its own Python, and told with its name."""

import copy
import json
from types import SimpleNamespace
from typing import Any

import pytest

from gpusetup.cli.main import main
from gpusetup.drive.events import Track
from gpusetup.model.applied import SCHEMA
from gpusetup.report.verification import host_report
from gpusetup.verify import fleet, probe
from gpusetup.verify.environments import asks, look_into
from gpusetup.verify.fleet import observe_fleet
from gpusetup.verify.machine import Machine
from gpusetup.verify.probe import Ask, Observed
from tests.unit.verify.verify_documents import captured

SMOKE = Ask(level="smoke")
STACK = {"torch": {"version": "2.11.0", "variant": "cu130", "cuda": "13.0", "relation": "native", "index_url": ""}}
NAMED = [
    {"name": name, "path": f"/opt/gpusetup-{name}", "stack": STACK | stack, "requirements": []}
    for name, stack in (("serve", {"vllm": {"version": "0.20.2"}}), ("train", {"torchao": {"version": "0.99.0"}}))
]


def recorded(name: str = "h100-x1-packages") -> dict[str, Any]:
    """A document of a host whose record has two environments."""
    document = captured(name)
    wanted = {"packages": None, "manage_driver": False, "requirements": [], "adopted": [], "services": []}
    lock = {"schema": SCHEMA, "key": "k", "stack": STACK, "wanted": wanted | {"environments": NAMED}}
    document["facts"]["state"] = {"schema": "gpusetup/state/1", "lock": lock}
    return document


def looked(asked: list[Ask]) -> Any:
    """Stand in for the probe: keep the question, answer with a document of the host itself."""

    def look(ask: Ask) -> Observed:
        asked.append(ask)
        return Observed(recorded())

    return look


def test_each_environment_is_asked_by_its_own_python_and_told_by_its_name():
    document, asked = recorded(), []
    look_into(Ask(level="full"), document, looked(asked))
    pythons = [f"/opt/gpusetup-{name}/bin/python" for name in ("serve", "train")]
    assert [(ask.level, ask.python) for ask in asked] == [("smoke", python) for python in pythons]
    found = {result.id: result for result in host_report("a", Machine(document)).results}
    assert found["package.torchao@serve"].verdict == "pass"
    assert found["package.torchvision@train"].text.startswith("environment train: ")
    wrong = found["package.torchao@train"]
    assert (wrong.verdict, "the lock says 0.99.0" in wrong.text) == ("fail", True)
    assert "package.vllm@serve" in found
    assert not [name for name in found if "@" in name and name.partition(".")[0] in ("gpu", "driver", "cuda")]


@pytest.mark.parametrize(
    ("ask", "about"),
    [
        (Ask(level="quick"), {}),
        (Ask(level="smoke", python="/usr/bin/python3"), {}),
        (SMOKE, {"gpus": []}),
        (SMOKE, {"left_alone": ["GPU 0: train.py (1)"]}),
        (Ask(level="smoke", budget=60), {"seconds": 55.0}),
    ],
)
def test_none_is_asked_where_nothing_could_be_measured(ask, about):
    assert asks(SMOKE, recorded())
    assert asks(ask, recorded() | about) == {}
    assert asks(SMOKE, captured("h100-x1-packages")) == {}, "a host without named environments"


def test_an_environment_takes_what_is_left_of_the_budget():
    document = recorded() | {"seconds": 20.0}
    assert {ask.budget for ask in asks(Ask(level="smoke", budget=60), document).values()} == {40.0}


@pytest.mark.parametrize(
    ("about", "verdict"), [({}, "fail"), ({"postponed": True}, "skip"), ({"unreachable": True}, "skip")]
)
def test_an_environment_that_gives_no_answer_fails_and_one_that_could_not_be_looked_into_does_not(about, verdict):
    document, why = recorded(), "the probe on this machine gave no answer"
    look_into(SMOKE, document, lambda _: Observed(None, why, **about))
    (found,) = [one for one in host_report("a", Machine(document)).results if one.id == "python.environment@serve"]
    assert (found.verdict, why in found.text) == (verdict, True), found.text


def test_the_command_looks_into_them_and_keeps_it_with_the_observations(tmp_path, monkeypatch, capsys):
    asked: list[Ask] = []
    monkeypatch.setenv("GPUSETUP_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(probe, "observe_in_turn", lambda ask, _: looked(asked)(ask))
    kept = tmp_path / "seen.json"
    main(["verify", "--format", "json", "--observations", str(kept)])
    live = json.loads(capsys.readouterr().out)["hosts"]["localhost"]
    assert [ask.python for ask in asked] == [None, "/opt/gpusetup-serve/bin/python", "/opt/gpusetup-train/bin/python"]
    main(["verify", "--format", "json", "--from", str(kept)])
    again = json.loads(capsys.readouterr().out)["hosts"]["localhost"]
    assert {item["id"] for item in live} == {item["id"] for item in again} >= {"package.torchao@serve"}


def test_hosts_of_a_fleet_are_asked_only_for_what_they_have(session, monkeypatch):
    documents = {"one": recorded(), "two": captured("h100-x1-packages")}
    overlays: list[dict[str, str]] = []

    def run(_session: Any, _name: str, *, overlay: Any = None, **_more: Any) -> Any:
        track, names = Track(), list(documents)
        if overlay is not None:
            told = {path.parent.name: json.loads(path.read_text()) for path in overlay.glob("host_vars/*/plan.json")}
            overlays.append({host: values["gpu_verify_python"] for host, values in told.items()})
            names = list(told)
        for host in names:
            track.host(host).data["gpu_verify"] = {"observations": copy.deepcopy(documents[host])}
        return SimpleNamespace(track=track, interrupted=False)

    monkeypatch.setattr(fleet, "run_playbook", run)
    found = observe_fleet(session, SMOKE)
    assert overlays == [{"one": f"/opt/gpusetup-{name}/bin/python"} for name in ("serve", "train")]
    assert set(found["one"].document["environments"]) == {"serve", "train"}
    assert "environments" not in found["two"].document
