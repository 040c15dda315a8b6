"""Exchanging the loaded module: what does not come out stops it, and what came out already goes back in."""

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import kernel_module


class Machine:
    """A kernel with the whole driver in it."""

    def loaded(self):
        return ["nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_uvm"]

    def module_users(self):
        return {
            "nvidia": {"references": 2, "holders": ["nvidia_uvm", "nvidia_modeset"]},
            "nvidia_modeset": {"references": 1, "holders": ["nvidia_drm"]},
            "nvidia_drm": {"references": 0, "holders": []},
            "nvidia_uvm": {"references": 0, "holders": []},
        }


class Kernel(Machine):
    """A kernel that lets the driver go and takes it again."""

    def __init__(self, **counts):
        self.counts = counts

    def module_users(self):
        return {**super().module_users(), **self.counts}


def loaded(machine):
    return kernel_module.Loader(machine, None).load()


@pytest.fixture
def said(monkeypatch):
    """Every command, while nvidia_uvm does not come out."""
    commands: list[list[str]] = []

    def output(argv, *_more):
        commands.append(argv)
        if argv[0] == "systemctl" and argv[1] == "is-active":
            return (0 if argv[-1] == "nvidia-persistenced.service" else 3), "", ""
        stuck = argv == ["rmmod", "nvidia_uvm"]
        return (1, "", "rmmod: ERROR: Module nvidia_uvm is in use") if stuck else (0, "", "")

    monkeypatch.setattr(kernel_module.process, "output", output)
    monkeypatch.setattr(kernel_module.process, "environment", dict)
    return commands


def test_what_came_out_goes_back_when_the_next_one_stays(said):
    told = loaded(Machine())
    assert told == "rmmod: ERROR: Module nvidia_uvm is in use"
    taken = [argv[1] for argv in said if argv[0] == "rmmod"]
    assert taken == ["nvidia_drm", "nvidia_modeset", "nvidia_uvm"]
    back = [argv[1] for argv in said if argv[0] == "modprobe"]
    assert {"nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm"} == set(back)
    assert back.index("nvidia-modeset") < back.index("nvidia-drm")
    units = [argv[1:] for argv in said if argv[0] == "systemctl" and argv[1] != "is-active"]
    assert units == [["stop", "nvidia-persistenced.service"], ["start", "nvidia-persistenced.service"]]


@pytest.fixture
def willing(monkeypatch):
    """Every command, while everything does as it is told; all of the driver's services run."""
    commands: list[list[str]] = []

    def output(argv, *_more):
        commands.append(argv)
        return (0, "", "")

    monkeypatch.setattr(kernel_module.process, "output", output)
    monkeypatch.setattr(kernel_module.process, "environment", dict)
    return commands


def test_the_order_in_which_all_goes_and_comes(willing):
    assert loaded(Kernel()) is None
    words = [" ".join(argv) for argv in willing if "is-active" not in argv]
    order = [
        "gpusetup-gpu-textfile.timer", "dcgm-exporter.service", "nvidia-dcgm-exporter.service", "nvidia-dcgm.service",
        "nvsm.service", "nvidia-persistenced.service", "nvidia-imex.service", "nvidia-fabricmanager.service",
    ]  # fmt: skip
    assert words == [
        *(f"systemctl stop {unit}" for unit in order),
        "rmmod nvidia_drm", "rmmod nvidia_modeset", "rmmod nvidia_uvm", "rmmod nvidia",
        "modprobe nvidia", "modprobe nvidia-uvm", "modprobe nvidia-modeset", "modprobe nvidia-drm",
        *(f"systemctl start {unit}" for unit in reversed(order)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ({"nvidia_uvm": {"references": 2, "holders": []}}, "nvidia_uvm is used 2 times"),
        ({"nvidia_drm": {"references": 1, "holders": []}}, "nvidia_drm is in use"),
        ({"nvidia": {"references": 3, "holders": ["nvidia_uvm", "nvidia_modeset", "gdrdrv"]}}, "the module gdrdrv"),
    ],
)
def test_what_no_list_of_programs_shows_is_seen_in_the_counts_and_nothing_is_unloaded(willing, counts, told):
    trouble = loaded(Kernel(**counts))
    assert trouble is not None
    assert told in trouble
    assert not [argv for argv in willing if argv[0] in {"rmmod", "modprobe"}]
    started = [argv[-1] for argv in willing if argv[:2] == ["systemctl", "start"]]
    assert started[-1] == "gpusetup-gpu-textfile.timer", "what was stopped for it runs again"


def test_a_service_that_does_not_start_again_is_told(monkeypatch):
    def output(argv, *_more):
        broken = argv[1:] == ["start", "nvidia-fabricmanager.service"]
        return (1, "", "Job failed") if broken else (0, "", "")

    monkeypatch.setattr(kernel_module.process, "output", output)
    monkeypatch.setattr(kernel_module.process, "environment", dict)
    trouble = loaded(Kernel())
    assert trouble == "nvidia-fabricmanager.service does not start again: Job failed"
