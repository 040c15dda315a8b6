"""Write the files that let another engine work with these hosts; changes nothing.

`kubernetes` writes values for NVIDIA's GPU Operator, node labels and a RuntimeClass: driver, container toolkit and
MIG manager are off where the hosts have them. With --lock it also writes a NodeWright package and a DaemonSet that
bring nodes to the lock. `awx` writes an execution environment, a project, job templates and a workflow; AWX has its
own inventory. `slurm` writes gres.conf, lines of slurm.conf and a drop-in that lets slurmd wait for its GPUs.

examples:
  gpusetup export handover kubernetes inventory.ini --out handover/
  gpusetup export handover kubernetes --from facts.json --out handover/
  gpusetup export handover kubernetes --lock gpu.lock.json --out handover/
  gpusetup export handover awx --out awx-handover/
  gpusetup export handover slurm inventory.ini --out slurm-handover/
"""

import argparse
from importlib import import_module
from pathlib import Path

from gpusetup.cli import options, output
from gpusetup.cli.grammar import Parser
from gpusetup.errors import BadInputError, Exit, gravest
from gpusetup.model.facts import Facts, Failure
from gpusetup_fleet.handover.awx import Option, awx_files, survey
from gpusetup_fleet.model.fleet import HandoverFiles

ENGINES = ("awx", "kubernetes", "slurm")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("engine", choices=ENGINES, metavar="ENGINE", help=" or ".join(ENGINES))
    options.add_inventory(parser)
    parser.add_argument(
        "--from",
        dest="facts",
        metavar="FILE",
        help="facts of hosts instead, as `gpusetup facts --format json` wrote them",
    )
    parser.add_argument(
        "--lock", metavar="FILE", help="for kubernetes: also what brings nodes to this lock (NodeWright, DaemonSet)"
    )
    parser.add_argument("--out", metavar="DIR", required=True, help="folder to write to; created if it does not exist")
    options.add_format(parser)


def run(arguments: argparse.Namespace) -> Exit:
    """Collect or read the facts, and write the files."""
    write = {"awx": _awx, "kubernetes": _kubernetes, "slurm": _slurm}[arguments.engine]
    texts, twice, warnings, failures = write(arguments)
    command = f"gpusetup export handover {arguments.engine} --out handover"
    output.write_folder(arguments.out, texts, "GS-961", "hand-over", command)
    document = HandoverFiles(
        folder=str(Path(arguments.out)), files=tuple(sorted(texts)), twice=twice,
        warnings=(*warnings, *(f"{name}: {failure}" for name, failure in failures.items())),
    )  # fmt: skip
    output.answer(arguments.format, document, _text(document), None)
    return gravest([Exit(failure.exit) for failure in failures.values()])


_Written = tuple[dict[str, str], tuple[str, ...], tuple[str, ...], dict[str, Failure]]
"""Texts by file name, what would be done twice, warnings, and the hosts that gave no facts."""


def _awx(arguments: argparse.Namespace) -> _Written:
    if arguments.inventory or arguments.facts or arguments.lock:
        raise BadInputError(
            "GS-963", "handover awx takes neither hosts nor a lock: AWX has its own inventory", path="INVENTORY",
            hint="gpusetup export handover awx --out handover",
        )  # fmt: skip
    return files_for_awx(), (), (), {}


def _slurm(arguments: argparse.Namespace) -> _Written:
    from gpusetup_fleet.handover.slurm import slurm_files, slurm_warnings

    if arguments.lock:
        raise BadInputError("GS-965", "handover slurm takes no lock: it says what the hosts are", path="--lock")
    facts = _facts(arguments)
    return slurm_files(facts.hosts), (), slurm_warnings(facts.hosts), facts.failures


def _kubernetes(arguments: argparse.Namespace) -> _Written:
    from gpusetup_fleet.handover.kubernetes import handover, kubernetes_files

    nodes = _nodes(arguments.lock) if arguments.lock else {}
    if nodes and not (arguments.inventory or arguments.facts):
        return nodes, (), (), {}
    facts = _facts(arguments)
    found = handover(facts.hosts)
    return kubernetes_files(found) | nodes, found.twice, found.warnings, facts.failures


def _nodes(path: str) -> dict[str, str]:
    from gpusetup.bootstrap.userdata import instance_file
    from gpusetup.cli.lock import read_whole
    from gpusetup.plan.lock import read_lock
    from gpusetup_fleet.handover.kubernetes import node_files

    raw = read_whole(path)  # once: a pipe cannot be read again
    return node_files(read_lock(raw, path), raw.decode(), instance_file("first-stage"))


def _facts(arguments: argparse.Namespace) -> Facts:
    if arguments.facts and arguments.inventory:
        raise BadInputError(
            "GS-962", "handover takes either an inventory or saved facts (--from)", path="--from",
            hint=f"gpusetup export handover {arguments.engine} inventory.ini --out handover",
        )  # fmt: skip
    if arguments.facts:
        from gpusetup.facts.collect import read_facts

        return read_facts(Path(arguments.facts))
    from gpusetup.cli.session import facts_of_hosts

    return facts_of_hosts(arguments)


def _text(document: HandoverFiles) -> str:
    lines = [f"{document.folder}:", *(f"  {name}" for name in document.files)]
    if document.twice:
        lines += ["", "host and operator would both do:", *(f"  {text}" for text in document.twice)]
    return "\n".join([*lines, *(f"warning: {text}" for text in document.warnings)]) + "\n"


_OPTIONS = {
    "gpu_batch": ("apply", "batch"),
    "gpu_max_fail": ("apply", "max_fail"),
    "gpu_max_fail_domain": ("apply", "max_fail_domain"),
    "gpu_verify": ("apply", "verify"),
    "gpu_level": ("verify", "level"),
    "gpu_count": ("verify", "gpus"),
}
"""A variable of `playbooks/front_end.yml` → the command and the option that it sets."""
_ASKED = {
    "plan": (),
    "apply": ("gpu_batch", "gpu_max_fail", "gpu_max_fail_domain", "gpu_verify"),
    "verify": ("gpu_level", "gpu_count"),
    "rollback": ("gpu_batch", "gpu_max_fail", "gpu_max_fail_domain"),
    "workflow": ("gpu_batch", "gpu_max_fail", "gpu_max_fail_domain", "gpu_level"),
}
_WISHES = frozenset({"plan", "apply", "workflow"})
"""The surveys that also ask for versions."""


def files_for_awx() -> dict[str, str]:
    """Return AWX's files by name."""
    surveys = {
        name: survey(map(_option, asked)) if name in _WISHES else survey(map(_option, asked), ())
        for name, asked in _ASKED.items()
    }
    return awx_files(surveys)


def _option(variable: str) -> Option:
    """Return an option as its command declares it."""
    command, name = _OPTIONS[variable]
    parser = Parser(add_help=False)
    import_module(f"gpusetup.cli.{command}").add_arguments(parser)
    action = next(action for action in parser.arguments if action.dest == name)
    return variable, (action.help or "") % vars(action), action.type, action.choices  # type: ignore[return-value]
