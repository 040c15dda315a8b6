"""The Ansible module gpu_facts: as Ansible runs it, on old Pythons, and with a broken driver."""

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
from tests.modules.stand_ins import write

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


def test_through_ansible(tmp_path, monkeypatch):
    """Run the module through Ansible itself, on this machine: no secret is in its answer, nor in what is said."""
    monkeypatch.setenv("LD_LIBRARY_PATH", "https://user:planted@host/")
    monkeypatch.setenv("HF_TOKEN", "planted")
    told = {"LOCALHOST_WARNING": "0", "INVENTORY_UNPARSED_WARNING": "0", "STDOUT_CALLBACK": "minimal", "NOCOLOR": "1"}
    told |= {"COLLECTIONS_PATH": str(collections_path()), "HOME": str(tmp_path / "ansible")}
    words = "-m ansible adhoc localhost -c local -m gpusetup.stack.gpu_facts"
    argv = [sys.executable, *words.split(), "-e", f"ansible_python_interpreter={sys.executable}"]
    argv += ["-a", json.dumps({"candidates": False, "symptoms": True})]
    env = {**os.environ, **{f"ANSIBLE_{name}": value for name, value in told.items()}}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, env=env, cwd=tmp_path, check=True)
    assert "planted" not in done.stdout + done.stderr
    answer = json.loads(done.stdout.partition("SUCCESS => ")[2])
    assert (answer["changed"], answer["facts"]["simulated"], "capture" in answer) == (False, False, False)
    assert answer["facts"]["interpreter"]["path"] == sys.executable
    symptoms = msgspec.convert(answer["symptoms"], Symptoms)
    assert (symptoms.live, symptoms.environment["LD_LIBRARY_PATH"]) == (True, "https://(masked)@host/")


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
    host, facts = host_code("gpu_probe.host"), host_code("gpu_probe.facts")
    told = of_capture(python)
    assert len(told["gpus"]) == 8
    assert told == json.loads(json.dumps(facts.collect(host.open_host(str(CAPTURE)))))


def test_a_broken_driver_leaves_the_rest_of_the_facts(tmp_path, monkeypatch):
    text = "#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'\nexit 18\n"
    write(tmp_path, {"nvidia-smi": text}, 0o755)
    host, facts = host_code("gpu_probe.host"), host_code("gpu_probe.facts")
    monkeypatch.setattr(host_code("gpu_probe.smi"), "_PLACES", (f"{tmp_path}/nvidia-smi",))
    monkeypatch.setattr(host_code("gpu_probe.modules"), "loaded", lambda _host: ["nvidia"])
    told = facts.collect(host.LiveHost(), with_candidates=False)
    assert told["smi"]["why"] == "Failed to initialize NVML: Driver/library version mismatch"
    assert told["os"]["id"] != "unknown"
