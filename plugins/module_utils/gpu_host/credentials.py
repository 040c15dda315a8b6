"""Keys and passwords that systemd passes to a service, so that only root can read their files."""

import os
import re
from typing import Dict, Iterable, Iterator, Tuple

from . import process

_SINCE = 247
"""The first systemd with LoadCredential."""


def refusals(paths: Iterable[Tuple[str, bool]], env: Dict[str, str], instead: str) -> Iterator[Tuple[str, str]]:
    """Yield (message, hint) for missing files, secrets open to everybody (paths marked True), and too old a systemd."""
    for path, secret in paths:
        if not os.path.isfile(path):
            yield f"{path} is not on this host", "put it there, or correct its path"
        elif secret and os.stat(path).st_mode & 0o007:
            yield f"{path} can be read by everybody", "chmod 600 " + path
    found = re.match(r"systemd (\d+)", process.output(["systemctl", "--version"], env, 20)[1])
    if found and int(found.group(1)) < _SINCE:
        said = f"systemd {found.group(1)} cannot hand a key to a service without opening it to others ({_SINCE} can)"
        yield said, instead
