"""Exchanging the loaded module: what does not come out stops it, and what came out already goes back in."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import kernel_module


class Machine:
    """A kernel with the whole driver in it."""

    def loaded(self) -> list[str]:
        return ["gdrdrv", "nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_uvm"]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Every command, while nvidia_uvm does not come out."""
    commands: list[list[str]] = []

    def output(argv: list[str], *_more: Any) -> tuple[int, str, str]:
        commands.append(argv)
        if argv[0] == "systemctl" and argv[1] == "is-active":
            return (0 if argv[-1] == "nvidia-persistenced" else 3), "", ""
        stuck = argv == ["rmmod", "nvidia_uvm"]
        return (1, "", "rmmod: ERROR: Module nvidia_uvm is in use") if stuck else (0, "", "")

    monkeypatch.setattr(kernel_module.process, "output", output)
    monkeypatch.setattr(kernel_module.process, "environment", dict)
    return commands


def test_what_came_out_goes_back_when_the_next_one_stays(said: list[list[str]]) -> None:
    told = kernel_module.Loader(Machine()).load()  # type: ignore[arg-type]
    assert told == "rmmod: ERROR: Module nvidia_uvm is in use"
    taken = [argv[1] for argv in said if argv[0] == "rmmod"]
    assert taken == ["nvidia_drm", "nvidia_modeset", "nvidia_uvm"]
    back = [argv[1] for argv in said if argv[0] == "modprobe"]
    assert {"nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm"} == set(back)
    assert back.index("nvidia-modeset") < back.index("nvidia-drm")
    units = [argv[1:] for argv in said if argv[0] == "systemctl" and argv[1] != "is-active"]
    assert units == [["stop", "nvidia-persistenced"], ["start", "nvidia-persistenced"]]
