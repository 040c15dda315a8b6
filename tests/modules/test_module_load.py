"""Exchanging the loaded module: what does not come out stops it, and what came out already goes back in."""

from types import SimpleNamespace

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import kernel_module

from tests.modules.stand_ins import replace

USERS = {
    "nvidia": ["nvidia_uvm", "nvidia_modeset"],
    "nvidia_modeset": ["nvidia_drm"],
    "nvidia_drm": [],
    "nvidia_uvm": [],
}


def load(**counts):
    """Exchange the module of a kernel with the whole driver in it."""
    users = {name: {"references": len(holders), "holders": holders} for name, holders in USERS.items()}
    machine = SimpleNamespace(loaded=lambda: sorted(users), module_users=lambda: {**users, **counts})
    return kernel_module.Loader(machine, None).load()


@pytest.fixture
def said(monkeypatch):
    """Every command; each does as it is told but those of `stuck`, and all of the driver's services run."""
    commands, stuck = [], {}

    def output(argv, *_more):
        commands.append(argv)
        return stuck.get(" ".join(argv), (0, "", ""))

    replace(monkeypatch, kernel_module.process, output=output, environment=dict)
    replace(monkeypatch, kernel_module.time, sleep=lambda _seconds: None)
    return lambda **answers: stuck.update(answers) or commands


@pytest.fixture
def willing(said):
    return said()


def test_what_came_out_goes_back_when_the_next_one_stays(said):
    commands = said(**{"rmmod nvidia_uvm": (1, "", "rmmod: ERROR: Module nvidia_uvm is in use")})
    assert load() == "rmmod: ERROR: Module nvidia_uvm is in use"
    done = {verb: [argv[1] for argv in commands if argv[0] == verb] for verb in ("rmmod", "modprobe")}
    assert done["rmmod"] == ["nvidia_drm", "nvidia_modeset", "nvidia_uvm"]
    assert {"nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm"} == set(done["modprobe"])
    assert done["modprobe"].index("nvidia-modeset") < done["modprobe"].index("nvidia-drm")
    units = [argv[1:] for argv in commands if argv[0] == "systemctl" and argv[1] != "is-active"]
    stopped = [unit for verb, unit in units if verb == "stop"]
    assert stopped
    assert [unit for verb, unit in units if verb == "start"] == stopped[::-1]


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ({"nvidia_uvm": {"references": 2, "holders": []}}, "nvidia_uvm is used 2 times"),
        ({"nvidia_drm": {"references": 1, "holders": []}}, "nvidia_drm is in use"),
        ({"nvidia": {"references": 3, "holders": ["nvidia_uvm", "nvidia_modeset", "gdrdrv"]}}, "the module gdrdrv"),
    ],
)
def test_what_no_list_of_programs_shows_is_seen_in_the_counts_and_nothing_is_unloaded(willing, counts, told):
    assert told in load(**counts)
    assert not [argv for argv in willing if argv[0] in {"rmmod", "modprobe"}]
    started = [argv[-1] for argv in willing if argv[:2] == ["systemctl", "start"]]
    assert started[-1] == "gpusetup-gpu-textfile.timer", "what was stopped for it runs again"
