"""Write the explorer as static files that need no server and no other site, under any path."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusetup.matrix.load import matrix as load
from tools.explorer.compiled import WISHES, Compiled, Gpus, drivers, releases, series
from tools.explorer.messages import likeness, messages
from tools.explorer.reasons import about_reasons
from tools.explorer.told import about_kinds, about_names, about_problem, about_rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpusetup.matrix.load import Matrix

ARCHES = ("x86_64", "aarch64")
_WEB = Path(__file__).parent / "web"
_STYLE = Path(__file__).resolve().parents[2] / "gpusetup/report/templates/style.css"


def write(folder: Path) -> None:
    """Write every file."""
    for part in ("problems", "reasons"):
        (folder / part).mkdir(parents=True)
    for path in _WEB.glob("*.js"):
        shutil.copyfile(path, folder / path.name)
    matrix = load()
    gpus, compiled = Gpus(matrix), [Compiled(matrix, arch) for arch in ARCHES]
    about, problems = documents(matrix, gpus, compiled)
    for each in compiled:
        _script(folder / f"problems/{each.arch}.js", f'EXPLORER.problems["{each.arch}"]', problems[each.arch])
        _script(folder / f"reasons/{each.arch}.js", f'EXPLORER.reasons["{each.arch}"]', about_reasons(each, gpus))
    # The style is inline, so that it does not delay the first view.
    style = "".join(path.read_text(encoding="utf-8") for path in (_STYLE, _WEB / "explorer.css"))
    html = (_WEB / "index.html").read_text(encoding="utf-8")
    stamp = f"Matrix of {matrix.date} · {len(about['products'])} GPUs, {len(about['drivers'])} drivers"
    html = html.replace("{style}", style).replace("{stamp}", stamp)
    (folder / "index.html").write_text(html, encoding="utf-8")
    _script(folder / "about.js", "window.EXPLORER", about)
    _script(folder / "messages.js", "EXPLORER.messages", messages())
    _script(folder / "similar.js", "EXPLORER.similar", likeness())


def documents(
    matrix: Matrix, gpus: Gpus, compiled: Sequence[Compiled]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the data that the page loads at its start, and the data of each CPU."""
    one = compiled[0]
    problems = {each.arch: each.document(gpus) | {"told": about_problem(each, gpus)} for each in compiled}
    rules = {"requested", "installed-driver-stays"}
    for document in problems.values():
        added = [item for some in document["additions"] for item in (*some["always"], *some["free"])]
        rules |= {item["rule"] for item in (*document["base"], *added)}
    about: dict[str, Any] = {
        "drivers": drivers(matrix),
        "systems": [[item.id, item.name] for item in matrix.os.systems],
        "gpus": gpus.names,
        "products": [gpu.name for gpu in matrix.gpus.gpus if gpu.name in gpus.names],
        "releases": {name: releases(one.base, name) for name in WISHES},
        "series": {name: series(one.base, name) for name in WISHES},
        "kinds": about_kinds(one, gpus),
        "rules": about_rules(matrix, rules),
        "problems": {},
        "reasons": {},
        **about_names(matrix, gpus),
    }
    return about, problems


def _script(path: Path, name: str, document: dict[str, Any]) -> None:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    path.write_text(f"{name}={text};\n", encoding="utf-8")
