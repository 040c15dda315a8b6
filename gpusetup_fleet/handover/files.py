"""Render the files of a hand-over from templates, and values as YAML."""

import shlex
from pathlib import Path
from typing import Any

_TEMPLATES = Path(__file__).parent / "templates"


def rendered(kind: str, **values: Any) -> dict[str, str]:
    """Return the files of one kind by name; `<< … >>` marks values, as some files use Ansible's `{{ … }}`."""
    import jinja2

    environment = jinja2.Environment(
        block_start_string="<%", block_end_string="%>", variable_start_string="<<", variable_end_string=">>",
        comment_start_string="<#", comment_end_string="#>", trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, undefined=jinja2.StrictUndefined, autoescape=False,  # noqa: S701 - no HTML
    )  # fmt: skip
    environment.filters |= {
        "quote": shlex.quote,
        "yaml": lambda value: yaml_text(value, width=90).removeprefix("---\n").rstrip(),
    }
    top = _TEMPLATES / kind
    texts = {
        path.relative_to(top): path.read_text(encoding="utf-8") for path in sorted(top.rglob("*")) if path.is_file()
    }
    return {
        str(name.with_suffix("") if name.suffix == ".j2" else name): environment.from_string(text).render(values)
        if name.suffix == ".j2"
        else text
        for name, text in texts.items()
    }


def yaml_text(value: object, *, made: str = "", width: int = 110) -> str:
    """Return a document as YAML in block style with indented list items, as linters expect."""
    import yaml

    class Indented(yaml.SafeDumper):
        def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:  # noqa: ARG002 - PyYAML's
            return super().increase_indent(flow, indentless=False)

        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's
            return True

    def shown(dumper: yaml.SafeDumper, text: str) -> Any:
        style = "|" if "\n" in text else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Indented.add_representer(str, shown)
    text: str = yaml.dump(value, Dumper=Indented, sort_keys=False, width=width, allow_unicode=True)
    return f"---\n{made}{text}"
