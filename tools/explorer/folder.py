"""The explorer as a folder of files: no server, nothing from elsewhere, the same under any path."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from gpusetup.matrix.load import matrix as load
from tools.explorer.compiled import FRAMEWORKS, Compiled, Gpus, drivers, releases
from tools.explorer.messages import messages
from tools.explorer.told import about_kinds, about_problem, about_rules

__all__ = ["write"]

ARCHES = ("x86_64", "aarch64")
_WEB = Path(__file__).parent / "web"
_STYLE = Path(__file__).resolve().parents[2] / "gpusetup/report/templates/style.css"


def write(folder: Path) -> None:
    """Write every file."""
    matrix = load()
    gpus = Gpus(matrix)
    (folder / "problems").mkdir(parents=True)
    for path in _WEB.glob("*.js"):
        shutil.copyfile(path, folder / path.name)
    # The style is in the page: what is fetched first is what delays the first view.
    style = "".join(path.read_text(encoding="utf-8") for path in (_STYLE, _WEB / "explorer.css"))
    html = (_WEB / "index.html").read_text(encoding="utf-8").replace("{style}", style)
    (folder / "index.html").write_text(html, encoding="utf-8")
    rules: set[str] = set()
    about: dict[str, Any] = {
        "date": matrix.date,
        "drivers": drivers(matrix),
        "systems": [[item.id, item.name] for item in matrix.os.systems],
        "gpus": gpus.names,
        "products": {gpu.name: gpus.names[gpu.name] for gpu in matrix.gpus.gpus if gpu.name in gpus.names},
        "frameworks": {},
        "problems": {},
    }
    for framework in FRAMEWORKS:
        for arch in ARCHES:
            compiled = Compiled(matrix, framework, arch)
            document = compiled.document(gpus) | {"told": about_problem(compiled)}
            rules |= {item["rule"] for item in document["base"]} | {
                item["rule"] for added in document["additions"] for item in (*added["always"], *added["free"])
            }
            name = f"{framework}-{arch}"
            _script(folder / f"problems/{name}.js", f'EXPLORER.problems["{name}"]', document)
        about["kinds"] = about_kinds(compiled, gpus)
        about["frameworks"][framework] = {"releases": releases(compiled.base, framework)}
    about["rules"] = about_rules(matrix, rules | {"requested", "installed-driver-stays"})
    _script(folder / "about.js", "window.EXPLORER", about)
    _script(folder / "messages.js", "EXPLORER.messages", messages())


def _script(path: Path, name: str, document: dict[str, Any]) -> None:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    path.write_text(f"{name}={text};\n", encoding="utf-8")
