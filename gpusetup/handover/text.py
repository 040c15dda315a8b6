"""How a hand-over's documents are printed, so that linters and people read them alike."""

from __future__ import annotations

from typing import Any

MADE = "# Written by `gpusetup export handover`: run that again rather than editing this.\n"


def yaml_text(value: object, *, made: str = MADE) -> str:
    """Return a document as YAML, in block style, with its list items indented."""
    import yaml

    class Indented(yaml.SafeDumper):
        def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:  # noqa: ARG002
            return super().increase_indent(flow, indentless=False)

        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
            return True

    def shown(dumper: yaml.SafeDumper, text: str) -> Any:
        style = "|" if "\n" in text else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Indented.add_representer(str, shown)
    text: str = yaml.dump(value, Dumper=Indented, sort_keys=False, width=110, allow_unicode=True)
    return f"---\n{made}{text}"
