"""What the shell's TAB gets, asked the way argcomplete asks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def _complete(line: str, folder: Path) -> list[str]:
    answer = folder / "answer"
    environment = {
        **os.environ,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    subprocess.run([sys.executable, "-m", "gpusetup"], env=environment, check=False, timeout=60)
    return [word.strip() for word in answer.read_text().split("\013") if word.strip()]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("gpusetup res", {"resolve"}),
        ("gpusetup why", {"why", "why-not"}),
        ("gpusetup matrix --for", {"--format", "--forward"}),
        ("gpusetup resolve --arch ", {"x86_64", "aarch64"}),
    ],
)
def test_tab(line: str, expected: set[str], tmp_path: Path) -> None:
    assert expected <= set(_complete(line, tmp_path))
