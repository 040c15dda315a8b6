"""Packages above the frameworks and named environments: which test each has, how it is run, what is made of its answer."""

import copy
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpusetup.content import host_code
from gpusetup.drive.events import Track
from gpusetup.model.applied import SCHEMA, Applied
from gpusetup.model.request import PACKAGES
from gpusetup.model.stack import PackageChoice, Stack
from gpusetup.verify import fleet, probe
from gpusetup.verify.environments import asks
from gpusetup.verify.fleet import observe_fleet
from gpusetup.verify.machine import Wanted
from gpusetup.verify.probe import Ask, Observed
from tests.modules.stand_ins import write
from tests.unit.verify.verify_documents import ASKED, FILES, FIXTURES, broken, captured, results

TABLE = host_code("gpu_measure.package_table")
H100 = "h100-x1-packages"


def _with(package, answer):
    """The packages of a captured host, of which one answered like this."""
    return broken(H100, {f"sections/packages/{package}": answer})


def _kept(name):
    return json.loads((FIXTURES / f"packages/{name}-h100.json").read_text(encoding="utf-8"))


def _stack(**packages):
    return Wanted(Applied(stack=Stack(**{name: PackageChoice(version=version) for name, version in packages.items()})))


def test_every_package_has_a_test_or_a_reason_why_not():
    assert {smoke.package for smoke in TABLE.SMOKES} | set(TABLE.SAME) | set(TABLE.OTHERS) == set(PACKAGES)
    for smoke in TABLE.SMOKES:
        assert f"\ndef {smoke.function}(" in (FILES / f"{smoke.script}.py").read_text(encoding="utf-8"), smoke


def test_a_library_that_the_environment_lacks_is_named_and_a_step_that_was_built_at_first_use_passes():
    found = results(_with("ctranslate2", _kept("ctranslate2")), ASKED)["package.ctranslate2"]
    assert found.verdict == "fail"
    assert "Library libcublas.so.12 is not found" in found.text
    assert "install the wheel that brings it" in found.text
    found = results(_with("deepspeed", _kept("deepspeed")))
    assert found["package.deepspeed"].verdict == "pass"


def test_a_package_that_is_neither_there_nor_wanted_is_not_listed():
    document = captured("h200-x1-full")
    assert not [name for name in results(document) if name.startswith("package.")]
    found = results(document, _stack(vllm="0.33.0"))
    assert (found["package.vllm"].verdict, "package.sglang" in found) == ("fail", False)
    assert "is not installed in this Python; `gpusetup apply`" in found["package.vllm"].text


DRIVER = "int cuInit(unsigned f) { return 0; } int cuDeviceGetCount(int *n) { *n = 1; return 0; }"


