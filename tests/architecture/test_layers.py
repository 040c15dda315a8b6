"""Who may import whom, with no circles and nothing slow; who may touch the world; how long a module may be."""

import ast
import json
import os
import subprocess
import sys

import pytest

from tests.architecture import imports as layout
from tests.architecture.files import files
from tests.architecture.imports import PACKAGE, imports, modules, name_of, tree

LAYERS = (
    ("errors",),
    ("versions",),
    ("content",),
    ("model",),
    ("matrix",),
    ("resolve",),
    ("components",),  # below plan, which knows none of them by its name; above resolve, whose stack they stand beside
    ("plan",),
    ("drive",),
    ("recovery",),
    ("facts", "verify", "doctor"),
    ("report",),
    ("monitoring",),
    ("rollout",),
    ("bootstrap",),
    ("fleet.ssh",),
    ("fleet.model",),
    ("fleet.health", "fleet.watch", "fleet.compare", "fleet.handover", "fleet.supply"),
    ("fleet.pull",),
    ("cli", "api"),
    ("fleet.cli",),
)
"""`fleet.` begins the parts of gpusetup_fleet, which gpusetup itself never imports."""
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
OUTSIDE = {"__main__", "callback_plugins", "inventory_plugins"}
"""The program's door, and the adapters that Ansible loads inside its own processes."""
INSIDE_ANSIBLE = ("gpusetup.drive.callback", "gpusetup.drive.forked")
"""What is Ansible's process: to leave it with a code is its way to refuse a run, and to end one."""
IMPURE = {
    "os", "subprocess", "socket", "time", "random", "requests", "yaml", "io", "pathlib", "datetime", "shutil", "sys",
}  # fmt: skip
LONGEST = 500
"""An alarm, not a shape to cut files to."""


def part_of(module):
    """Return the part that a module belongs to: `resolve` for gpusetup.resolve.search, `fleet.pull` for gpusetup_fleet.pull.web."""
    package, _, rest = module.partition(".")
    return f"{'fleet.' if package == 'gpusetup_fleet' else ''}{rest.split('.')[0]}" if rest else ""


def calls(path):
    """Return every call of a module, with the words of what is called."""
    nodes = (node for node in ast.walk(tree(path)) if isinstance(node, ast.Call))
    return [(node, ast.unparse(node.func)) for node in nodes]


def pointing_right(path):
    """Imports of what stands to the right in the order of the layers."""
    mine = part_of(name_of(path))
    if mine in OUTSIDE | {""}:
        return
    for found in imports(path):
        other = part_of(found.module) if found.module.startswith(("gpusetup.", "gpusetup_fleet.")) else ""
        if other in ("", "__version__") or other == mine:
            continue
        if (
            other.startswith("fleet.") > mine.startswith("fleet.")
            or LEVEL[other] > LEVEL[mine]
            or (LEVEL[other] == LEVEL[mine] and not found.typing_only)
        ):
            yield f"{path}:{found.line}: {mine} imports {found.module}"


def impure(path):
    """What touches the world where answers are worked out."""
    if part_of(name_of(path)) not in ("resolve", "components", "plan"):
        return
    for found in imports(path):
        if not found.typing_only and found.module.split(".")[0] in IMPURE:
            yield f"{path}:{found.line}: {found.module}"
    for node, called in calls(path):
        if called in ("open", "input", "exec", "eval", "__import__"):
            yield f"{path}:{node.lineno}: {called}()"


def printing(path):
    """What prints or exits outside the command line; a stream that the command line handed in may be written to."""
    if part_of(name_of(path)) in ("cli", "fleet.cli", *OUTSIDE) or name_of(path) in INSIDE_ANSIBLE:
        return
    for node, called in calls(path):
        target = next((ast.unparse(word.value) for word in node.keywords if word.arg == "file"), "sys.stdout")
        handed = called == "print" and not target.startswith("sys.")
        if not handed and called in ("print", "sys.exit", "exit", "quit", "os._exit", "sys.stdout.write"):
            yield f"{path}:{node.lineno}: {called}()"
    for raised in ast.walk(tree(path)):
        if isinstance(raised, ast.Raise) and raised.exc is not None and "SystemExit" in ast.unparse(raised.exc):
            yield f"{path}:{raised.lineno}: SystemExit"


def starting_processes(path):
    """What starts a process outside the runner."""
    if name_of(path) == "gpusetup.drive.runner":
        return
    for found in imports(path):
        if not found.typing_only and found.module.split(".")[0] == "subprocess":
            yield f"{path}:{found.line}: {found.module}"
    for node, called in calls(path):
        if called.startswith(("os.system", "os.popen", "os.exec", "os.spawn")):
            yield f"{path}:{node.lineno}: {called}()"


