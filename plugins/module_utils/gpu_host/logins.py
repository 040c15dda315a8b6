"""User names and passwords in the addresses of repositories: moved into files that only root can read."""

import re
from typing import List, NamedTuple, Optional, Tuple
from urllib.parse import unquote

from .failure import HostFailure

_LOGIN = re.compile(r"^([a-z][a-z0-9+.-]*://)([^/@\s:]*):([^/@\s]*)@(.*)$", re.IGNORECASE | re.DOTALL)


class Login(NamedTuple):
    """A login for an address, which is stored without it."""

    address: str
    user: str
    password: str


def split(uri: str) -> Tuple[str, Optional[Login]]:
    """Return an address without its login, and the login if it has one."""
    match = _LOGIN.fullmatch(uri)
    if match is None:
        return uri, None
    scheme, user, password, rest = match.groups()
    return scheme + rest, Login(scheme + rest, unquote(user), unquote(password))


def without(uris: List[str]) -> List[str]:
    """Return addresses without their logins."""
    return [split(uri)[0] for uri in uris]


def of(name: str, uris: List[str]) -> List[Login]:
    """Return the logins of a repository's addresses; fail if one could reach another line or word of a file."""
    found = [login for _address, login in map(split, uris) if login is not None]
    for login in found:
        if re.search(r"[\s\x00-\x1f]", login.user + login.password) or not login.user:
            raise HostFailure(
                "GS-444",
                f"the login in an address of repository {name} has no user name, or a space in it",
                hint="write user:password before the @ of the address, in each of them without spaces",
            )
    return found


def one_of(name: str, uris: List[str]) -> Optional[Login]:
    """Return the login of a repository; fail if there are several."""
    found = of(name, uris)
    if len({(login.user, login.password) for login in found}) > 1:
        raise HostFailure(
            "GS-444",
            f"the addresses of repository {name} have several logins, and dnf and zypper take one for a repository",
            hint="make a repository of each address",
        )
    return found[0] if found else None