def _smoke(folder, module, *, driver):
    """Run a package's test in a process of its own, with a stand-in for the package and for the driver's library."""
    site = folder / "site"
    site.mkdir(exist_ok=True)
    (site / "llama_cpp.py").write_text(module, encoding="utf-8")
    (site / "kernels.py").write_text("OURS = False", encoding="utf-8")
    if driver:
        (folder / "cuda.c").write_text(DRIVER, encoding="ascii")
        argv = ["cc", "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(folder / "cuda.c")]
        subprocess.run(argv, check=True)
    ran = subprocess.run(
        [sys.executable, str(FILES / "package_smoke.py"), "llama-cpp-python"],
        env={"PYTHONPATH": str(site), "LD_LIBRARY_PATH": str(folder)}, capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler makes the stand-in for the driver")
@pytest.mark.parametrize(
    ("module", "kind"),
    [
        ("import kernels\nassert not kernels.OURS\ndef llama_supports_gpu_offload(): return False\n", None),
        ("version = 2\n", "unknown-release"),  # reported and not failed
        ("import math\ndef llama_supports_gpu_offload(): return math.no_such_thing\n", "failed"),
    ],
    ids=["own-modules-first", "release", "name"],
)
def test_what_a_package_does_in_its_own_process(tmp_path, module, kind):
    (gpu,) = _smoke(tmp_path, module, driver=True)["gpus"]
    ran = [(one["ran_on"], one["error"]) for one in gpu["operations"]]
    assert (gpu.get("kind"), ran) == (kind, [] if kind else [("cpu", 1.0)])


def test_a_package_that_cannot_be_imported_and_a_machine_without_a_driver_are_answers(tmp_path):
    broken = _smoke(tmp_path, "raise ImportError('libcudart.so.12: cannot open shared object file')", driver=False)
    assert broken["error"] == "import"
    alone = _smoke(tmp_path, "", driver=False)
    assert (alone["devices"], "libcuda.so.1" in alone["why_not"]) == (0, True)


class _Member:
    def __init__(self, index, *, busy=False):
        self.gpu, self.key, self.busy, self.part = {"index": index}, str(index), busy, None


ANSWER = (
    'echo "$2 $CUDA_VISIBLE_DEVICES" >> "$0.log"; '
    'echo "{\\"devices\\": 1, \\"gpus\\": [{\\"index\\": 0, \\"operations\\": []}]}"'
)


@pytest.fixture
def tried(probe, tmp_path):
    """Try these packages of an environment whose interpreter is a script; return the answers, and what ran."""

    def run(names, members, request, script=ANSWER):
        for name in names:
            folder = tmp_path / f"env/lib/python3.12/site-packages/{name}-1.0.dist-info"
            folder.mkdir(parents=True, exist_ok=True)
        write(tmp_path / "env/bin", {"python": f"#!/bin/sh\n{script}\n"}, 0o755)
        python = str(tmp_path / "env/bin/python")
        packages = probe.packages.Packages(python, request, str(tmp_path), members)
        packages.start()
        answers, log = packages.finish(), Path(f"{python}.log")
        return answers, log.read_text(encoding="utf-8").splitlines() if log.exists() else []

    return run


def test_an_engine_has_each_gpu_in_a_process_and_leaves_a_busy_one_alone(tried):
    members = [_Member(0), _Member(1, busy=True), _Member(2)]
    answers, ran = tried(["vllm"], members, {"level": "full"})
    assert [gpu["index"] for gpu in answers["vllm"]["gpus"]] == ["0", "2"]
    assert sorted(ran) == ["vllm 0", "vllm 2"]
    answers, _ = tried(["vllm"], [_Member(0, busy=True)], {})
    assert answers == {"vllm": {"skipped": "another job uses every GPU"}}


def test_a_process_that_hangs_is_killed_and_the_others_are_heard(probe, monkeypatch, tried):
    monkeypatch.setattr(probe.packages, "WHOLE", 2.0)
    answers, _ = tried(["peft", "torchvision"], [_Member(0)], {}, f'[ "$2" = peft ] && exec sleep 60; {ANSWER}')
    assert (answers["peft"]["error"], answers["torchvision"]["devices"]) == ("timeout", 1)


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


def test_an_environment_takes_what_is_left_of_the_budget():
    document = recorded() | {"seconds": 20.0}
    assert {ask.budget for ask in asks(Ask(level="smoke", budget=60), document).values()} == {40.0}


def test_the_command_looks_into_them_and_keeps_it_with_the_observations(tmp_path, monkeypatch, printed):
    asked: list[Ask] = []
    monkeypatch.setenv("GPUSETUP_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(probe, "observe_in_turn", lambda ask, _: looked(asked)(ask))
    kept = tmp_path / "seen.json"
    live = printed(8, "verify", "--observations", kept)["hosts"]["localhost"]
    assert [ask.python for ask in asked] == [None, "/opt/gpusetup-serve/bin/python", "/opt/gpusetup-train/bin/python"]
    again = printed(8, "verify", "--from", kept)["hosts"]["localhost"]
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
        return SimpleNamespace(track=track)

    monkeypatch.setattr(fleet, "run_playbook", run)
    found = observe_fleet(session, SMOKE)
    assert overlays == [{"one": f"/opt/gpusetup-{name}/bin/python"} for name in ("serve", "train")]
    assert set(found["one"].document["environments"]) == {"serve", "train"}
    assert "environments" not in found["two"].document
