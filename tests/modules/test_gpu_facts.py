"""The facts of a host on old Pythons."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from gpusetup.content import content_path, host_code

CAPTURE = str(Path(__file__).parents[1] / "hosts/ubuntu24.04-h200x8-keep/root")


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
    words = "import json; from gpu_probe import facts, host; print(json.dumps(facts.collect(host.open_host({!r}))))"
    place = content_path() / "plugins/module_utils"
    told = json.loads(subprocess.check_output([python, "-c", words.format(CAPTURE)], cwd=place, timeout=60))
    assert len(told["gpus"]) == 8
    assert told == json.loads(json.dumps(facts.collect(host.open_host(CAPTURE))))
