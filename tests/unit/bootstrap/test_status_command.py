"""`gpusetup cloud-init status`: words and exit codes for every state, waiting, and what is no status."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from msgspec.structs import replace

from gpusetup.bootstrap.machine import Limits, Moment, Outcome, advance, begin
from gpusetup.bootstrap.run import save
from gpusetup.cli.main import main
from gpusetup.model.status import Problem

NOW = Moment("2026-01-01T00:00:00Z", "b")
RUNNING = advance(begin(None, NOW), Outcome("ok"), Limits(), NOW)
DONE = advance(RUNNING, Outcome("ok", verified="pass"), Limits(), NOW)
REBOOTING = advance(RUNNING, Outcome("reboot", reasons=("nouveau is loaded",)), Limits(), NOW)
TROUBLE = Problem(reference="GS-1", message="no room", hint="make room", exit=5)
FAILED = advance(RUNNING, Outcome("problem", TROUBLE), Limits(), NOW)
PENDING = advance(RUNNING, Outcome("reboot", reasons=("another driver is loaded",)), Limits(asks=True), NOW)
HERE = Moment("2026-01-01T00:00:00Z", Path("/proc/sys/kernel/random/boot_id").read_text().strip())
SEALED = begin(None, HERE)
for _ in range(3):
    SEALED = advance(SEALED, Outcome("ok"), Limits(image=True), HERE)
COPY = replace(SEALED, boot="the boot that sealed it")


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (RUNNING, 9, ["step 3 of 4", "next: reboot when needed"]),
        (REBOOTING, 9, ["rebooting: nouveau is loaded", "reboot at 2026-01-01T00:00:00Z: nouveau is loaded"]),
        (DONE, 0, ["done since", "verification: pass"]),
        (PENDING, 9, ["pending-reboot since", "a reboot is needed: another driver is loaded"]),
        (SEALED, 0, ["sealed since", "the image is ready", "next: shut this machine down"]),
        (COPY, 9, ["step 1 of 4: waiting for cloud-init to start the service"]),
        (FAILED, 5, ["failed since", "last error: no room [GS-1]", "make room", "systemctl restart gpusetup-bootstrap"]),
    ],
)  # fmt: skip
def test_words_and_codes(tmp_path, status, code, words, capsys, printed):
    argv = ["cloud-init", "status", "--file", str(tmp_path / "status.json")]
    (tmp_path / "status.json").write_bytes(msgspec.json.encode(status))
    assert main(argv) == code
    text = capsys.readouterr().out
    assert all(word in text for word in words), text
    assert printed(code, *argv)["schema"] == "gpusetup/status/1"


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which only root can")
def test_an_ordinary_user_reads_the_status_and_nothing_else():
    """In the folder as an apply leaves it, as a user who owns nothing: the code is loaded before, as it may lie out of reach."""
    code = (
        "import os, sys\n"
        "from gpusetup.cli.main import main\n"
        "argv = ['cloud-init', 'status', '--file', sys.argv[1] + '/status.json']\n"
        "main(argv)\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "code = main(argv)\n"
        "for name in ('state.json', 'history', 'originals', '.'):\n"
        "    try: os.listdir(p) if os.path.isdir(p := sys.argv[1] + '/' + name) else open(p)\n"
        "    except PermissionError: continue\n"
        "    sys.exit(name + ' can be read')\n"
        "sys.exit(int(code))\n"
    )
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        Path(place).chmod(0o755)
        folder = Path(place) / "gpusetup"
        save(DONE, folder / "status.json", Path(place) / "motd")
        Ledger(str(folder)).write_history({"id": "20260101"}, keep=1)
        Ledger(str(folder)).write(str(Path(place) / "motd"), "ours")
        argv = [sys.executable, "-c", code, folder]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("done since") == 2
