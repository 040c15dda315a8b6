"""./dev test mutation: break the core in seeded places, one at a time, and see whether the tests that run through them notice.

  ./dev test mutation                        200 places of all groups
  ./dev test mutation --places 50 resolve    fewer, of one group
  ./dev test mutation --seed 2               other places

A place is a comparison, a boolean operator, a number or truth value, a call whose result nobody takes, or a return. The tests of a
group are collected once; a first copy of the process runs them all and notes which functions each test enters. For every place
another copy replaces the code of that one function in memory and runs the tests that enter it, quickest first, until one fails.
No file is written. What tests do in processes of their own is not seen, and what is worked out when a module is imported stays.
"""

import argparse
import ast
import contextlib
import copy
import gc
import importlib
import importlib.machinery
import io
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from itertools import zip_longest
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import pytest
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).resolve().parent.parent
HOST_CODE = "plugins/module_utils"
GROUPS = {
    "resolve": ("gpusetup/resolve", "tests/unit/resolve", "tests/golden", "tests/property"),
    "matrix": ("gpusetup/matrix", "tests/unit/matrix", "tests/golden", "tests/data"),
    "plan": ("gpusetup/plan", "tests/unit/plan", "tests/golden", "tests/hosts"),
    "components": ("gpusetup/components", "tests/unit/plan", "tests/golden"),
    "verify": ("gpusetup/verify", "tests/unit/verify", "tests/golden"),
    "probe": (f"{HOST_CODE}/gpu_probe", "tests/unit/facts", "tests/golden", "tests/hosts"),
    "judge": (f"{HOST_CODE}/gpu_judge", "tests/unit/judge", "tests/unit/plan", "tests/golden", "tests/hosts"),
    "host": (f"{HOST_CODE}/gpu_host", "tests/modules", "tests/golden"),
    "modules": ("plugins/modules", "tests/modules"),
}
"""What is broken, and the tests that mirror it."""
LEAST, FACTOR = 60.0, 10.0
"""Seconds that the tests of one place may take: at least, and as a multiple of what they took before. Longer counts as noticed."""
OPPOSITE: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip

Function = tuple[str, str, int]
"""File, name and first line."""


class Place(NamedTuple):
    """Where the core is broken, and how it reads then."""

    function: Function
    line: int
    was: str
    broken: str
    code: CodeType


class Found(NamedTuple):
    """What came of one place."""

    place: Place
    by: str
    """The test that noticed it, or nothing."""
    tried: int


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what a node is replaced with; the same node where it is changed itself."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in OPPOSITE:
        new = copy.copy(node)
        new.ops = [OPPOSITE[type(node.ops[0])](), *node.ops[1:]]
        yield new
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(op=OPPOSITE[type(node.op)](), values=node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield ast.Pass()
    elif isinstance(node, ast.Return) and node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):  # fmt: skip
        yield ast.Return(ast.Constant(None))


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Yield the functions and methods of a module; what is inside a function belongs to it."""
    left: list[ast.AST] = list(tree.body)
    while left:
        node = left.pop(0)
        if isinstance(node, ast.FunctionDef):
            yield node
        elif isinstance(node, (ast.ClassDef, ast.If, ast.Try)):
            left = [*ast.iter_child_nodes(node), *left]


def _first_line(function: ast.FunctionDef) -> int:
    return min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])


def _code(code: CodeType, name: str, line: int) -> CodeType | None:
    """The code of one function in that of its module."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if (inner.co_name, inner.co_firstlineno) == (name, line):
                return inner
            if (found := _code(inner, name, line)) is not None:
                return found
    return None


