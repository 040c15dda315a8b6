"""Whether systemd, udev, a boot menu or the linker must be told of a change is read from the host: a call that was cut
between the change and the telling would otherwise never tell it."""

import ast
from pathlib import Path

import pytest

import gpusetup

ROOT = Path(gpusetup.__file__).parent.parent
PROGRAMS = {"systemctl", "udevadm", "ldconfig", "update-grub", "grub2-mkconfig", "update-initramfs", "dracut"}
CHANGES = {"write", "restore", "delete", "link", "change", "undo", "take_down", "put_back", "bring_up", "arrange"}
"""What answers whether it changed something."""


def _modules():
    found = [*(ROOT / "plugins/module_utils/gpu_host").glob("*.py"), *(ROOT / "plugins/modules").glob("*.py")]
    return {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(found)}


def _called(call):
    function = call.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _runs(node, runners):
    return any(
        (isinstance(one, ast.Constant) and one.value in PROGRAMS)
        or (isinstance(one, ast.Call) and _called(one) in runners)
        for one in ast.walk(node)
    )


def runners(modules):
    """Return the functions that run such a program without asking the host whether it is due, directly or by another."""
    functions = [
        item
        for tree in modules.values()
        for item in tree.body
        if isinstance(item, ast.FunctionDef) and item.name != "main"
    ]
    found: set[str] = set()
    while True:
        told = ((item.name, one) for item in functions for one in item.body)
        more = {name for name, one in told if not isinstance(one, ast.If | ast.For | ast.While) and _runs(one, found)}
        if more <= found:
            return found - CHANGES
        found |= more


def hanging(tree, known):
    """Return the places that run something because a call of ours changed something."""
    found = []
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        told: set[str] = set()
        for node in ast.walk(function):
            if isinstance(node, (ast.Assign, ast.AugAssign)) and _answers(node.value, told):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                told |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
        found += [
            f"line {node.lineno}: if {ast.unparse(node.test)}"
            for node in ast.walk(function)
            if isinstance(node, ast.If) and _answers(node.test, told) and any(_runs(line, known) for line in node.body)
        ]
    return found


def _answers(value, told):
    return any(
        (isinstance(one, ast.Call) and _called(one) in CHANGES and isinstance(one.func, ast.Attribute))
        or (isinstance(one, ast.Name) and one.id in told)
        for one in ast.walk(value)
    )


MODULES = _modules()
RUNNERS = runners(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_what_follows_a_change_is_read_from_the_host(name):
    assert hanging(MODULES[name], RUNNERS) == []


@pytest.mark.parametrize(
    "lines",
    [
        "if ledger.write(path, text): process.output(['systemctl', 'daemon-reload'], env)",
        "made = ledger.write(path, text)\n    if made and not check: process.output(['systemctl', 'restart', unit], env)",
        "gone = [path for path in paths if ledger.restore(path)]\n    if gone: anew(env)",
        "changed = services.take_down(ledger, env)\n    changed = changed or other\n    if changed: there.anew(env)",
    ],
)
def test_it_would_be_seen(lines):
    text = f"def anew(env):\n    process.output(['udevadm', 'trigger'], env)\ndef act(ledger, env):\n    {lines}\n"
    tree = ast.parse(text)
    assert len(hanging(tree, runners({"x": tree}))) == 1


def test_what_the_host_says_is_let_be():
    tree = ast.parse(
        "def act(ledger):\n    ledger.write(p, t)\n    if stale(p): process.output(['systemctl', 'x'], e)\n"
    )
    assert hanging(tree, runners({"x": tree})) == []
