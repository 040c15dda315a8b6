"""Read the exact pins of a requirements file."""

import re
from typing import Dict, Iterable

from .names import python_name

_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?\s*==\s*([^\s;\\]+)")


def pins(lines: Iterable[str]) -> Dict[str, str]:
    """Return {normalised name: version} of the `==` pins without environment markers."""
    found = {}
    for line in lines:
        match = _PIN.match(line.strip())
        if match and ";" not in line:
            found[python_name(match.group(1))] = match.group(2)
    return found
