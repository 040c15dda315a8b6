"""Set clocks, busy machines, bytes that are not UTF-8, and a line's end that `$` passes over surprise no code or test of ours."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.imports import PACKAGE

STORED = ("st_mtime", "_DAY", "uptime", "monotonic", "['updated']", "task_since", "said", "int(when)", "today")
"""What times of a clock that can be set are compared with: times of files, boots, other processes, people; a view's own."""
UNICODE = ("ValueError", "UnicodeError", "UnicodeDecodeError", "Exception")
OWN = (
    "_DATA", "lock.read_text", "__file__", "_TEMPLATES", "_INSTANCE", "_SHIPPED", "data.joinpath", "matrix.path",
    "'ascii'", "WHICH", "'program'", "_file(files",
)  # fmt: skip
"""Words in calls that read what gpusetup has written or delivers."""
PROVEN = {
    "text": ("rollout/options.py", "handover/files.py", "drive/rundir.py", "monitoring/files.py"),
    "flush": ("drive/module_cache.py",),
}
"""Modules that read their own files, or a file that was read as UTF-8 before; a cache, whose damage is no loss."""


def texts(call: ast.Call) -> bool:
    """Return whether a call reads text and fails on bytes that are not UTF-8, or reads them as the locale says."""
    words = {word.arg: ast.unparse(word.value) for word in call.keywords}
    given = [ast.unparse(word) for word in call.args]
    name, on = (call.func.attr, ast.unparse(call.func.value)) if isinstance(call.func, ast.Attribute) else ("", "")
    mode = words.get("mode") or (given[1:2] if not on else given[:1] or [""])
    reads = name == "read_text" and on != "files" and len(given) < 2
    opened = ast.unparse(call.func) == "open" or (name == "open" and on.endswith("path"))
    reads |= opened and not set("bwax") & set("".join(mode))
    process = "True" in (words.get("text"), words.get("universal_newlines"))
    return "errors" not in words and (process or (reads and not any(own in ast.unparse(call) for own in OWN)))


def unguarded(node: ast.AST, guarded: bool = False) -> Iterator[ast.AST]:
    """Yield the calls that read text outside a `try` that takes a UnicodeError."""
    if isinstance(node, ast.Call) and texts(node) and not guarded:
        yield node
    caught = " ".join(ast.unparse(handler.type or node) for handler in getattr(node, "handlers", ()))
    inside = [*node.body] if isinstance(node, ast.Try) else []
    for child in ast.iter_child_nodes(node):
        yield from unguarded(child, guarded or (child in inside and any(name in caught for name in UNICODE)))


def clocks(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the comparisons, sums and differences of time.time() that measure how long something takes."""
    now = {"time.time()"} | {
        ast.unparse(node.targets[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.value) == "time.time()"
    }
    for node in ast.walk(tree):
        sums = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)
        if (sums or isinstance(node, ast.Compare)) and not any(word in ast.unparse(node) for word in STORED):
            sides = [node.left, *(node.comparators if isinstance(node, ast.Compare) else [node.right])]
            if now & set(map(ast.unparse, sides)):
                yield node


def ends(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the checks of a whole text, not a line, by a pattern with `$`, and such patterns of a model."""
    known = {
        ast.unparse(node.targets[0]): ast.unparse(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("re.compile(")
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "match":
            whole = known.get(ast.unparse(node.func.value), ast.unparse(node))
            if "$'" in whole and "MULTILINE" not in whole and "line" not in ast.unparse(node):
                yield node
        elif isinstance(node, ast.keyword) and node.arg == "pattern" and ast.unparse(node.value).endswith("$'"):
            yield node.value


def unflushed(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the renames of files that a power cut can leave empty: nothing has flushed them to the disk."""
    for made in ast.walk(tree):
        if isinstance(made, ast.FunctionDef) and "fsync" not in ast.unparse(made):
            calls = [node for node in ast.walk(made) if isinstance(node, ast.Call) and "." in ast.unparse(node.func)]
            named = [(node, *ast.unparse(node.func).rsplit(".", 1)) for node in calls]
            written = {on for _, on, verb in named if verb in ("write_text", "write_bytes")}
            yield from (node for node, on, verb in named if on in written and verb in ("replace", "rename"))


def bounds(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the assertions that something took less than so many seconds: on a busy machine it takes longer."""
    asserted = (node for node in ast.walk(tree) if isinstance(node, ast.Assert))
    yield from (node for node in asserted if re.search(r"(monotonic|perf_counter)\(\) - \w+ <", ast.unparse(node)))


def numbered(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the texts that show an error as Python does: `[Errno 2] No such …: '/a'`, `HTTPSConnectionPool(host=…): Max …`."""
    for node in ast.walk(tree):
        kind = ast.unparse(node.type or node) if isinstance(node, ast.ExceptHandler) and node.name else ""
        of_requests = re.search(r"RequestException|(?<!error\.)HTTPError", kind)
        for one in ast.walk(node) if of_requests or "OSError" in kind else ():
            shown = isinstance(one, ast.FormattedValue) and ast.unparse(one.value) == node.name
            if shown or (of_requests and isinstance(one, ast.Call) and ast.unparse(one) == f"str({node.name})"):
                yield one


LAWS = {
    "text": (unguarded, r"open\(|read_text\(|text=True"), "clock": (clocks, r"time\.time\("), "end": (ends, r"\$"),
    "number": (numbered, r"OSError|RequestException"), "flush": (unflushed, r"write_(text|bytes)\("), "bound": (bounds, r"assert .*\(\) - "),
}  # fmt: skip
"""Each law with a pattern that a text must have for the law to find anything in it."""


@pytest.mark.parametrize("law", LAWS)
def test_a_hazard_is_met_nowhere(law):
    found, word = LAWS[law]
    parts = ("tests",) if law == "bound" else ("gpusetup", "gpusetup_fleet", "plugins", "roles")
    paths = [path for part in parts for path in sorted((PACKAGE.parent / part).rglob("*.py"))]
    read = {path: path.read_text(encoding="utf-8") for path in paths if "_content" not in path.parts}
    assert [
        f"{path}:{node.lineno}: {ast.unparse(node)}"
        for path, text in read.items()
        if re.search(word, text) and not str(path).endswith(PROVEN.get(law, ("nothing",)))
        for node in found(ast.parse(text))
    ] == []


@pytest.mark.parametrize(
    ("law", "bad"),
    [
        ("text", "open(path)"), ("text", "path.read_text()"), ("text", "try:\n open(path)\nexcept OSError:\n pass"),
        ("text", "run(argv, text=True)"), ("clock", "until = time.time() + 5"), ("clock", "s = time.time()\nx = y - s"),
        ("clock", "time.time() > end"), ("end", "re.match('^a$', name)"), ("end", "R = re.compile('a$')\nR.match(name)"),
        ("end", "Meta(pattern='^a$')"), ("flush", "def f(a, b):\n a.write_text('x')\n a.replace(b)"),
        ("bound", "assert time.monotonic() - began < 5"), ("number", "try:\n x()\nexcept OSError as e:\n f'no: {e}'"),
        ("number", "try:\n x()\nexcept (OSError, HTTPError) as e:\n ' '.join(str(e).split())"),
    ],
)  # fmt: skip
def test_each_law_sees_its_example(law, bad):
    assert len(list(LAWS[law][0](ast.parse(bad)))) == 1
