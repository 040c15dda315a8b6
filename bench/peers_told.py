"""Results of `./dev bench peers` as a record, a table, a picture and a page.

The documentation shows the record `bench/results/peers.json`; `python -m tools.pictures` makes page and picture.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from bench.found import framed
from bench.peers_steps import Step
from bench.peers_steps import table as steps_table
from gpusetup.drive.causes import counted
from gpusetup.report.topology import element, text_at

RECORD = Path(__file__).resolve().parent / "results/peers.json"
RUNS = ("first run", "second run", "first run, its reboot lost", "the run after that")
"""The first two run on one host, the others on an equal second host."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run on one host."""

    seconds: float
    operations: int
    """Starts of ssh, sftp and scp."""
    processor: float = 0.0
    """CPU seconds of controller and host."""
    code: int = 0
    rebooted: bool = False
    last: str = ""
    """The end of the output of a failed run."""
    steps: tuple[Step, ...] = ()
    """Its steps."""

    @property
    def cost(self) -> float:
        """The cost: CPU seconds, which do not depend on other load, else wall seconds."""
        return self.processor or self.seconds

    def told(self) -> str:
        failed = f"; FAILED ({self.code})" if self.code else ""
        clock = f"{self.seconds:.1f} s"
        cost = f"{self.processor:.1f} s ({clock})" if self.processor else clock
        return f"{cost}, {counted(self.operations, 'operation')}{', rebooted' if self.rebooted else ''}{failed}"


class Contender(msgspec.Struct, frozen=True, kw_only=True):
    """A project, its version and its Ansible."""

    name: str
    version: str
    ansible: str
    runs: tuple[Run, ...] = ()
    """In the order of RUNS; empty if the project was not available."""

    def lost_reboot(self) -> str:
        """Return what happened after the lost reboot, as text."""
        if not self.runs:
            return ""
        before, after = self.runs[2:4]
        if after.rebooted:
            return "done later"
        if after.code:
            return "stays lost; the run fails each time" if before.code else "stays lost; the run fails"
        return "stays lost, without a message"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison of all projects."""

    date: str
    driver: str
    contenders: tuple[Contender, ...]


def recorded() -> Record:
    """Return the comparison that the documentation shows."""
    return msgspec.json.decode(RECORD.read_bytes(), type=Record)


def table(record: Record) -> str:
    """Return the comparison as a Markdown table."""
    lines = ["| who | " + " | ".join(RUNS) + " | the lost reboot |", "|---|" + "---|" * (len(RUNS) + 1)]
    for who in record.contenders:
        cells = [run.told() for run in who.runs] or ["was not there", *[""] * (len(RUNS) - 1)]
        lines.append(f"| {who.name} | " + " | ".join(cells) + f" | {who.lost_reboot()} |")
    return "\n".join(lines) + "\n"


def picture(record: Record) -> str:
    """Return the costs of the runs as a bar chart; failed runs are pale."""
    longest = max((run.cost for who in record.contenders for run in who.runs), default=1.0) or 1.0
    parts, y = [], 8
    for who in record.contenders:
        parts.append(text_at(12, y + 16, who.name, "name", "start"))
        for run, title in zip(who.runs, RUNS, strict=False):  # none of who was not there
            y += 24
            width = 380 * run.cost / longest
            kind = "ours pale" if run.code else "ours"
            parts.append(text_at(12, y + 15, title, "soft", "start"))
            parts.append(element("rect", x=220, y=y + 2, width=f"{width:.0f}", height=17, class_=kind))
            parts.append(text_at(228 + width, y + 15, run.told(), "soft", "start"))
        y += 40
    told = [f"{who.name}: {who.runs[1].cost:.1f} seconds the second time" for who in record.contenders if who.runs]
    return framed(parts, y, "; ".join(told))


def page(record: Record) -> str:
    """Return the page of the documentation."""
    return _PAGE.format(
        date=record.date,
        driver=record.driver,
        table=table(record),
        steps=_steps(record),
        versions="".join(f"| {who.name} | {who.version} | {who.ansible} |\n" for who in record.contenders),
        failures=_failures({who.name: who.runs for who in record.contenders}),
    )


def _steps(record: Record) -> str:
    """Return the steps of the first run, of gpusetup and of NVIDIA's role."""
    told = [
        f"{who.name}:\n\n{steps_table(who.runs[0].steps)}"
        for who in record.contenders[:2]
        if who.runs and who.runs[0].steps
    ]
    return "\n## Where the seconds of the first run go\n\n" + "\n".join(told) if told else ""


def _failures(runs: Mapping[str, tuple[Run, ...]]) -> str:
    told = [
        f"- {name}, {title}:\n\n  ```text\n" + "".join(f"  {line}\n" for line in run.last.splitlines()) + "  ```\n"
        for name, found in runs.items()
        for run, title in zip(found, RUNS, strict=False)
        if run.code
    ]
    return "\nThe last words of what failed:\n\n" + "\n".join(told) if told else ""


_PAGE = """\
# gpusetup beside others, measured

The driver alone (branch {driver}, {date}), on equal lab hosts, one project after the other on one machine, over SSH
with pipelining. The packages are stand-ins of a few bytes, so these are the times of Ansible and its tasks, without
downloads and module builds. The hosts have no GPU: verification and DeepOps' call of nvidia-smi are left out.
Processor seconds are those of controller and host together, wall clock in brackets. Compare rows, not days: the same
machine is a quarter faster or slower from hour to hour.

{table}
![Seconds of each run as bars](../peers.svg)

An operation is a start of `ssh`, `sftp` or `scp`: a round trip, tens of milliseconds on real networks. "Its reboot
lost" is a first run with the reboot switched off, as after a cut connection; the next run may reboot.
{failures}{steps} | who | version | Ansible | |---|---|---| {versions} gpusetup's runs include setting up the package
source, checks, a simulated transaction and a new initramfs; the others found the source set up. `./dev bench peers`
prints how to fetch the other projects, then runs all again. `python -m tools.pictures` writes this page from
`bench/results/peers.json`.
"""
