"""A command that a text names is one that gpusetup has: pages, help, messages, units and templates follow a new name."""

import re
import subprocess
from pathlib import Path

from gpusetup.cli import grammar
from gpusetup.cli.commands import ALIASES, COMMANDS, WITHOUT_OWN, first_words

ROOT = Path(__file__).resolve().parents[2]
PLACES = (
    "README.md",
    "CONTRIBUTING.md",
    "docs",
    "gpusetup",
    "gpusetup_fleet",
    "plugins",
    "roles",
    "playbooks",
    "inventory",
    "tools",
)
RECORDS = ("docs/benchmarks/", "gpusetup/matrix/data/")
"""What was measured or published, as it was then."""
FIRST = {*first_words(), *ALIASES, *grammar.tables()["meant_by_command"], "help", "version"}
"""What may follow `gpusetup`: names, and words that get the answer which name is meant."""
SECOND = {name.partition(" ")[2] for name in COMMANDS} - FIRST - {""}
COMMAND = re.compile(r"(?:`|\$\(|\$ )(?:sudo )?gpusetup ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?")
BEHEADED = re.compile(rf"(?<!from )(?<![\w@.-])gpusetup ({'|'.join(sorted(SECOND))})(?![\w=/.-])")
"""The second word of a command without its first, anywhere."""


def wrong(text):
    found = [match[0] for match in BEHEADED.finditer(text)]
    for match in COMMAND.finditer(text):
        first, second = match[1], match[2] or ""
        if first not in FIRST or (first in WITHOUT_OWN and second and f"{first} {second}" not in COMMANDS):
            found.append(match[0])
    return found


def test_every_command_that_a_text_names_exists():
    listed = subprocess.run(["git", "ls-files", *PLACES], cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in listed.stdout.splitlines() if not name.startswith(RECORDS) and (ROOT / name).is_file()]
    texts = {name: (ROOT / name).read_text(encoding="utf-8", errors="replace") for name in names}
    assert len(texts) > 500
    found = {name: said for name, text in texts.items() if (said := wrong(text))}
    assert not found, "\n".join(f"{name}: {', '.join(said)}" for name, said in found.items())


def test_an_old_name_is_found():
    assert (
        wrong("run `gpusetup fleet history gpu07`, gpusetup doctor, `gpusetup why cuda` and gpusetup for hosts") == []
    )
    assert wrong("as `gpusetup histories gpu07` or `gpusetup fleet hist`") == [
        "`gpusetup histories gpu", "`gpusetup fleet hist",
    ]  # fmt: skip
    assert wrong("hint: run gpusetup history gpu07") == ["gpusetup history"]
    assert wrong("ExecStart=/opt/bin/gpusetup history") == ["gpusetup history"]
