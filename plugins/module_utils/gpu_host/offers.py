"""What the configured (or previewed) repositories offer for name patterns: every version, newest first, transitional
packages marked.
"""

import fnmatch
import re
from typing import Any, Dict, List, Sequence, Union

from ..gpu_judge import versions
from ..gpu_probe.candidates import parse_policy
from . import process
from .apt import Apt
from .dnf import Dnf
from .failure import HostFailure
from .zypper import Zypper

Offers = Dict[str, List[Dict[str, Any]]]


def look(host: Union[Apt, Dnf, Zypper], patterns: Sequence[str]) -> Offers:
    """Return {name: [{"version", "size", "transitional", "source"}]} for globs over package names."""
    if not patterns:
        return {}
    if isinstance(host, Apt):
        return _apt(host, patterns)
    return _dnf(host, patterns) if isinstance(host, Dnf) else _zypper(host, patterns)


def _apt(host: Apt, patterns: Sequence[str]) -> Offers:
    # apt's own pattern search takes a second for ten patterns.
    text = _asked(host, "pkgnames")
    wanted = re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns))
    names = sorted(name for name in set(text.split()) if wanted.match(name))
    if not names:
        return {}
    text = _asked(host, "policy", *names)
    found = {name: package["versions"] for name, package in parse_policy(text).items() if package["candidate"]}
    if not found:
        return {}
    text = _asked(host, "show", *sorted(found))
    details = {}
    for stanza in text.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|Size|Section|Description(?:-\w+)?): (.*)$", stanza, re.MULTILINE))
        details[fields.get("Package"), fields.get("Version")] = fields
    return {
        name: [_offer(version, details.get((name, version["version"]), {})) for version in several]
        for name, several in found.items()
    }


def _asked(host: Apt, *words: str) -> str:
    """Run apt-cache; fail if it cannot read its lists, which is not the same as an empty repository."""
    code, text, error = process.output(["apt-cache", *host.options, *words], host.env, 120)
    if code:
        said = "; ".join(line for line in error.splitlines() if line.startswith("E:")) or error.strip()[-300:]
        raise HostFailure(
            "GS-449", "apt cannot read the package lists", said, hint="run the same command again in a minute"
        )
    return text


def _offer(version: Dict[str, Any], fields: Dict[str, str]) -> Dict[str, Any]:
    summary = next((value for key, value in fields.items() if key.startswith("Description")), "")
    return {
        "version": version["version"],
        "size": int(fields["Size"]) if fields.get("Size", "").isdigit() else None,
        "transitional": "transitional" in summary.lower() or fields.get("Section", "").endswith("oldlibs"),
        "source": ", ".join(version["sources"]),
    }


def _dnf(host: Dnf, patterns: Sequence[str]) -> Offers:
    rows = host.repoquery(patterns, ["--available", "--disable-modular-filtering"])
    found: Offers = {}
    for name, version, _arch, repository, size, summary in rows or host.repoquery(patterns, ["--available"]):
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            offer = {
                "version": versions.bare(version),
                "size": int(size) if size.isdigit() else None,
                "transitional": "transitional" in summary.lower(),
                "source": repository,
            }
            found.setdefault(name, []).append(offer)
    for offers in found.values():
        offers.sort(key=lambda offer: [int(piece) for piece in re.findall(r"\d+", offer["version"])], reverse=True)
    return found


def _zypper(host: Zypper, patterns: Sequence[str]) -> Offers:
    """Zypper reports no sizes before a transaction, and sorts newest first."""
    found: Offers = {}
    for row in host.search(patterns):
        if any(fnmatch.fnmatchcase(row["name"], pattern) for pattern in patterns):
            offer = {"version": row["edition"], "size": None, "transitional": False, "source": row["repository"]}
            found.setdefault(row["name"], []).append(offer)
    return found
