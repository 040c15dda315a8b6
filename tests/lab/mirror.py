"""The Debian mirror and Python index that this machine is configured with; no host name is written here."""

import shlex
import sys
from functools import cache

from tests.lab.process import run

COMPONENTS = "main non-free-firmware"  # what a fresh Debian has: the driver's own components are not switched on


@cache
def _sites() -> dict[str, str]:
    """Label of the archive ("Debian", "Debian-Security") → its address in this machine's apt configuration."""
    listed = run(
        ["apt-get", "indextargets", "--format", "$(LABEL)|$(SITE)", "Created-By: Packages"], check=False,
    ).stdout  # fmt: skip
    pairs = (line.split("|", 1) for line in listed.splitlines() if "|" in line)
    return {label: site for label, site in pairs if label in {"Debian", "Debian-Security"}}


def sources(suite: str) -> list[str]:
    """Lines for sources.list; empty where apt knows no Debian (on Ubuntu): mmdebstrap then takes its own default."""
    return [f"deb {site} {name} {COMPONENTS}" for site, name in _suites(suite)]


def deb822(suite: str) -> str:
    """The same in the newer form, as Debian's images have it from 13 on."""
    return "\n".join(
        f"Types: deb\nURIs: {site}\nSuites: {name}\nComponents: {COMPONENTS}\n"
        "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
        for site, name in _suites(suite)
    )


def _suites(suite: str) -> list[tuple[str, str]]:
    sites = _sites()
    if "Debian" not in sites:
        return []
    security = [(sites["Debian-Security"], f"{suite}-security")] if "Debian-Security" in sites else []
    return [(sites["Debian"], suite), (sites["Debian"], f"{suite}-updates"), *security]


@cache
def apt_proxy() -> str | None:
    """The proxy that this machine's apt uses for http."""
    shown = run(["apt-config", "shell", "proxy", "Acquire::http::Proxy"], check=False).stdout.strip()
    value = shlex.split(shown.partition("=")[2])[0] if "=" in shown else ""
    return value if value.startswith("http") else None


def apt_options() -> list[str]:
    proxy = apt_proxy()
    return [f'--aptopt=Acquire::http::Proxy "{proxy}"'] if proxy else []


@cache
def pip_settings() -> dict[str, str]:
    """This machine's pip settings that mean something on another host: indexes reached over the network."""
    shown = run([sys.executable, "-m", "pip", "config", "list"], check=False).stdout
    settings: dict[str, str] = {}
    for line in shown.splitlines():
        key, _, value = line.partition("=")
        name, address = key.rpartition(".")[2], value.strip("'\"")
        if name in {"index-url", "extra-index-url"} and address.startswith("http"):
            settings[name] = address
    return settings
