"""What `./dev test` runs: stages one after the other, each said to have run, failed or been skipped with the reason."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests import changes, programs
from tests.collection import NOT_HERE, SHOPS, asked, collection_built, quick, whole
from tests.lab import turns
from tests.lab.places import LabError

ROOT = Path(__file__).resolve().parent.parent
QUICK = (
    "architecture", "cli", "crosscheck", "data", "golden", "hosts", "modules", "property", "unit",
)  # fmt: skip
REAL = (
    "cli/test_completion.py", "modules/test_container_runtime.py", "modules/test_stand_in_deb.py", "modules/test_venv.py",
)  # fmt: skip
"""Tests of these folders that need seconds each, because pip, dpkg, container runtimes and shells really run; they rarely break."""
SIDE_BY_SIDE = ("-n", str(min(4, os.cpu_count() or 1)))
_ENOUGH = 6 << 30


class Outcome(NamedTuple):
    stage: str
    state: str
    seconds: float
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    note: str = ""


def _run(*argv: str, env: dict[str, str] | None = None) -> int:
    print("\n$ " + " ".join(argv), flush=True)
    return subprocess.run(argv, cwd=ROOT, env={**os.environ, **(env or {})}, check=False).returncode


def _counts(report: Path) -> tuple[int, int, int]:
    """Passed, failed, skipped; where programs can be installed, a skip that is for something else than hardware is a failure."""
    if not report.exists():
        return 0, 1, 0
    suite = ET.parse(report).getroot().find("testsuite")
    assert suite is not None
    total, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    passed = total - failed - skipped
    reasons = [skip.get("message", "") for skip in suite.iter("skipped") if skip.get("type") == "pytest.skip"]
    avoidable = [reason for reason in reasons if not programs.HARDWARE.search(reason)]
    if avoidable and programs.installs():
        print(
            "\nSkipped for something else than hardware, which counts as failed:", *sorted(set(avoidable)), sep="\n  "
        )
        failed, skipped = failed + len(avoidable), skipped - len(avoidable)
    return passed, failed, skipped


def _memory() -> str | None:
    """A folder in memory for the tests' own files, so that none waits for a disk; None where there is too little."""
    try:
        room = os.statvfs("/dev/shm")
        free = int(Path("/proc/meminfo").read_text().partition("MemAvailable:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return None
    enough = min(room.f_bavail * room.f_frsize, free) >= _ENOUGH
    return "/dev/shm" if enough and not room.f_flag & os.ST_NOEXEC and os.access("/dev/shm", os.W_OK) else None


def _pytest(stage: str, *arguments: str) -> Outcome:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="", dir=None if stage.startswith("lab") else _memory()) as folder:
        report = Path(folder) / "report.xml"
        # A short place for the tests' own files: SSH's sockets in them have 104 letters at most.
        places = (f"--junitxml={report}", f"--basetemp={folder}/t")
        code = _run(sys.executable, "-m", "pytest", "-q", *places, *arguments)
        passed, failed, skipped = _counts(report)
    if code not in (0, 5) and not failed:
        failed = 1
    state = "failed" if failed else "passed" if passed else "skipped"
    return Outcome(stage, state, time.monotonic() - began, passed, failed, skipped)


def _ended(stage: str, began: float, failed: int, passed: int, note: str = "") -> Outcome:
    return Outcome(stage, "failed" if failed else "passed", time.monotonic() - began, passed, failed, note=note)


def _commands(stage: str, *commands: tuple[str, ...]) -> Outcome:
    began = time.monotonic()
    failed = sum(1 for command in commands if _run(*command) != 0)
    return _ended(stage, began, failed, len(commands) - failed)


def lint() -> Outcome:
    commands: list[tuple[str, ...]] = [
        ("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",), (sys.executable, "-m", "tools.house"),
    ]  # fmt: skip
    if (ROOT / ".yamllint").exists():
        commands.append(("yamllint", "--strict", "."))
    if (ROOT / ".ansible-lint").exists():
        commands.append(("ansible-lint", "--offline", "-q"))
    return _commands("lint", *commands)


def unit() -> Outcome:
    folders = [f"tests/{name}" for name in QUICK if (ROOT / "tests" / name).exists()]
    left_out = [f"--ignore=tests/{name}" for name in REAL]
    return _pytest("unit", *SIDE_BY_SIDE, "-m", "not lab and not gpu and not fuzz", *left_out, *folders)


PLAIN = {  # stages that only run tests, side by side
    "fuzz": ("-m", "fuzz", "tests/unit", "tests/fleet"),  # ten thousand hostile inputs each; others try a sample
    "fleet": ("-m", "not fuzz", "tests/fleet"),  # gpusetup-fleet, with real rpm, nginx, etcd and ssh servers
    "drive": ("-m", "not fuzz", "tests/drive", *(f"tests/{name}" for name in REAL)),  # real Ansible, AWX, git servers
    "tools": ("-m", "not fuzz", "tests/tools"),  # what maintainers run: refresh of the matrix, releases, pictures
    "pages": ("tests/pages",),  # the commands of the documentation, and what they say
}


def package() -> Outcome:
    """Build the sdist, the wheel from that sdist, install it alone, and use it away from the checkout; then the collection
    with the Ansible that came along and without gpusetup."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        python = str(Path(folder) / "venv" / "bin" / "python")
        codes = [
            _run(sys.executable, "-m", "build", "--outdir", folder, str(ROOT)),
            _run(sys.executable, "-m", "build", "--outdir", folder, "--wheel", str(ROOT / "gpusetup_fleet")),
            _run(sys.executable, "-m", "venv", str(Path(folder) / "venv")),
        ]
        wheel = next((str(path) for path in Path(folder).glob("gpusetup-*.whl")), "no-wheel-was-built")
        codes.append(_run(python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", wheel))
        for command in (
            ("export", "content", "path"),
            ("matrix", "torch==2.6.*", "--gpu", "v100"),
            ("apply", "--help"),
        ):
            print(f"\n$ gpusetup {' '.join(command)}   (the installed wheel)", flush=True)
            codes.append(subprocess.run([python, "-m", "gpusetup", *command], cwd=folder, check=False).returncode)
        watch = (python, "-m", "gpusetup", "watch", "--help")
        codes.append(int(subprocess.run(watch, cwd=folder, check=False).returncode != 3))
        codes.append(_run(python, "-m", "pip", "install", "-qq", "--find-links", folder, f"{wheel}[fleet]"))
        asked = (watch, (*watch[:3], "export", "schema", "fleet"), (*watch[:3], "fleet", "history", "--help"))
        codes += [subprocess.run(command, cwd=folder, check=False).returncode for command in asked]
        codes.append(_run(python, "-m", "pip", "uninstall", "-qq", "-y", "gpusetup-fleet", "gpusetup"))
        collection = Path(folder) / "collection"
        collection.mkdir()
        wrong = quick(collection, Path(python).parent)
        print("\n".join(wrong))
        codes.append(len(wrong))
    failed = sum(1 for code in codes if code != 0)
    return _ended("package", began, failed, len(codes) - failed)


def site() -> Outcome:
    """Build the site, which checks its links, and look at what was written."""
    return _pytest("site", "tests/site")


def sanity() -> Outcome:
    """The built collection under ansible-test, as far as it needs no container; fetches what ansible-test asks for."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        wrong = whole(Path(folder), Path(sys.executable).parent)
    print("\n".join(wrong))
    return _ended("sanity", began, int(bool(wrong)), int(not wrong), f"without {', '.join(NOT_HERE)}")


def _needs_root(stage: str) -> Outcome | None:
    if os.geteuid() != 0:
        return Outcome(stage, "skipped", 0, note="needs root (sudo ./dev test " + stage + ")")
    if shutil.which("apt-get") is None:
        return Outcome(stage, "skipped", 0, note="builds its hosts with Debian's tools: needs Debian or Ubuntu")
    return None


def _on_hosts(stage: str, workers: str, *words: str) -> Outcome:
    side_by_side = ("-n", workers, "--dist", "loadfile", "--durations=12")
    return _needs_root(stage) or _pytest(stage, *side_by_side, *words)


ON_HOSTS = {  # stages that run tests on throw-away hosts
    "lab": (str(max(2, min(4, os.cpu_count() or 1))), "-m", "lab and not slow and not long", "tests/lab"),
    "lab-long": ("2", "-m", "lab and long", "tests/lab"),  # minutes each, and they rarely break
    "lab-arm": ("1", "-m", "lab and emulated", "tests/lab"),  # an hour: qemu runs the hosts' programs
}


def lab_slow() -> Outcome:
    """What takes hours: all of it, or the turn that GPUSETUP_TURN names."""
    tests, note = turns.found(), ""
    if named := os.environ.get("GPUSETUP_TURN"):
        turn, count, tests = turns.chosen(tests, int(named))
        note = f"turn {turn} of {count}; again: GPUSETUP_TURN={turn} ./dev test lab-slow"
    outcome = _on_hosts("lab-slow", "2", *tests)
    return outcome._replace(note=outcome.note or note)


def _fault_table(stage: str, program: str, page: str) -> Outcome:
    if refused := _needs_root(stage):
        return refused
    began = time.monotonic()
    failed = _run(sys.executable, "-m", program) != 0
    return _ended(stage, began, int(failed), int(not failed), page)


def faults() -> Outcome:
    """Break hosts in every known way."""
    return _fault_table("faults", "tests.lab.faults", "docs/reference/faults.md")


def vm() -> Outcome:
    """The first boot of a virtual machine with cloud-init, a kernel and a boot loader of its own."""
    return _needs_root("vm") or _pytest("vm", "-m", "vm", "--durations=4", "tests/vm")


def vm_faults() -> Outcome:
    """Hurt virtual machines during their first boot."""
    return _fault_table("vm-faults", "tests.vm.faults", "docs/reference/vm-faults.md")


def molecule() -> Outcome:
    if refused := _needs_root("molecule"):
        return refused
    if _run(sys.executable, "-m", "pip", "install", "-qq", "--group", "molecule") != 0:
        return Outcome("molecule", "failed", 0, failed=1, note="molecule could not be installed")
    scenarios = sorted(path.parent.parent.name for path in ROOT.glob("roles/*/molecule/default"))
    began = time.monotonic()
    plays = map(str, ROOT.glob("roles/*/molecule"))  # not part of lint, where each play costs seconds
    failed = int(_run("ansible-lint", "--offline", "-q", "-c", os.devnull, "--profile", "production", *plays) != 0)
    for role in scenarios:
        print(f"\n$ molecule test ({role})", flush=True)
        done = subprocess.run(["molecule", "test"], cwd=ROOT / "roles" / role, check=False)
        failed += done.returncode != 0
    state = "failed" if failed else "passed" if scenarios else "skipped"
    return Outcome("molecule", state, time.monotonic() - began, len(scenarios) + 1 - failed, failed)


def audit() -> Outcome:
    """SBOM of the wheel and known vulnerabilities of what it brings; needs the network."""
    from tools.audit import SBOM
    from tools.audit import audit as looked

    began = time.monotonic()
    try:
        wrong, unsaid = looked()
    except subprocess.CalledProcessError as error:
        wrong, unsaid = [f"exit {error.returncode}: {' '.join(map(str, error.cmd))}"], ""
    print("\n".join(wrong))
    state = "failed" if wrong else "skipped" if unsaid else "passed"
    counts = (int(state == "passed"), len(wrong), int(state == "skipped"))
    return Outcome("audit", state, time.monotonic() - began, *counts, note=unsaid or str(SBOM.relative_to(ROOT)))


def index() -> Outcome:
    """Let pip and uv resolve every line that `resolve --install` prints, and other parsers read the rest; needs the network."""
    if _run(sys.executable, "-m", "pip", "install", "-qq", "--group", "index") != 0:
        return Outcome("index", "failed", 0, failed=1, note="uv and the parsers could not be installed")
    return _pytest("index", "-n", "2", "tests/index", "tests/unit/bootstrap/test_full_locks.py")


def inventories() -> Outcome:
    """The inventory plugins of clouds and NetBox, real, in an environment of their own (2 GB); needs the network."""
    home = Path(sys.prefix) / "inventories"
    python, lists = str(home / "bin/python"), "ansible_collections/azure/azcollection/requirements.txt"
    pip = (python, "-m", "pip", "install", "-qq", "--disable-pip-version-check")
    began = time.monotonic()
    codes = [_run(sys.executable, "-m", "venv", str(home))]
    codes.append(_run(*pip, "pip>=25.1"))  # knows groups
    codes.append(_run(*pip, "-e", str(ROOT), "--group", "test", "--group", "inventories"))
    codes += [_run(*pip, "-r", str(path)) for path in home.glob(f"lib/*/site-packages/{lists}")]
    if any(codes):
        return Outcome("inventories", "failed", time.monotonic() - began, failed=1, note="could not be installed")
    failed = _run(python, "-m", "pytest", "-q", "tests/inventories") != 0
    return _ended("inventories", began, int(failed), int(not failed))


def shops() -> Outcome:
    """What the places ask where people find projects: licences, a citation, image files, the changelog, the collection as
    Galaxy takes it. Every program comes from the Python index, in an environment of its own; needs the network."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        built = collection_built(Path(folder), "https://example.org/gpusetup/gpusetup")
        wrong = [line for argv in SHOPS for line in asked(argv, built)]
    print("\n".join(wrong))
    return _ended("shops", began, len(wrong), len(SHOPS) - bool(wrong))


def gpu() -> Outcome:
    if shutil.which("nvidia-smi") is None:
        return Outcome("gpu", "skipped", 0, note="no NVIDIA GPU here")
    return _pytest("gpu", "-m", "gpu", "tests/gpu")


STAGES = {
    "lint": lint, "unit": unit, **{name: partial(_pytest, name, *SIDE_BY_SIDE, *words) for name, words in PLAIN.items()},
    "package": package, "site": site, "sanity": sanity, **{name: partial(_on_hosts, name, *words) for name, words in ON_HOSTS.items()},
    "lab-slow": lab_slow, "faults": faults, "vm": vm, "vm-faults": vm_faults, "molecule": molecule, "audit": audit, "index": index,
    "inventories": inventories, "shops": shops, "gpu": gpu,
}  # fmt: skip
DEFAULT = ("lint", "unit", "package", "pages", "lab", "gpu")
ALL = (*DEFAULT, *changes.TOUCH)  # with what takes long and rarely breaks


def _wanted(names: list[str]) -> list[str]:
    """The stages that these words mean."""
    if names in (["all"], ["changed"]) and "GPUSETUP_TURN" not in os.environ:
        os.environ["GPUSETUP_TURN"] = changes.commits()
        print(f"GPUSETUP_TURN={os.environ['GPUSETUP_TURN']}, the number of commits, chooses the turn of lab-slow")
    if names == ["all"]:
        return list(ALL)
    if names != ["changed"]:
        return names or list(DEFAULT)
    decided = changes.decided()
    for stage, (runs, why) in decided.items():
        print(f"{stage}: {'runs' if runs else 'does not run'}, {why}")
    return [*DEFAULT, *(stage for stage, (runs, _why) in decided.items() if runs)]


def _prepared(names: list[str]) -> None:
    """Install the programs of all stages, before the first begins."""
    for name in names:
        if lacking := programs.prepare(name):
            print(
                f"{name}: lacks {', '.join(lacking)}; this user cannot install them, or apt-get could not", flush=True
            )


def _outcome(name: str) -> Outcome:
    try:
        return STAGES[name]()
    except LabError as error:
        print(f"\n{error}")
        return Outcome(name, "failed", 0, failed=1, note="could not begin")


def _all_of(names: list[str]) -> list[Outcome]:
    """Run stages one after the other, the lab beside the others: it waits most of the time. What it printed comes at the end."""
    beside_them = [name for name in names if name.startswith("lab")]
    others = [name for name in names if name not in beside_them]
    if not beside_them or not others:
        return [_outcome(name) for name in names]
    with tempfile.TemporaryDirectory() as folder:
        told, printed = Path(folder) / "outcome", Path(folder) / "printed"
        environment = {**os.environ, "GPUSETUP_OUTCOME": str(told)}
        with printed.open("w") as stream:
            argv = [sys.executable, "-m", "tests.stages", *beside_them]
            beside = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=stream, stderr=subprocess.STDOUT)
        try:
            os.nice(5)  # the lab's hosts have deadlines
            outcomes = [_outcome(name) for name in others]
            beside.wait()
        finally:
            beside.terminate()
            beside.wait()
            print(f"\nthe lab, which ran beside these:\n{printed.read_text(errors='replace')}", flush=True)
        ended = json.loads(told.read_text()) if told.exists() else []
    early = [(name, "failed", 0.0, 0, 1, 0, "it ended early") for name in beside_them]
    return outcomes + [Outcome(*item) for item in ended or early]


def main(names: list[str]) -> int:
    if names[:1] in (["real"], ["mutation"]):  # they have arguments of their own
        return _run(sys.executable, "-m", f"tests.{names[0]}", *names[1:])
    unknown = [name for name in names if name not in STAGES] if names not in (["all"], ["changed"]) else []
    if unknown:
        print(f"unknown stage {unknown[0]}; there are: all, changed, {', '.join(STAGES)}", file=sys.stderr)
        return 2
    wanted = _wanted(names)
    before = programs.here(wanted)
    _prepared(wanted)
    outcomes = _all_of(wanted)
    if told := os.environ.get("GPUSETUP_OUTCOME"):
        Path(told).write_text(json.dumps(outcomes))
        return 0
    print("\nstage      state     seconds  passed  failed  skipped")
    for item in outcomes:
        print(
            f"{item.stage:<10} {item.state:<9} {item.seconds:>7.0f}  {item.passed:>6}  {item.failed:>6}  "
            f"{item.skipped:>7}  {item.note}".rstrip()
        )
    left_out = [name for name in STAGES if name not in {item.stage for item in outcomes}]
    if left_out:
        print(f"not run: {', '.join(left_out)} (./dev test STAGE; ./dev test all: {', '.join(changes.TOUCH)} too)")
    if before:
        print(f"here before, so that getting them was not tested: {', '.join(before)} (./dev test bare)")
    passed, failed, skipped = (
        sum(getattr(item, name) for item in outcomes) for name in ("passed", "failed", "skipped")
    )
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
