"""What `export handover awx` writes: the questions of its surveys are the options of gpusetup's own commands."""

from __future__ import annotations

import argparse
from importlib import import_module

from gpusetup.handover.awx import awx_files
from gpusetup.handover.awx_survey import Option, survey

__all__ = ["files"]

_OPTIONS = {
    "gpu_batch": ("apply", "batch"),
    "gpu_max_fail": ("apply", "max_fail"),
    "gpu_max_fail_domain": ("apply", "max_fail_domain"),
    "gpu_verify": ("apply", "verify"),
    "gpu_level": ("verify", "level"),
    "gpu_count": ("verify", "gpus"),
}
"""The variable of `playbooks/front_end.yml` that stands for an option, and whose option it is."""
_ASKED = {
    "plan": (),
    "apply": ("gpu_batch", "gpu_max_fail", "gpu_max_fail_domain", "gpu_verify"),
    "verify": ("gpu_level", "gpu_count"),
    "rollback": ("gpu_batch", "gpu_max_fail", "gpu_max_fail_domain"),
    "workflow": ("gpu_batch", "gpu_max_fail", "gpu_max_fail_domain", "gpu_level"),
}
_WISHES = frozenset({"plan", "apply", "workflow"})
"""Who also asks for versions."""


def files() -> dict[str, str]:
    """Return the files, by name."""
    surveys = {
        name: survey(map(_option, asked)) if name in _WISHES else survey(map(_option, asked), ())
        for name, asked in _ASKED.items()
    }
    return awx_files(surveys)


def _option(variable: str) -> Option:
    """Return an option as its command declares it."""
    command, name = _OPTIONS[variable]
    parser = argparse.ArgumentParser(add_help=False)
    import_module(f"gpusetup.cli.{command}").add_arguments(parser)
    action = next(action for action in parser._actions if action.dest == name)  # noqa: SLF001 - nothing else lists them
    return variable, (action.help or "") % vars(action), action.type, action.choices  # type: ignore[return-value]
