import os
import subprocess
import sys
from pathlib import Path

from gpusetup.drive.runner import descendants, end_all

BREEDER = """
import os, sys, time
while True:  # a family that grows while it is ended, each child in a session of its own
    if os.fork() == 0:
        os.setsid()
        time.sleep(60)
        os._exit(0)
    print(end=".", flush=True)
    time.sleep(0.001)
"""


def test_a_family_that_grows_while_it_is_ended_is_ended_whole():
    with subprocess.Popen([sys.executable, "-c", BREEDER], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(20)
        seen = descendants([process.pid])
        assert len(seen) >= 10
        end_all([process.pid])
        born = len(process.stdout.read()) + 20
    left = [pid for pid in range(process.pid, process.pid + born + 50) if _waits_in_a_session_of_its_own(pid)]
    assert left == []


def _waits_in_a_session_of_its_own(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid and b"os.setsid()" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
