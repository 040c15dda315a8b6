"""Two named environments on a host over SSH: made, left alone, one changed, one that cannot be made, back, and gone."""

import json
import re

import pytest

from tests.lab.applying import gpusetup
from tests.lab.lifecycle import drift, host_of
from tests.modules.test_venv import wheel

WHEELS = "/srv/wheels"
SERVE, TRAIN = "/opt/gpusetup-serve", "/opt/gpusetup-train"


def stand_ins_for(folder, lines):
    """Empty wheels that fulfil the lines of a requirements file: pins, and limits that something must be below."""
    for line in lines:
        pin = re.fullmatch(r"([A-Za-z0-9._-]+)(?:\[.*\])?==(\S+)", line)
        limit = re.fullmatch(r"([A-Za-z0-9._-]+)<(\d+)\.(\d+)", line)
        if pin or limit:
            name, version = pin.groups() if pin else (limit[1], f"{limit[2]}.{int(limit[3]) - 1}.1")
            wheel(folder, name.replace("-", "_"), version)


def python_actions(told):
    return sorted(action["id"] for action in told["actions"] if action["kind"] == "python")


@pytest.mark.slow
def test_two_environments_from_their_making_to_their_end(lab):
    (host,) = lab.hosts(flavour="debian12", machine="t4")

    def inventory(**named):
        return lab.asking(host, gpusetup_environments=json.dumps(named))

    def run(command, where, *words):
        return gpusetup(lab.folder, command, where, *words, "--format", "json")

    def links():
        return {path: host.ssh("readlink", path).stdout.strip() for path in (SERVE, TRAIN)}

    both = inventory(serve=["torch==2.10.*"], train=["torch==2.7.*"])
    planned = host_of(run("plan", both))
    assert python_actions(planned) == ["python-environment-serve", "python-environment-train"], planned
    asked = {item["name"]: item["requirements"] for item in planned["variables"]["gpu_python_environments"]}
    wheels = host.path(WHEELS)
    wheels.mkdir(parents=True)
    for lines in asked.values():
        stand_ins_for(wheels, lines)
    host.path("/etc/pip.conf").write_text(f"[global]\nno-index = true\nfind-links = {WHEELS}\n")

    made = run("apply", both)
    assert made.code in {0, 9}, made.out + made.err
    first = links()
    assert all(first.values()), first
    listed = host.ssh(f"{SERVE}/bin/python", "-m", "pip", "list", "--format=freeze").stdout
    assert "torch==2.10." in listed
    assert "torch==2.7." in host.ssh(f"{TRAIN}/bin/python", "-m", "pip", "list", "--format=freeze").stdout
    lock = host.ssh("cat", f"{SERVE}/pylock.toml").stdout
    assert 'name = "torch"' in lock
    assert "sha256" in lock
    assert host.ssh("test", "-e", "/opt/gpusetup", check=False).returncode == 1, "nobody asked for the default one"

    again = run("apply", both)
    assert python_actions(host_of(run("plan", both))) == []
    assert host_of(again)["changed"] == 0, again.out
    assert links() == first

    moved = inventory(serve=["torch==2.10.*"], train=["torch==2.8.*"])
    changed = host_of(run("plan", moved))
    assert python_actions(changed) == ["python-environment-train"]
    broken = run("apply", moved)
    assert broken.code == 7, broken.out + broken.err
    assert "GS-486" in broken.out
    assert links() == first, "what cannot be made leaves the old one in use"

    train = next(item for item in changed["variables"]["gpu_python_environments"] if item["name"] == "train")
    stand_ins_for(wheels, train["requirements"])
    assert run("apply", moved).code in {0, 9}
    second = links()
    assert second[SERVE] == first[SERVE]
    assert second[TRAIN] != first[TRAIN]

    host.ssh("rm", "-r", f"{SERVE}/lib")
    _answer, found = drift(lab.folder, moved)
    assert found == {f"python:{SERVE}": "its packages were changed"}
    assert run("apply", moved).code in {0, 9}
    assert drift(lab.folder, moved)[1] == {}

    back = run("rollback", moved)
    assert back.code in {0, 9}, back.out + back.err
    assert links()[TRAIN] == first[TRAIN]

    alone = inventory(serve=["torch==2.10.*"])
    assert any(name.startswith("python-gone-") for name in python_actions(host_of(run("plan", alone))))
    assert run("apply", alone).code in {0, 9}
    assert host.ssh("test", "-e", TRAIN, check=False).returncode == 1
    assert host.ssh("test", "-e", SERVE, check=False).returncode == 0

    removed = run("remove", alone, "--yes")
    assert removed.code in {0, 9}, removed.out + removed.err
    assert host.ssh("ls", "-A", "/opt").stdout.split() == []