class Core:
    """The files that are broken."""

    def __init__(self, folder: str) -> None:
        self.files = {str(path): path.read_text(encoding="utf-8") for path in sorted((ROOT / folder).rglob("*.py"))}
        self.entered: set[Function] = set()

    def note(self) -> None:
        """From now on every function of these files notes that it was entered, by whatever name its module is imported."""
        usual: Callable[..., CodeType | None] = importlib.machinery.SourceFileLoader.get_code
        core = self

        def get_code(loader: importlib.machinery.SourceFileLoader, name: str) -> CodeType | None:
            path = os.path.realpath(loader.get_filename(name))
            return core.noting(path, loader.get_filename(name)) if path in core.files else usual(loader, name)

        importlib.machinery.SourceFileLoader.get_code = get_code

    def noting(self, path: str, shown: str) -> CodeType:
        """The code of a file, with a first statement in each function."""
        tree = ast.parse(self.files[path])
        for function in _functions(tree):
            key = (path, function.name, _first_line(function))
            seen = ast.parse(f"__import__('builtins')._entered({key!r})").body[0]
            for node in ast.walk(seen):
                ast.copy_location(node, function.body[0])
            function.body.insert(1 if ast.get_docstring(function) is not None else 0, seen)
        __import__("builtins")._entered = self.entered.add
        return compile(tree, shown, "exec", dont_inherit=True)

    def places(self) -> Iterator[Place]:
        """Every place, each with the code of its function as it is then."""
        for path, text in self.files.items():
            tree = ast.parse(text)
            for function in _functions(tree):
                line = _first_line(function)
                inside = [node for statement in function.body for node in ast.walk(statement)]
                for parent in (function, *inside):
                    for name, value in ast.iter_fields(parent):
                        if (parent is function and name != "body") or name in ("returns", "annotation"):
                            continue  # its own defaults and decorators are no part of its code
                        for index, node in enumerate(value if isinstance(value, list) else [value]):
                            yield from self._of(path, tree, function, line, parent, name, index, node)

    def _of(self, path: str, tree: ast.Module, function: ast.FunctionDef, line: int, parent: ast.AST, name: str, index: int, node: Any) -> Iterator[Place]:  # fmt: skip
        kept = getattr(parent, name)
        for new in _changes(node) if isinstance(node, ast.AST) else ():
            ast.copy_location(new, node)
            setattr(parent, name, [*kept[:index], new, *kept[index + 1 :]] if isinstance(kept, list) else new)
            ast.fix_missing_locations(function)
            code = _code(compile(tree, path, "exec", dont_inherit=True), function.name, line)
            told = (ast.unparse(node), ast.unparse(new))
            setattr(parent, name, kept)
            if code is not None:
                yield Place((path, function.name, line), node.lineno, *told, code)


@cache
def _real(path: str) -> str:
    return os.path.realpath(path)


def put_in(place: Place) -> int:
    """Give the live functions the broken code; return how many there are."""
    path, name, line = place.function
    done = 0
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType):
            code = thing.__code__
            if code.co_name == name and code.co_firstlineno == line and _real(code.co_filename) == path:
                thing.__code__ = place.code.replace(co_filename=code.co_filename)
                done += 1
    return done


def _passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Run one test, quietly."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        reports = runtestprotocol(item, log=False, nextitem=following)
    return all(report.passed or report.skipped for report in reports)


