"""Group hosts that have the same failure, and shorten lists of host names."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

Host = TypeVar("Host")
_ADDRESS = re.compile(
    r"(?:(?<=host )|(?<=hostname ))[\w.:%-]+?(?= port |: )"
    r"|(?<=onnection to )[\w.:%-]+?(?= port )"
    r"|(?<=host \")[\w.:%-]+(?=\")"
)
"""Addresses in messages of ssh and Ansible."""
_NAMED = 4


def common(text: str, *own: str) -> str:
    """Return a message with HOST in place of the names `own` and of the address that ssh tried."""
    for name in filter(None, own):
        text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", "HOST", text)
    return _ADDRESS.sub("HOST", text)


def grouped(
    hosts: Mapping[str, Host], told: Callable[[Host], str], alike: Callable[[str, Host], Host]
) -> list[tuple[list[str], str]]:
    """Return groups of hosts with the same message; a host that is alone keeps its own wording."""
    groups: dict[str, list[str]] = {}
    for name, host in hosts.items():
        groups.setdefault(told(alike(name, host)), []).append(name)
    return [(names, told(hosts[names[0]]) if len(names) == 1 else text) for text, names in groups.items()]


def counted(number: int, noun: str) -> str:
    """Return `1 host` or `3 hosts`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def tally(states: Sequence[str]) -> str:
    """Return `3 hosts: 2 done, 1 failed`."""
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    return f"{counted(len(states), 'host')}: {counts}"


def in_short(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    if len(names) <= _NAMED + 1:
        return ", ".join(names)
    return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"