def taking_the_command_line(path):
    """What reads the command line's arguments below the command line: there they are frozen options."""
    if part_of(name_of(path)) in ("cli", "fleet.cli", *OUTSIDE):
        return
    for node in ast.walk(tree(path)):
        named = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if named == "Namespace" or (isinstance(node, ast.alias) and node.name.startswith("argparse")):
            yield f"{path}: {named or 'argparse'}"


def silent(path):
    """A module that does not say what it is for."""
    if not ast.get_docstring(tree(path)):
        yield str(path)


@pytest.mark.parametrize(
    "rule", [pointing_right, impure, printing, starting_processes, taking_the_command_line, silent]
)
def test_every_module_keeps_the_rule(rule):
    assert [broken for path in modules() for broken in rule(path)] == []


@pytest.mark.parametrize(
    ("rule", "place", "text"),
    [
        (pointing_right, "model/x.py", "import gpusetup.cli.main"),
        (pointing_right, "model/x.py", "from gpusetup.plan import host"),
        (pointing_right, "verify/x.py", "import gpusetup.doctor.scan"),
        (pointing_right, "cli/x.py", "def f():\n    from gpusetup_fleet.watch import view"),
        (impure, "resolve/x.py", "import os"),
        (impure, "plan/x.py", "def f():\n    return open('x')"),
        (printing, "drive/x.py", "print('x')"),
        (printing, "drive/x.py", "import sys\nprint('x', file=sys.stderr)"),
        (printing, "drive/x.py", "raise SystemExit(1)"),
        (starting_processes, "supply/x.py", "def f():\n    import subprocess"),
        (starting_processes, "supply/x.py", "import os\nos.execvp('x', [])"),
        (taking_the_command_line, "rollout/x.py", "def f(arguments: argparse.Namespace) -> None: ..."),
        (taking_the_command_line, "rollout/x.py", "import argparse"),
        (silent, "supply/x.py", "x = 1"),
    ],
)
def test_each_rule_sees_what_breaks_it(rule, place, text, tmp_path, monkeypatch):
    path = tmp_path / "gpusetup" / place
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(layout, "PACKAGE", tmp_path / "gpusetup")
    assert list(rule(path)) != []


def test_no_file_is_long():
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files(PACKAGE.parent).values()}
    assert {str(path): lines for path, lines in lengths.items() if lines > LONGEST} == {}


def test_nothing_is_called_utils():
    assert not [path for path in modules() if path.stem in ("utils", "helpers", "common", "misc")]


def test_every_part_of_the_package_has_its_place():
    parts = {part_of(name_of(path)) for path in modules()}
    assert parts - {""} <= set(LEVEL) | OUTSIDE


ROOT = PACKAGE.parent
COLLECTION = "ansible_collections.gpusetup.stack."


def statements(node):
    """Yield every statement, however deep; expressions, most of a tree, hold no import."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from statements(child)


def named(module, path):
    """Yield what an import may mean, the likeliest first: a file, or a name inside a file."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    # Files of a folder that is no package run by themselves and find their neighbours by their bare names.
    beside = "" if (path.parent / "__init__.py").exists() else f"{package}."
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name.removeprefix(COLLECTION), beside + alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = (node.module or "").removeprefix(COLLECTION)
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            for alias in node.names:
                yield f"{base}.{alias.name}", base, beside + base


def graph(root):
    """Return the files that each file imports."""
    known = files(root)
    found = {}
    for module, path in known.items():
        needed = (next((name for name in names if name in known), module) for names in named(module, path))
        found[module] = set(needed) - {module}
    return found


def circles(needs):
    """Return each circle once: what is left when files that need nothing more are taken away again and again."""
    left = {module: set(needed) for module, needed in needs.items()}
    while free := {module for module, needed in left.items() if not needed & left.keys()}:
        left = {module: needed for module, needed in left.items() if module not in free}
    found = {}
    for start in left:
        way = [start]
        while (step := min(left[way[-1]] & left.keys())) not in way:
            way.append(step)
        circle = way[way.index(step) :]
        first = circle.index(min(circle))
        found[frozenset(circle)] = " -> ".join([*circle[first:], *circle[:first], circle[first]])
    return sorted(found.values())


def test_no_two_files_import_each_other_in_a_circle():
    assert circles(graph(ROOT)) == []


