"""Write Prometheus rules with tests, Grafana dashboards and an example for Alertmanager.

examples:
  gpusetup export monitoring --out monitoring/
  promtool test rules monitoring/rules/gpusetup-tests.yml
  gpusetup doctor GpuXidFatal              what an alert means and what to do
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.cli import output
from gpusetup.errors import Exit

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--out", metavar="DIR", required=True, help="folder to write to; created if it does not exist")
    parser.add_argument("--runbook-url", metavar="URL", default="", help="address of alerts.md; each alert links to it")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def run(arguments: argparse.Namespace) -> Exit:
    """Write the files."""
    from gpusetup.model.documents import MonitoringFiles
    from gpusetup.monitoring.files import files

    folder = Path(arguments.out)
    texts = files(arguments.runbook_url)
    command = "gpusetup export monitoring --out monitoring"
    output.write_folder(arguments.out, texts, "GS-360", "monitoring files", command)
    document = MonitoringFiles(folder=str(folder), files=tuple(sorted(texts)))
    output.write_answer(
        output.json_text(document) if arguments.format == "json" else _written_files(folder, texts), None
    )
    return Exit.DONE


def _written_files(folder: Path, texts: dict[str, str]) -> str:
    names = "\n".join(f"  {name}" for name in sorted(texts))
    return f"{folder}:\n{names}\n\ntry the rules: promtool test rules {folder}/rules/gpusetup-tests.yml\n"
