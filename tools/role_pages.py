"""Write each role's README.md, and the routes of modules in meta/runtime.yml: `python -m tools.role_pages`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
ROLES = ROOT / "roles"
_HEAD = '---\nrequires_ansible: ">=2.16.0"\nplugin_routing:\n  modules:\n'
_ROUTE = "    {}:\n      action_plugin: gpusetup.stack.gpu_shared_code\n"
_BESIDE = (
    "What all roles share: [gpu_common](../gpu_common/README.md). "
    "Packages, sources and what comes back: [roles](../../docs/reference/roles.md)."
)


def pages() -> dict[Path, str]:
    """Return the text of each file by its path."""
    found = sorted(ROLES.glob("*/meta/argument_specs.yml"))
    written = {path.parents[1] / "README.md": page(path.parents[1].name, _spec(path)) for path in found}
    return written | {ROOT / "meta/runtime.yml": routes()}


def routes() -> str:
    """Return meta/runtime.yml: a module without an action of its own runs from the code that hosts keep."""
    modules, actions = ({path.stem for path in ROOT.glob(f"plugins/{kind}/*.py")} for kind in ("modules", "action"))
    return _HEAD + "".join(map(_ROUTE.format, sorted(modules - actions)))


def page(role: str, spec: Mapping[str, Any]) -> str:
    """Return the page of a role."""
    said = spec.get("description") or []
    return "\n\n".join([
        f"<!-- Made by tools/role_pages.py from meta/argument_specs.yml. -->\n# {role}",
        f"{spec['short_description']}.",
        *([said] if isinstance(said, str) else said),
        "\n".join(["| variable | type, default | meaning |", "|---|---|---|", *_rows(spec["options"])]),
        _BESIDE,
    ]) + "\n"  # fmt: skip


def _rows(options: Mapping[str, Any], inside: str = "") -> Iterator[str]:
    for name, option in options.items():
        kind = f"list of {option['elements']}" if "elements" in option else option["type"]
        if "choices" in option:
            kind += " ({})".format(", ".join(str(choice) or '""' for choice in option["choices"]))
        default = "required" if option.get("required") else f"`{json.dumps(option['default'])}`"
        shown = f"{inside}{name}"
        yield f"| `{shown}` | {kind}, {default} | {option['description'].replace('|', chr(92) + '|')} |"
        yield from _rows(option.get("options", {}), f"{shown}.")


def _spec(path: Path) -> dict[str, Any]:
    main: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"]["main"]
    return main


def main() -> int:
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
