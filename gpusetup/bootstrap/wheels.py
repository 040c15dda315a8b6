"""pip, and the tags and markers of other machines' Pythons."""

import os
import re
import sys
import time

from packaging.markers import default_environment
from packaging.tags import Tag, compatible_tags, cpython_tags

from gpusetup.bootstrap.web import authorities
from gpusetup.drive.runner import Finished, run

_TRIES, _PAUSE = 3, 5.0
_BROKE_OFF = re.compile(
    r"IncompleteRead|Connection broken|Connection aborted|Connection reset|ConnectionResetError|ProtocolError"
    r"|Read timed out|ReadTimeout|ChunkedEncodingError|incomplete-download|after connection broken by"
    r"|\b(?:408|425|429|5\d\d) (?:Client|Server) Error"
)
"""pip's messages for broken downloads: it retries refused connections, but not answers that end half-way."""


def pip(*arguments: str, deadline: float, pause: float = _PAUSE, **environment: str) -> Finished:
    """Run this Python's pip; retry broken downloads within the deadline."""
    env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **environment}
    trusted = authorities()
    if isinstance(trusted, str):
        env.setdefault("PIP_CERT", trusted)
    argv = [sys.executable, "-m", "pip", arguments[0], "--quiet", *arguments[1:]]
    end = time.monotonic() + deadline
    for attempt in range(1, _TRIES + 1):
        done = run(argv, env=env, deadline=max(end - time.monotonic(), 1.0))
        if done.ok or done.timed_out or attempt == _TRIES or not _BROKE_OFF.search(done.err):
            break
        time.sleep(pause * attempt)
    return done


def last_words(done: Finished) -> str:
    """Return the last lines of pip's errors, without warnings."""
    lines = [line for line in done.err.splitlines() if line.strip()]
    return "\n  ".join([line for line in lines if not line.startswith("WARNING")][-6:])


_GLIBC = "2.28"
_OLDEST_GLIBC = 4
_OLD_NAMES = {"manylinux2014": 17, "manylinux2010": 12, "manylinux1": 5}
"""Old names of platforms → minor version of glibc 2."""


def target_tags(python: str, arch: str, glibc: str = _GLIBC) -> list[str]:
    """Return pip's options for another Python and glibc; all minor versions are listed, as pip implies none."""
    short = "cp" + python.replace(".", "")
    tags = [tag for abi in (short, "abi3", "none") for tag in ("--abi", abi)]
    minors = range(int(glibc.partition(".")[2]), _OLDEST_GLIBC, -1)
    platforms = [f"manylinux_2_{minor}_{arch}" for minor in minors] + [f"manylinux2014_{arch}"]
    places = [tag for platform in platforms for tag in ("--platform", platform)]
    return ["--only-binary=:all:", "--implementation", "cp", "--python-version", python, *tags, *places]


def wheel_tags(python: str, arch: str, newest: int) -> list[Tag]:
    """Return the wheel tags that a Python accepts with glibc 2.`newest`, the best first."""
    version = [int(part) for part in python.split(".")]
    abi = "cp" + python.replace(".", "")
    platforms = []
    for minor in range(newest, _OLDEST_GLIBC, -1):
        platforms.append(f"manylinux_2_{minor}_{arch}")
        platforms += [f"{name}_{arch}" for name, its in _OLD_NAMES.items() if its == minor]
    platforms.append(f"linux_{arch}")
    return [*cpython_tags(version, [abi], platforms), *compatible_tags(version, abi, platforms)]


def target_environment(python: str, arch: str) -> dict[str, str]:
    """Return the values of environment markers on another machine."""
    environment = {key: str(value) for key, value in default_environment().items()}
    return environment | {
        "python_version": python, "python_full_version": f"{python}.0", "platform_machine": arch, "extra": "",
        "sys_platform": "linux", "platform_system": "Linux", "os_name": "posix",
        "implementation_name": "cpython", "platform_python_implementation": "CPython",
    }  # fmt: skip
