"""The Ansible module gpu_facts: as Ansible runs it, as a program, on old Pythons, and with a driver that hangs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gpusetup.content import collections_path, content_path, host_code
from gpusetup.model.diagnosis import Symptoms
from tests.lab.process import until
from tests.modules.stand_ins import write

MODULES = content_path() / "plugins/modules"
PROBE = content_path() / "plugins/module_utils/gpu_probe"
HOSTS = Path(__file__).parents[1] / "hosts"
CAPTURE = HOSTS / "ubuntu24.04-h200x8-keep/root"


def of_capture(python):
    """Return the facts of the captured host as another Python collects them."""
    words = "import json; from gpu_probe import facts, host; print(json.dumps(facts.collect(host.open_host({!r}))))"
    argv = [python, "-c", words.format(str(CAPTURE))]
    done = subprocess.run(argv, cwd=PROBE.parent, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def ansible(tmp_path):
    """Run the module through Ansible itself, on this machine; return its answer, and all that was said."""

    def call(*extra, code=0, **arguments):
        told = {
            "LOCALHOST_WARNING": "0",
            "INVENTORY_UNPARSED_WARNING": "0",
            "STDOUT_CALLBACK": "minimal",
            "NOCOLOR": "1",
        }
        told |= {"COLLECTIONS_PATH": str(collections_path()), "HOME": str(tmp_path / "ansible")}
        words = "-m ansible adhoc localhost -c local -m gpusetup.stack.gpu_facts"
        argv = [sys.executable, *words.split(), *extra, "-e", f"ansible_python_interpreter={sys.executable}"]
        argv += ["-a", json.dumps({"candidates": False, **arguments})]
        env = {**os.environ, **{f"ANSIBLE_{name}": value for name, value in told.items()}}
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, env=env, cwd=tmp_path, check=False)
        said = done.stdout + done.stderr
        assert bool(done.returncode) == bool(code), said
        _before, marker, text = done.stdout.partition("SUCCESS => ")
        return json.loads(text) if marker else {}, said

    return call


@pytest.mark.parametrize("check", [[], ["--check"]], ids=["normal", "check"])
def test_through_ansible(ansible, check, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "https://user:planted@host/")
    monkeypatch.setenv("HF_TOKEN", "planted")
    answer, said = ansible(*check, symptoms=not check)
    assert (answer["changed"], answer["facts"]["simulated"]) == (False, False)
    assert answer["facts"]["interpreter"]["path"] == sys.executable
    assert "capture" not in answer
    if not check:
        symptoms = msgspec.convert(answer["symptoms"], Symptoms)
        assert (symptoms.live, symptoms.environment["LD_LIBRARY_PATH"]) == (True, "https://(masked)@host/")
        assert "planted" not in said


def test_a_simulated_host_through_ansible(ansible, tmp_path):
    facts = ansible(simulated_root=str(CAPTURE))[0]["facts"]
    assert (facts["simulated"], len(facts["gpus"]), facts["virtualisation"]["driver_refused"]) == (True, 8, None)
    # The packages are this machine's own, not the captured one's.
    assert "nvidia-open-580" not in facts["packages"]["installed"]
    _answer, said = ansible(simulated_root=str(tmp_path / "nowhere"), code=2)
    assert "holds no captured machine" in said


def pythons():
    """The system's own Python, and those of old targets that are here."""
    found = ["/usr/bin/python3"]
    for version in ("3.6", "3.7", "3.8"):
        places = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
        path = shutil.which(f"python{version}") if not places else str(places[-1])
        if path and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:  # no mere shim
            found.append(path)
    return found


@pytest.mark.parametrize("python", pythons())
def test_pythons_of_targets_give_the_same_answer(python):
    sources = [*sorted(MODULES.glob("*.py")), *sorted(PROBE.parent.rglob("*.py"))]
    check = "import sys\nfor path in sys.argv[1:]: compile(open(path, encoding='utf-8').read(), path, 'exec')"
    compiled = subprocess.run([python, "-c", check, *map(str, sources)], stderr=subprocess.PIPE, text=True, check=False)
    assert compiled.returncode == 0, compiled.stderr
    host, facts = host_code("gpu_probe.host"), host_code("gpu_probe.facts")
    told = of_capture(python)
    assert len(told["gpus"]) == 8
    assert told == json.loads(json.dumps(facts.collect(host.open_host(str(CAPTURE)))))


def test_a_driver_that_hangs_does_not_hang_the_probe(tmp_path, monkeypatch):
    write(tmp_path, {"nvidia-smi": f"#!/bin/sh\necho $$ > {tmp_path}/pid\nsleep 300\n"}, 0o755)
    smi = host_code("gpu_probe.smi")
    monkeypatch.setattr(smi, "_PLACES", (f"{tmp_path}/nvidia-smi",))
    host = host_code("gpu_probe.host").LiveHost()
    told = smi.collect(host, True, seconds=1)
    assert (told["ok"], told["gpus"]) == (False, {})
    assert "no answer within 1 s" in told["why"]
    assert "no answer within 1 s" in host.unreadable["gpus.uuid"]
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not os.path.exists(f"/proc/{pid}"), "nvidia-smi ends", 20)


def test_a_broken_driver_leaves_the_rest_of_the_facts(tmp_path, monkeypatch):
    text = "#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'\nexit 18\n"
    write(tmp_path, {"nvidia-smi": text}, 0o755)
    host, facts = host_code("gpu_probe.host"), host_code("gpu_probe.facts")
    monkeypatch.setattr(host_code("gpu_probe.smi"), "_PLACES", (f"{tmp_path}/nvidia-smi",))
    monkeypatch.setattr(host_code("gpu_probe.modules"), "loaded", lambda _host: ["nvidia"])
    told = facts.collect(host.LiveHost(), with_candidates=False)
    assert told["smi"]["why"] == "Failed to initialize NVML: Driver/library version mismatch"
    assert told["os"]["id"] != "unknown"
