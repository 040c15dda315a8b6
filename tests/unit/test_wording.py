"""Words that no text of gpusetup has: contorted phrases that once stood there, and the kinds of phrase they were of.

Every string that a person can meet is looked at: those of the program, of the code on hosts and of the roles, the pages and the
doctor's catalogue. Comments and names are free.
"""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]

CONTORTED = {
    r"code for nothing known": "say that nobody published what GPUs the build has code for",
    r"looked after": "supported",
    r"told of the (GPU|driver)": "configured for the GPU",
    r"\bbrings? along\b": "includes, installs",
    r"\bno way back\b": "cannot be undone",
    r"\bwithout a word\b": "without an error message",
    r"\bput (it|them) away\b|\btak(e|es|en) away\b|\btook away\b": "remove",
    r"\bsomebody\b(?!'$)": "someone, another program, or name who",
    r"\b(is|was|are|were) no (lock|baseline|manifest|capture|driver version|URL|http|TOML|JSON|package name|node|number|name|key)\b": "is not a …",
    r"\bgo(es)? together\b": "are compatible, conflict",
    r"\bcould not look\b|\blook at it with\b|\blooked at\b": "not checked, check it with",
    r"\bbroke off\b": "stopped, was interrupted",
    r"\bmeasured gently\b": "measured at low load",
    r"\bmake room\b|\bno room\b": "free some space, full",
    r"\bmend\b": "fix",
    r"\bexchange (it|the GPU)\b": "replace",
    r"\bbegins? (a )?new\b|\w \banew\b": "start a new, again",
    r"\bcame (with|by)\b.*\band took\b": "say who removed it",
    r"\bhold(s|ing)? no code\b": "has no code",
    r"\b(the )?same command (again )?(mends|goes on)\b": "run the same command again",
    r"\blet it end\b": "wait for it",
    r"\bstand(s)? on\b": "runs on, uses",
    r"(?<!there )\bis no (\{\}|(Python|NVIDIA|CUDA) (package|driver|GPU|major)\b)": "is not a …",
    r"\bbring (it|them|the \w+) (up|back)\b|\blet \w+ bring\b|\bbrings? (one|only|Python|cuDNN)\b": "upgrade, install, include",
    r"\bleave it away\b|\bhave to go\b|\bhas to go\b": "leave it out, must be removed",
    r"(?<=\S )(is|are|was|were) not there\b|\bnone is there\b": "is missing, does not exist",
    r"\bdoes? without\b": "work without, not need",
    r"\bgo(es)? on (where|afterwards)\b|\bwhen it (stays|goes on)\b|\bif it stays\b": "continue, if it persists",
    r"\blook whether\b|\blook at the seating\b|\blet the doctor look\b": "check, examine",
    r"\btake (it|them|the \w+) off\b": "remove from",
    r"\b(knows|know) no\b": "does not know",
    r"\bof another form\b": "has an unexpected structure",
    r"(?<!been )\bready since\b": "has been ready since",
    r"\bnobody (says|said)\b": "is not known, nobody published",
}
"""A pattern and what to write in its place."""


def _strings(path: Path) -> Iterator[tuple[int, str]]:
    """Every string of a module but docstrings and the keys that it looks up; the parts of an f-string joined."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    silent: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            silent.add(id(node.value))
        if isinstance(node, ast.Subscript):
            silent.add(id(node.slice))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            silent.update(id(argument) for argument in node.args[:1])
        if isinstance(node, ast.JoinedStr):
            silent.update(id(value) for value in node.values)
            parts = [str(value.value) if isinstance(value, ast.Constant) else "{}" for value in node.values]
            yield node.lineno, "".join(parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            yield node.lineno, node.value


def _texts(value: Any, path: str = "$") -> Iterator[tuple[str, str]]:
    """Every text that a document of the doctor or of the checks shows; patterns and addresses are none."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in {"sources", "patterns", "url", "title_of_source", "examples", "pattern", "quote"}:
                yield from _texts(item, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, f"{path}[{index}]")
    elif isinstance(value, str):
        yield path, value


def _everything() -> Iterator[tuple[str, str]]:
    for folder in ("gpusetup", "plugins"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield from ((f"{path.relative_to(ROOT)}:{line}", text) for line, text in _strings(path))
    for path in sorted((ROOT / "gpusetup").glob("*/data/**/*.json")):
        if "matrix" in path.parts:
            continue  # records with the words of their sources
        document = json.loads(path.read_text(encoding="utf-8"))
        yield from ((f"{path.relative_to(ROOT)}:{where}", text) for where, text in _texts(document))
    for folder in ("roles", "playbooks"):
        for path in sorted((ROOT / folder).rglob("*.yml")):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if not line.lstrip().startswith("#"):
                    yield f"{path.relative_to(ROOT)}:{number}", line
    for path in (ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            yield f"{path.relative_to(ROOT)}:{number}", line


@cache
def _all() -> tuple[tuple[str, str], ...]:
    return tuple(_everything())


@pytest.mark.parametrize("pattern", CONTORTED)
def test_no_contorted_phrase(pattern: str) -> None:
    sentences = ((where, text) for where, text in _all() if not text.isidentifier())  # a lone word names a field
    found = [f"{where}: {text[:120]!r}" for where, text in sentences if re.search(pattern, text, re.IGNORECASE)]
    assert not found, f"write instead: {CONTORTED[pattern]}\n" + "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "torch 2.6.0 has code for nothing known",
        "R580 is looked after until 2028-06",
        "f is no lock",
        "CUDA 13.2 stands on R580",
        "Make room, then run it again",
        "Or bring the driver up.",
        "'x' is no {}NAME=VALUE",
        "leave it away; what narrows this table",
        "the library is not there",
        "gpusetup goes on where it stopped",
        "Let the doctor look at the machine",
    ],
)
def test_the_list_knows_the_phrases(text: str) -> None:
    assert any(re.search(pattern, text, re.IGNORECASE) for pattern in CONTORTED)