def test_a_circle_is_seen_however_it_is_hidden(tmp_path):
    for name, text in {
        "gpusetup/__init__.py": "",
        "gpusetup/a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from gpusetup.b import B\n",
        "gpusetup/b.py": "def f():\n    from gpusetup import c\n",
        "gpusetup/c.py": "import gpusetup.a\n",
        "gpusetup/d.py": "import gpusetup.a\n",
        "plugins/module_utils/one/__init__.py": "from . import x\n",
        "plugins/module_utils/one/x.py": "from .y import z\n",
        "plugins/module_utils/one/y.py": f"from {COLLECTION}plugins.module_utils import one\n",
        "plugins/module_utils/two/p.py": "import q\n",
        "plugins/module_utils/two/q.py": "from p import what\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    one, two = "plugins.module_utils.one", "plugins.module_utils.two"
    assert circles(graph(tmp_path)) == [
        "gpusetup.a -> gpusetup.b -> gpusetup.c -> gpusetup.a",
        f"{one} -> {one}.x -> {one}.y -> {one}",
        f"{two}.p -> {two}.q -> {two}.p",
    ]


NEVER = (
    "rich", "jinja2", "requests", "urllib3", "ansible", "yaml", "asyncio", "concurrent", "http", "email", "tomllib",
    "argcomplete",
)  # fmt: skip
"""Heavy modules that no lookup needs."""
HOSTS_ONLY = (
    *(f"gpusetup.components.{name}" for name in ("driver", "base", "judge")), "gpusetup_host_code",
)  # fmt: skip
"""What is known of a host and its package managers: a question about versions has no host."""
LOOKUPS = (
    ("matrix", "--format", "json"),
    ("matrix", "torch==2.6.*", "--gpu", "v100", "--format", "json"),
    ("matrix", "torch==2.6.*", "--format", "csv"),
    ("resolve", "--format", "json"),
    ("resolve", "torch", "--gpu", "h100", "--os", "ubuntu24.04", "--format", "json"),
    ("why", "cuda", "--format", "json"),
    ("why-not", "cuda=13.1", "--gpu", "v100", "--format", "json"),
)
PROBE = """
import json, sys
before = set(sys.modules)
from gpusetup.cli.main import main
code = main(sys.argv[1:])
print(json.dumps({"code": code, "loaded": sorted(set(sys.modules) - before)}), file=sys.stderr)
"""


def loaded_by(*argv):
    """Return the modules that a command imports in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "GPUSETUP_MATRIX"}
    done = subprocess.run([sys.executable, "-c", PROBE, *argv], capture_output=True, text=True, check=False, timeout=120, env=environment)  # fmt: skip
    told = json.loads(done.stderr.splitlines()[-1])
    assert told["code"] in (0, 4), done.stderr
    return set(told["loaded"])


@pytest.mark.parametrize("argv", LOOKUPS, ids=" ".join)
def test_a_lookup_imports_nothing_heavy(argv):
    loaded = loaded_by(*argv)
    assert not {module for module in loaded if module.split(".")[0] in NEVER}
    assert not {
        module
        for module in loaded
        if module.startswith(("gpusetup.drive", "gpusetup.verify", "gpusetup.bootstrap", "gpusetup.report"))
    }


@pytest.mark.parametrize("argv", [*LOOKUPS, ("resolve",), ("resolve", "vllm", "--os", "ubuntu24.04"), ("matrix", "vllm")], ids=" ".join)  # fmt: skip
def test_a_lookup_imports_nothing_of_hosts(argv):
    assert not {module for module in loaded_by(*argv) if module.startswith(HOSTS_ONLY)}


def test_what_a_host_of_the_lab_lacks_is_not_needed_for_a_text():
    code = "import sys, gpusetup.report.formats, gpusetup.cli.verify; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {name.split(".")[0] for name in loaded} & {"markupsafe", "jinja2", "rich", "requests", "ansible"}


def test_help_and_version_import_no_matrix():
    for argv in (("--help",), ("--version",), ("verify", "--help")):
        code = "import sys; sys.argv = ['gpusetup', *sys.argv[1:]]\ntry:\n from gpusetup.cli.main import main; main(sys.argv[1:])\nexcept SystemExit: pass\nprint(sorted(m for m in sys.modules if m in ('msgspec', 'packaging', 'gpusetup.matrix.load', 'rich', 'jinja2', 'requests', 'ansible', 'sqlite3', 'hashlib')), file=sys.stderr)"  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", code, *argv], capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stderr.strip() == "[]"


def test_only_the_used_commands_module_is_imported():
    commands = {module for module in loaded_by("why", "cuda", "--format", "json") if module.startswith("gpusetup.cli.")}
    shared = {"main", "commands", "grammar", "options", "output", "requests", "streams", "why"}
    assert commands <= {f"gpusetup.cli.{name}" for name in shared}
