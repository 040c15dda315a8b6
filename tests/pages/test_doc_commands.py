"""Every command of the documentation is one that gpusetup takes; those that need no host and no GPU are run.

`test_questions.py`, `test_watch_pages.py`, `test_health_page.py`, `test_contributing.py` compare whole answers. Here stands what they leave: a command is
parsed by the program's own parser, and run unless `NEEDS` says what it would need.
"""

import ast
import re
import shlex
from pathlib import Path

import pytest

from gpusetup.cli import options
from gpusetup.cli.commands import ALIASES, COMMANDS
from gpusetup.cli.main import _one_name, _parsed, _plain_words, command_parser, main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")),
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CODE_OF_CONDUCT")),
]
COMPARED = (
    "guides/questions.md", "guides/package-questions.md", "guides/watch.md", "guides/compare.md", "guides/health.md",
    "CONTRIBUTING.md",
)  # fmt: skip
"""Pages whose blocks other tests run with their answers."""
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SHELL = ("console", "sh", "bash", "")
INLINE = re.compile(r"`((?:sudo )?gpusetup [^`]+)`")
NEEDS = {
    "apply": "a host to change", "fleet audit": "changes of before", "fleet known-hosts": "hosts", "cloud-init bootstrap": "a new instance", "bundle": "the network", "cloud-init": "a bundle",
    "fleet pull": "a collector", "fleet collect": "a certificate", "fleet token": "a place to write", "fleet forget": "a collector", "fleet offer": "a key to sign with",
    "fleet compare": "several hosts", "drift": "a host with a record", "facts": "a host, but for --root",
    "export handover": "hosts", "fleet history": "verifications of before", "lock": "a place to write", "export monitoring": "a place to write",
    "plan": "a host", "remove": "a host with a record", "rollback": "a host with a record", "cloud-init status": "a new instance",
    "fleet health": "a GPU", "verify": "a GPU, but for --explain", "watch": "a GPU", "matrix import": "a release of the matrix", "bundle serve": "a bundle",
    "matrix export": "a key to sign with",
    "matrix eol": "hosts", "doctor": "a host, but for a message",
    "resolve why": "a name", "resolve why-not": "a name", "resolve": "a place to write", "export content": "nothing, and says a place",
}  # fmt: skip
"""Commands that are parsed and not run, and why."""
OTHERS = {
    "./dev", "ansible-galaxy", "ansible-playbook", "ansible-pull", "cat", "docker", "echo", "export", "git", "kubectl", "mkdir", "podman",
    "pip", "printf", "python", "python3", "sed", "ssh", "vglrun", "uv",
    "dmesg", "grep", "ls", "pipx", "systemctl", "~/gpusetup/bin/pip", "~/gpusetup/bin/gpusetup", "sh", "chattr", "ssh-keygen", "ssh-keyscan", "packer",
    "useradd", "chown", "tar", "zstd", "split", "etcdctl",
}  # fmt: skip
"""Programs that need a host, a GPU, a cluster or minutes of their own; nothing of them is checked here."""


def _commands(page):
    text = page.read_text(encoding="utf-8")
    found = [match[1] for match in INLINE.finditer(FENCE.sub("", text))]
    if page.relative_to(ROOT).as_posix().removeprefix("docs/") in COMPARED:
        return found
    for block in (block for block in FENCE.finditer(text) if block[1] in SHELL):
        prompted = re.search(r"^ *\$ ", block[2], re.MULTILINE)
        lines = map(str.strip, re.sub(r"\\\n\s*", " ", block[2]).splitlines())
        found += [line.removeprefix("$ ") for line in lines if line and (not prompted or line.startswith("$ "))]
    return found


def _words(line):
    """Return the words of each command of a line, without sudo, variables before it, and where its answer goes."""
    tokens = shlex.shlex(re.split(r"(?<=\S)\s{2,}(?=[^\s-])", line)[0], posix=True, punctuation_chars=";|&><")
    tokens.whitespace_split = True
    told: list[list[str]] = [[]]
    for token in tokens:
        if token in ("|", "&&", ";"):
            told.append([])
        elif not (not told[-1] and (token == "sudo" or re.fullmatch(r"[A-Z_]+=\S*", token))):
            told[-1].append(token)
    return [
        words[: min((words.index(sign) for sign in (">", ">>", "<") if sign in words), default=None)]
        for words in told
        if words
    ]


