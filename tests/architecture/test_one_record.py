"""Only the journal writes the record of a host: every thing that gpusetup changes there goes through its door."""

import ast
from pathlib import Path

import pytest

import gpusetup

PACKAGE = Path(gpusetup.__file__).parent
ROOT = PACKAGE.parent
OWNERS = {"journal.py", "ledger.py"}
_CHANGES = {"update", "setdefault", "pop", "popitem", "clear", "append", "extend", "remove", "insert", "sort"}


_CHANGING = {
    "systemctl": {"enable", "disable", "mask", "unmask", "add-wants", "preset"},
    "update-alternatives": {"--set", "--auto", "--install", "--remove"},
    "alternatives": {"--set", "--auto"},
    "grubby": {"--update-kernel=ALL"},
    "pbl": {"--add-option", "--del-option"},
    "apt-mark": {"hold", "unhold"},
    "dpkg": {"--set-selections"},
    "dnf": {"module", "versionlock"},
    "zypper": {"addlock", "removelock"},
}
"""Calls that change what the record keeps, by program."""
_DOORS = {"services", "alternatives", "boot_arguments", "apt", "dnf", "zypper"}
"""Where a thing of the journal, or the package manager that it asks, changes the host."""


def _code():
    found = [*(ROOT / "plugins").rglob("*.py"), *PACKAGE.rglob("*.py"), *(ROOT / "gpusetup_fleet").rglob("*.py")]
    theirs = [path for path in found if not (path.name in OWNERS and path.parent.name == "gpu_host")]
    return sorted(path for path in theirs if "_content" not in path.parts)


def _on_hosts():
    folders = ("module_utils/gpu_host", "modules")
    found = [path for folder in folders for path in (ROOT / "plugins" / folder).glob("*.py")]
    return sorted(path for path in found if path.stem not in _DOORS)


def _is_state(node, names):
    """Tell whether an expression is (a part of) the state of a ledger, by itself or by a name for it."""
    while isinstance(node, (ast.Subscript, ast.Call, ast.Attribute)):
        if isinstance(node, ast.Attribute) and node.attr == "state" and _is_ledger(node.value):
            return True
        if isinstance(node, ast.Call):
            if not (isinstance(node.func, ast.Attribute) and node.func.attr == "get"):
                return False
            node = node.func.value
        else:
            node = node.value
    return isinstance(node, ast.Name) and node.id in names


def _is_ledger(node):
    called = node.func if isinstance(node, ast.Call) else node
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    return "ledger" in name.lower()


def _names_of_state(function):
    """Return the local names that are bound to the state, or to a part of it that is no copy."""
    names: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = (
                    zip(target.elts, node.value.elts, strict=True)
                    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
                    else [(target, node.value)]
                )
                names |= {left.id for left, right in pairs if isinstance(left, ast.Name) and _is_state(right, names)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            names |= {node.target.id} if _is_state(node.value, names) else set()
    return names


def writes(text):
    """Return the places in a module that write the record by themselves."""
    tree = ast.parse(text)
    found = set()
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.Module))]
    for function in functions:
        names = _names_of_state(function) if isinstance(function, ast.FunctionDef) else set()
        for node in ast.walk(function):
            targets: list[ast.expr] = []
            if isinstance(node, (ast.Assign, ast.Delete)):
                targets = node.targets
            elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
                targets = [node.target]
            flat = [item for one in targets for item in (one.elts if isinstance(one, ast.Tuple) else [one])]
            bad = [item for item in flat if isinstance(item, (ast.Subscript, ast.Attribute)) and _is_state(item, names)]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                what, on = node.func.attr, node.func.value
                if (what == "save" and _is_ledger(on)) or (what in _CHANGES and _is_state(on, names)):
                    bad.append(node.func)
            found |= {f"line {item.lineno}: {ast.unparse(item)}" for item in bad}
    return sorted(found)


def changes(text):
    """Return the places in a module that change the host past the journal."""
    found = []
    for node in ast.walk(ast.parse(text)):
        words = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)}
        if isinstance(node, (ast.FunctionDef, ast.Module)):
            continue
        found += [
            f"line {node.lineno}: {program} {verb}"
            for program, verbs in _CHANGING.items()
            for verb in sorted(verbs & words)
            if program in words and isinstance(node, (ast.List, ast.For))
        ]
    return found


@pytest.mark.parametrize("path", _code(), ids=lambda path: str(path.relative_to(ROOT)))
def test_nobody_else_writes_the_record(path):
    assert writes(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", _on_hosts(), ids=lambda path: str(path.relative_to(ROOT)))
def test_nobody_changes_a_host_past_the_journal(path):
    assert changes(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "process.output(['systemctl', 'enable', '--now', unit], env)",
        "for words in (['daemon-reload'], ['enable', unit]):\n        process.output(['systemctl', *words], env)",
        "argv = ['update-alternatives', '--set', name, path]",
    ],
)
def test_a_change_past_the_journal_would_be_seen(line):
    assert changes("def act(unit, env):\n    " + line) != []


@pytest.mark.parametrize(
    "line",
    [
        'ledger.state["holds"] = []',
        'self.ledger.state["files"][path]["hint"] = again',
        'del ledger.state["services"][unit]',
        "ledger.save()",
        "Ledger(folder).save()",
        'ledger.state["services"].setdefault(unit, {})',
        'state = self.ledger.state; state["apply"] = {}',
        'record = ledger.state["mig"]; record.clear()',
        'found, record = 1, ledger.state.get("mig"); record["found"] = found',
        'state = ledger.state; state["a"], state["b"] = 1, 2',
        'ledger.state["holds"] += ["x"]',
    ],
)
def test_it_would_be_seen(line):
    assert writes("def act(self, ledger):\n    " + line)


@pytest.mark.parametrize(
    "line", ['back = dict(ledger.state["taken"]); back["x"] = 1', "self.saved.update(a=1)", 'state["x"] = job.state']
)
def test_what_is_no_record_is_let_be(line):
    assert writes("def act(self, ledger, state):\n    " + line) == []
