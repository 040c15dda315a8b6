"""The page "Questions people ask": every block is run, and says what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from gpusetup.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guides" / "questions.md"
BLOCKS = re.findall(r"^```console\n\$ gpusetup (.*)\n((?:.*\n)*?)```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
HAS_GPU = any(path.read_text().strip() == "0x10de" for path in Path("/sys/bus/pci/devices").glob("*/vendor"))


def test_the_page_has_its_blocks() -> None:
    assert len(BLOCKS) == PAGE.read_text(encoding="utf-8").count("```console") > 30


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=[command for command, _ in BLOCKS])
def test_the_answer_is_today_s(
    command: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if command.startswith("verify") and HAS_GPU:
        pytest.skip("the page shows a machine without a GPU")
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("GPUSETUP_MATRIX", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    try:
        code = main(shlex.split(command))
    except SystemExit as stop:  # the command line's own grammar
        code = int(stop.code or 0)
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