def _needs(words):
    """Return what a command would need to be run."""
    name, *rest = _one_name(words)
    return "a real name" if _left_open(rest) else NEEDS.get(name, "")


def _left_open(words):
    return any(word.isupper() and word.isalpha() for word in words)  # CAUSE, REQ, FILE


def _runs(words):
    """Tell whether a command needs neither host nor GPU: what looks things up, and what explains."""
    name, *rest = _one_name(words)
    if "--out" in rest or _left_open(rest):
        return False
    if "--explain" in rest:
        return True
    if name == "facts":
        return "--root" in rest and (ROOT / rest[rest.index("--root") + 1]).is_dir()
    if name == "doctor":
        return bool(rest) and (" " in rest[0] or rest[0].startswith("GS-"))
    return name not in NEEDS and (bool(rest) or name in ("matrix", "export schema", "man"))


ALL = [(page.relative_to(ROOT).as_posix(), line) for page in PAGES for line in dict.fromkeys(_commands(page))]
OURS = [
    (page, words[1:])
    for page, line in ALL
    if "…" not in line
    for words in _words(line)
    if words[0] == "gpusetup" and words[1:]
]
DISTINCT = list({" ".join(words): words for _, words in OURS}.values())
RUN = [words for words in DISTINCT if _runs(words)]


@pytest.mark.parametrize("words", DISTINCT, ids=" ".join)
def test_a_command_is_one_that_gpusetup_takes(words):
    name, *rest = _one_name(_plain_words(words))
    if name.startswith("--"):
        return
    assert name in COMMANDS
    if len(rest) > 1:
        options.refuse_idle(_parsed(parser := command_parser(name), rest), parser)
    elif rest and rest[0].startswith("--"):  # a mention of an option, its value may be left out
        assert rest[0] in command_parser(name).format_help(whole=True)


def test_a_command_is_run_unless_it_is_known_what_it_would_need():
    assert [" ".join(words) for words in DISTINCT if not _runs(words) and not _needs(words)] == []
    assert len(RUN) > 25


@pytest.mark.parametrize("words", RUN, ids=" ".join)
def test_it_runs(words, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert main(words) in (0, 4, 8), capsys.readouterr().err  # 4: that is the answer; 8: the doctor found a cause


def test_every_line_of_a_block_is_ours_or_of_a_program_that_is_listed():
    begun = {words[0]: f"{page}: {line}" for page, line in ALL if "…" not in line for words in _words(line)}
    assert [place for program, place in begun.items() if program != "gpusetup" and program not in OTHERS] == []


TOLD = re.compile(r"gpusetup ((?:[a-z][a-z-]+ ?){1,2})((?:(?!&&|\$\(|, then|, or | \| )[^;`\n])*)")


def test_every_option_that_a_message_names_is_one_of_its_command():
    options_of = {name: command_parser(name)._option_string_actions for name in COMMANDS}
    options_of |= {short: options_of[name] for short, name in ALIASES.items()}
    texts = [path.read_text("utf-8") for path in (ROOT / "gpusetup").rglob("*.json")]
    for path in (*ROOT.glob("gpusetup*/**/*.py"), *(ROOT / "plugins").rglob("*.py")):
        found = ast.walk(ast.parse(path.read_text("utf-8")))
        texts += [one.value for one in found if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    wrong, seen = set(), 0
    for told in (match for text in texts for match in TOLD.finditer(text)):
        words = told[1].split()
        name = next((one for one in (" ".join(words), words[0]) if one in options_of), "")
        for option in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", told[2]) if name else ():
            wrong |= set() if option in options_of[name] else {told[0]}
            seen += 1
    assert (wrong, seen > 300) == (set(), True)
