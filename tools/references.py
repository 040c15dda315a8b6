"""Write down what each error reference (GS-324) says: `python tools/references.py` reads the sources.

`gpusetup doctor GS-324` tells from it; a test compares the list with the sources.
"""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "gpusetup" / "doctor" / "data" / "references.json"
FIRST_STAGE = ROOT / "gpusetup" / "bootstrap" / "instance" / "first-stage"
_REFERENCE = re.compile(r"GS-\d{3}")
_MESSAGE = ("message", "problem", "text", "title", "why")
_HINT = ("hint", "fix", "todo", "remedy")


def text_of(node: ast.AST | None) -> str:
    """Return a string or f-string of the source with names for its fields; empty for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
        return "".join(str(part) for part in parts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text_of(node.left) + text_of(node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return re.sub(r"%[sdr]", "…", text_of(node.left))
    if isinstance(node, ast.IfExp):
        return text_of(node.body) or text_of(node.orelse)
    return ""


def _sentence(text: str) -> bool:
    return len(text.split()) > 1 and not _REFERENCE.fullmatch(text)


def _beside(node: ast.AST, reference: ast.AST) -> tuple[str, str]:
    """Return the message and the hint that stand beside a reference in a call, a tuple or a dictionary."""
    if isinstance(node, ast.Call):
        named = {item.arg or "": text_of(item.value) for item in node.keywords}
        given = [text_of(item) for item in node.args if item is not reference]
    elif isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        named = {text_of(key): text_of(value) for key, value in pairs}
        given = []
    elif isinstance(node, ast.Tuple):
        named, given = {}, [text_of(item) for item in node.elts if item is not reference]
    else:
        return "", ""
    sentences = [text for text in given if _sentence(text)]
    message = next((named[name] for name in _MESSAGE if _sentence(named.get(name, ""))), "")
    hint = next((named[name] for name in _HINT if named.get(name)), "")
    return message or next(iter(sentences), ""), hint or next(iter(sentences[0 if message else 1 :]), "")


def _of_file(path: Path) -> list[tuple[str, str, str]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    found = []
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str) and _REFERENCE.fullmatch(node.value)):
            continue
        place: ast.AST | None = node
        message = hint = ""
        while place is not None and not message:
            if isinstance(place, ast.FunctionDef | ast.Module):
                message = (ast.get_docstring(place) or "").partition("\n")[0]
            else:
                message, hint = _beside(place, node)
            place = above.get(place)
        found.append((node.value, " ".join(message.split()), " ".join(hint.split())))
    return found


def references() -> dict[str, list[dict[str, str]]]:
    """Return what is said with each reference, in the order of the numbers."""
    said: dict[str, dict[str, str]] = defaultdict(dict)
    paths = [path for folder in ("gpusetup", "plugins") for path in sorted((ROOT / folder).rglob("*.py"))]
    for path in [*paths, FIRST_STAGE]:
        for reference, message, hint in _of_file(path):
            if message and not said[reference].get(message):
                said[reference][message] = hint
    return {
        reference: [{"message": message, "hint": hint} for message, hint in sorted(texts.items())]
        for reference, texts in sorted(said.items())
    }


def written() -> str:
    """Return the list as its file has it."""
    return json.dumps({"references": references()}, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    LIST.write_text(written(), encoding="utf-8")
