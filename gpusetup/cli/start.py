"""What `gpusetup` alone says: what this machine is, what would fit it, and three things to try."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from gpusetup import __version__
from gpusetup.cli.output import write_answer
from gpusetup.errors import Exit, GpuSetupError, NoStackError
from gpusetup.matrix.load import matrix as load_matrix

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpusetup.matrix.load import Matrix
    from gpusetup.model.facts import HostFacts

__all__ = ["greet", "greeting"]

_WIDTH = 80
_WITH_GPU = (
    ("gpusetup plan", "what would change here; changes nothing"),
    ("gpusetup resolve torch --from facts.json", "a stack for hosts, from their facts"),
    ("gpusetup doctor 'CUDA error: …'", "from an error message to its cause and the fix"),
)
_WITHOUT_GPU = (
    ("gpusetup resolve torch --gpu h100", "one stack, and the lines that install it"),
    ("gpusetup matrix --driver 550.54", "what runs on a driver"),
    ("gpusetup doctor 'CUDA error: …'", "from an error message to its cause and the fix"),
)


def greet() -> Exit:
    """Look at this machine and print."""
    from gpusetup.facts.collect import this_machine
    from gpusetup.facts.products import matrix_lookup

    matrix = load_matrix()
    write_answer(greeting(this_machine(matrix_lookup(matrix), candidates=False), matrix), None)
    return Exit.DONE


def greeting(host: HostFacts, matrix: Matrix) -> str:
    """Return the whole text about a machine."""
    lines = [f"gpusetup {__version__}: one proven NVIDIA stack for these hosts", ""]
    lines += _field("this machine", f"{host.os.name}, {host.arch}; {_gpus(host)}; {_driver(host)}")
    if host.gpus:
        lines += _field("with torch", _stack(host, matrix))
    lines += ["", "try:", *_examples(_WITH_GPU if host.gpus else _WITHOUT_GPU)]
    lines += ["", "`gpusetup --help` lists all commands"]
    return "\n".join(lines) + "\n"


def _field(name: str, text: str) -> list[str]:
    return textwrap.wrap(f"{name + ':':<14}{text}", _WIDTH, subsequent_indent=" " * 14, break_on_hyphens=False)


def _examples(examples: Iterable[tuple[str, str]]) -> list[str]:
    return [line for command, purpose in examples for line in (f"  {command}", f"      {purpose}")]


def _gpus(host: HostFacts) -> str:
    names = [gpu.name or gpu.pci_id for gpu in host.gpus]
    counted = [f"{names.count(name)} x {name}" if names.count(name) > 1 else name for name in dict.fromkeys(names)]
    return ", ".join(counted) or "no NVIDIA GPU"


def _driver(host: HostFacts) -> str:
    return f"driver {host.driver.version}" if host.driver is not None and host.driver.version else "no driver"


def _stack(host: HostFacts, matrix: Matrix) -> str:
    from gpusetup.cli.plan_text import stack_line
    from gpusetup.cli.requests import about_host
    from gpusetup.model.request import Request, Requirement
    from gpusetup.resolve.api import resolve

    wish = Request(requirements=(Requirement(component="torch"),))
    try:
        return stack_line(resolve(about_host(host, wish, matrix), matrix).stack)
    except NoStackError as error:
        return " ".join(f"no stack fits: {error.note}".split())
    except GpuSetupError as error:
        return error.message
