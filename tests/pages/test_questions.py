"""The README and the pages of questions: every block is run, and says what the page says."""

import io
import re
import shlex
from pathlib import Path

import pytest

from gpusetup.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ROOT / "docs" / "guides"
PAGES = [path.read_text() for path in (ROOT / "README.md", GUIDES / "questions.md", GUIDES / "package-questions.md")]
_BLOCK = re.compile(r"^```console\n((?:\$ (?:printf '[^']*' \| )?gpusetup .*\n)+)((?:.*\n)*?)```$", re.MULTILINE)
BLOCKS = [block for page in PAGES for block in _BLOCK.findall(page)]
"""Of several commands in a block the last one's answer is shown; the others write the files that it reads."""
HAS_GPU = any(path.read_text().strip() == "0x10de" for path in Path("/sys/bus/pci/devices").glob("*/vendor"))


def test_the_pages_have_their_blocks():
    assert len(BLOCKS) == sum(page.count("```console") for page in PAGES) > 50


def run(command, monkeypatch):
    """Run a line of the page as a shell would, in this process."""
    piped, _, command = command.removeprefix("$ ").rpartition("gpusetup ")
    text = piped.partition("'")[2].rpartition("'")[0].replace("\\n", "\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    try:
        return main(shlex.split(command))
    except SystemExit as stop:  # the command line's own grammar
        return int(stop.code or 0)


@pytest.mark.parametrize(("commands", "shown"), BLOCKS, ids=[commands.splitlines()[-1][2:] for commands, _ in BLOCKS])
def test_the_answer_is_today_s(commands, shown, monkeypatch, capsys, tmp_path):
    *before, command = commands.splitlines()
    if command.startswith("$ gpusetup verify") and HAS_GPU:
        pytest.skip("the page shows a machine without a GPU")
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPUSETUP_MATRIX", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    for line in before:
        assert run(line, monkeypatch) == 0
    capsys.readouterr()
    code = run(command, monkeypatch)
    said = capsys.readouterr()
    answer = [line for line in (said.out + said.err).splitlines() if line.strip()]
    lines = [line for line in shown.splitlines() if line.strip()]
    wanted = int(lines.pop()[6:-1]) if lines[-1].startswith("[exit ") else 0
    assert code == wanted
    place = 0
    for line in lines:
        if line != "…":
            assert line in answer[place:], f"not in the answer after line {place}: {line}"
            place = answer.index(line, place) + 1
