"""Subcommands of `export`: JSON Schemas, the place of the Ansible collection, files for monitoring, completion."""

import argparse
import difflib
from pathlib import Path
from typing import Any

from gpusetup.cli import options, output
from gpusetup.content import collections_path, content_path
from gpusetup.errors import BadInputError, Exit

_REFERENCES = "#/$defs/{name}"


def add_schema_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="a document; without it, their names")
    parser.add_argument("--out", metavar="FILE", help="write it there instead of to standard output")
    options.add_format(parser)


def run_schema(arguments: argparse.Namespace) -> Exit:
    """Print the JSON Schema of a document.

    examples:
      gpusetup export schema                  the names of the documents
      gpusetup export schema stack            what `gpusetup resolve --format json` prints
      gpusetup export schema plan --out plan.schema.json
    """
    from gpusetup.model.documents import Documents, documents

    if arguments.name is None:
        table = output.table(("document", "from"), list(documents().items()))
        return output.answer(arguments.format, Documents(documents=documents()), table, arguments.out)
    name = arguments.name.removeprefix("gpusetup/").partition("/")[0]
    if name not in documents():
        near = difflib.get_close_matches(name, documents(), n=3)
        raise BadInputError(
            "GS-136",
            f"no document is called {arguments.name!r}",
            path=arguments.name,
            hint=f"did you mean {', '.join(near)}?" if near else "`gpusetup export schema` lists them",
        )
    output.write_answer(output.json_text(schema_of(name)), arguments.out)
    return Exit.DONE


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document; several forms become `anyOf`."""
    import msgspec

    from gpusetup.model.documents import documents, forms_of

    shapes, parts = msgspec.json.schema_components(forms_of(name), ref_template=_REFERENCES)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"gpusetup/{name}/1",
        "description": f"from: {documents()[name]}",
        **(shapes[0] if len(shapes) == 1 else {"anyOf": list(shapes)}),
        "$defs": parts,
    }


_PLACES = {"path": content_path, "collections": collections_path}


def add_content_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "what",
        choices=_PLACES,
        help="path: the folder with playbooks/, roles/ and plugins/; collections: what ANSIBLE_COLLECTIONS_PATH wants",
    )
    options.add_output(parser)


def run_content(arguments: argparse.Namespace) -> Exit:
    """Print where the Ansible collection is, for ansible-playbook.

    examples:
      export ANSIBLE_COLLECTIONS_PATH="$(gpusetup export content collections)"
      ansible-playbook -i inventory.ini -e @vars.json gpusetup.stack.apply
    """
    from gpusetup.model.documents import ContentPlace

    folder = str(_PLACES[arguments.what]())
    return output.answer(arguments.format, ContentPlace(path=folder), folder, arguments.out)


def add_monitoring_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--out", metavar="DIR", required=True, help="folder to write to; created if it does not exist")
    parser.add_argument("--runbook-url", metavar="URL", default="", help="address of alerts.md; each alert links to it")
    options.add_format(parser)


def run_monitoring(arguments: argparse.Namespace) -> Exit:
    """Write Prometheus rules with tests, Grafana dashboards and an example for Alertmanager.

    examples:
      gpusetup export monitoring --out monitoring/
      promtool test rules monitoring/rules/gpusetup-tests.yml
      gpusetup doctor GpuXidFatal              what an alert means and what to do
    """
    from gpusetup.bootstrap.userdata import checked_url
    from gpusetup.model.documents import MonitoringFiles
    from gpusetup.monitoring.files import files

    folder = Path(arguments.out)
    texts = files(arguments.runbook_url and checked_url(arguments.runbook_url, "--runbook-url"))
    command = "gpusetup export monitoring --out monitoring"
    output.write_folder(arguments.out, texts, "GS-360", "monitoring files", command)
    document = MonitoringFiles(folder=str(folder), files=tuple(sorted(texts)))
    told = "".join(f"  {name}\n" for name in document.files)
    text = f"{folder}:\n{told}\ntry the rules: promtool test rules {folder}/rules/gpusetup-tests.yml\n"
    return output.answer(arguments.format, document, text, None)


def add_completion_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), metavar="SHELL", help="bash, zsh or fish")
    parser.add_argument("--out", metavar="FILE", help="write it there instead of to standard output")
    parser.set_defaults(format="text")


def run_completion(arguments: argparse.Namespace) -> Exit:
    """Print a shell's completion of gpusetup's commands, options, GPUs, systems and components.

    examples:
      eval "$(gpusetup export completion bash)"                                     in ~/.bashrc
      eval "$(gpusetup export completion zsh)"                                      in ~/.zshrc
      gpusetup export completion fish > ~/.config/fish/completions/gpusetup.fish
    """
    from argcomplete.shell_integration import shellcode

    output.write_answer(shellcode(["gpusetup"], shell=arguments.shell), arguments.out)
    return Exit.DONE
