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
        ("gpusetup resolve --gpu gh2", {"gh200\\ 480gb"}),
        ("gpusetup matrix --os ubuntu2", {"ubuntu22.04", "ubuntu24.04"}),
        ("gpusetup resolve flash", {"flash-attn", "flashinfer-python"}),
        ("gpusetup export schema why", {"why", "why-not"}),
        ("gpusetup matrix im", {"import"}),
        ("gpusetup matrix tor", {"torch"}),
        ("gpusetup matrix import --", {"--quiet", "--format"}),
        ("gpusetup fleet t", {"token"}),
        ("gpusetup fleet offer --", {"--format"}),
        ("gpusetup bundle un", {"unpack"}),
        ("gpusetup apply --engine ", {"ansible", "slurm"}),
        ("gpusetup fleet pull --", {"--timer", "--class"}),
        ("gpusetup fleet known-h", {"known-hosts"}),
        ("gpusetup resolve wh", {"why", "why-not"}),
    ],
)
def test_tab(line: str, expected: set[str], tmp_path: Path) -> None:
    assert expected <= set(_complete(line, tmp_path))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_a_shell_reads(shell: str, tmp_path: Path) -> None:
    script = tmp_path / "completion"
    subprocess.run(
        [sys.executable, "-m", "gpusetup", "export", "completion", shell, "--out", script], check=True, timeout=60
    )
    text = script.read_text()
    assert "gpusetup" in text
    if shell == "bash":
        subprocess.run(["bash", "-n", script], check=True, timeout=10)