def _copy(work: Callable[[Callable[[Any], None]], None], seconds: float) -> tuple[list[Any], bool]:
    """Do work in a copy of this process; return what it told, and whether it came to its end in time."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(reading)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        code = 1
        with contextlib.suppress(BaseException), os.fdopen(writing, "w") as stream:
            work(lambda told: print(json.dumps(told), file=stream, flush=True))
            code = 0
        os._exit(code)
    os.close(writing)
    deadline, said, status = time.monotonic() + seconds, b"", -1
    while select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(reading, 1 << 16)
        if not part:
            status = os.waitpid(child, 0)[1]  # the last word said, it ends
            break
        said += part
    os.close(reading)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if status == -1:
        status = os.waitpid(child, 0)[1]
    whole, _newline, _cut = said.decode().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()], status == 0


class Group:
    """One part of the core and its tests; a pytest plugin that takes the place of pytest's own loop."""

    def __init__(self, name: str, places: int, seed: int) -> None:
        self.name, self.wanted, self.seed = name, places, seed
        self.core = Core(GROUPS[name][0])
        self.found: list[Found] = []
        self.never = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Note what each test enters, then break one place after the other."""
        began = time.monotonic()
        told, _ended = _copy(lambda tell: self._note(session.items, tell), 7200)
        enters: dict[Function, list[int]] = defaultdict(list)
        took = {number: seconds for number, seconds, _functions in told}
        for number, _seconds, functions in sorted(told, key=lambda item: item[1]):
            for function in functions:
                enters[tuple(function)].append(number)
        print(f"{self.name}: {len(took)} of {len(session.items)} tests, {time.monotonic() - began:.0f} s", flush=True)
        for path in self.core.files:  # what tests import late too, so that every copy has it
            name = os.path.relpath(path, ROOT).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            importlib.import_module(f"ansible_collections.gpusetup.stack.{name}" if name[0] == "p" else name)
        every = sorted(self.core.places(), key=lambda place: (place.function, place.line, place.was, place.broken))
        for place in random.Random(f"{self.seed} {self.name}").sample(every, min(self.wanted, len(every))):
            numbers = enters[place.function]
            self.never += not numbers
            found = self._broken(place, [(number, session.items[number]) for number in numbers], took)
            self.found.append(found)
            if not found.by:
                shown = os.path.relpath(place.function[0], ROOT)
                print(f"  {shown}:{place.line} {place.function[1]}: {place.was} -> {place.broken}   ({found.tried} tests)", flush=True)  # fmt: skip
        return True

    def _note(self, items: list[pytest.Item], tell: Callable[[Any], None]) -> None:
        for number, item in enumerate(items):
            self.core.entered.clear()
            began = time.monotonic()
            if _passes(item, items[number + 1] if number + 1 < len(items) else None):
                tell([number, time.monotonic() - began, sorted(self.core.entered)])

    def _broken(self, place: Place, items: list[tuple[int, pytest.Item]], took: dict[int, float]) -> Found:
        if not items:
            return Found(place, "", 0)

        def work(tell: Callable[[Any], None]) -> None:
            if not put_in(place):
                raise LookupError(place.function)  # told as a copy that broke off: never as noticed
            tell(["in"])
            for (_number, item), following in zip_longest(items, [item for _number, item in items[1:]]):
                if not _passes(item, following):
                    tell([item.nodeid])
                    break

        seconds = LEAST + FACTOR * sum(took[number] for number, _item in items)
        told, ended = _copy(work, seconds)
        if not told:
            raise SystemExit(f"{place.function} is in no module that the tests import")
        by = told[1][0] if len(told) > 1 else "" if ended else "it did not come to an end"
        return Found(place, by, len(items))


def main(arguments: list[str]) -> int:
    """Print the survivors and the score."""
    parser = argparse.ArgumentParser(prog="./dev test mutation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}; default: all")
    parser.add_argument(
        "--places", type=int, default=200, help="how many, in proportion to the size of the groups (200)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--least", type=float, default=0.0, help="exit with 1 where fewer percent are noticed")
    parser.add_argument("--tell", type=Path, help=argparse.SUPPRESS)
    told = parser.parse_args(arguments)
    if unknown := [name for name in told.groups if name not in GROUPS]:
        parser.error(f"unknown group {unknown[0]}; there are: {', '.join(GROUPS)}")
    os.chdir(ROOT)
    if told.tell is not None:  # one group, in the process that the lines below started
        told.tell.write_text(json.dumps(_alone(told.groups[0], told.places, told.seed)))
        return 0
    names = told.groups or list(GROUPS)
    sizes = {name: sum(1 for _ in Core(GROUPS[name][0]).places()) for name in names}
    rows = []
    for name in names:  # each in a process of its own: what one imports, the next one finds untouched
        share = max(1, round(told.places * sizes[name] / sum(sizes.values())))
        with tempfile.TemporaryDirectory() as folder:
            tell = Path(folder) / "told"
            words = ("--tell", str(tell), "--places", str(share), "--seed", str(told.seed), name)
            if (
                subprocess.run([sys.executable, "-m", "tests.mutation", *words], check=False).returncode
                or not tell.exists()
            ):
                print(f"{name}: broke off", file=sys.stderr)
                return 1
            rows.append((name, *json.loads(tell.read_text())))
    print("\ngroup     places  noticed  entered by no test")
    for row in rows:
        print(f"{row[0]:<9} {row[1]:>6}  {row[2]:>7}  {row[3]:>18}")
    tried, noticed = sum(row[1] for row in rows), sum(row[2] for row in rows)
    print(f"\n{noticed} of {tried} places were noticed: {100 * noticed / tried:.1f} % (seed {told.seed})")
    return 1 if 100 * noticed / tried < told.least else 0


def _alone(name: str, places: int, seed: int) -> tuple[int, int, int]:
    """Places of a group that were broken, those that were noticed, and those in functions that no test enters."""
    group = Group(name, places, seed)
    group.core.note()
    arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not lab and not gpu", *GROUPS[name][1:]]
    if pytest.main(arguments, plugins=[group]) not in (0, 5):
        raise SystemExit(f"the tests of {name} cannot be collected")
    return len(group.found), sum(1 for found in group.found if found.by), group.never


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
