"""What the configured (or previewed) repositories offer for name patterns: every version, newest first, stubs marked."""

import fnmatch
import os
import re

from ..gpu_probe.candidates import parse_policy
from . import process


def look(host, patterns):
    """Return {name: [{"version", "size", "transitional", "source"}]} for globs over package names."""
    if not patterns:
        return {}
    return _dnf(host, patterns) if host.name == "dnf" else _apt(host, patterns)


def _apt(host, patterns):
    # apt's own search by pattern takes a second for ten of them.
    _code, text, _error = process.output(["apt-cache", *host.options, "pkgnames"], host.env, 120)
    wanted = re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns))
    names = sorted(name for name in set(text.split()) if wanted.match(name))
    if not names:
        return {}
    _code, text, _error = process.output(["apt-cache", *host.options, "policy", *names], host.env, 120)
    found = {name: package["versions"] for name, package in parse_policy(text).items() if package["candidate"]}
    if not found:
        return {}
    _code, text, _error = process.output(["apt-cache", *host.options, "show", *sorted(found)], host.env, 120)
    details = {}
    for stanza in text.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|Size|Section|Description(?:-\w+)?): (.*)$", stanza, re.MULTILINE))
        details[fields.get("Package"), fields.get("Version")] = fields
    return {
        name: [_offer(version, details.get((name, version["version"]), {})) for version in versions]
        for name, versions in found.items()
    }


def _offer(version, fields):
    summary = next((value for key, value in fields.items() if key.startswith("Description")), "")
    return {
        "version": version["version"],
        "size": int(fields["Size"]) if fields.get("Size", "").isdigit() else None,
        "transitional": "transitional" in summary.lower() or fields.get("Section", "").endswith("oldlibs"),
        "source": ", ".join(version["sources"]),
    }


def _dnf(host, patterns):
    form = "%{name}\\t%{epoch}:%{version}-%{release}\\t%{arch}\\t%{repoid}\\t%{downloadsize}\\t%{summary}\\n"
    base = ["dnf", "-q", *host.options, "repoquery", "--showduplicates", "--available", "--qf", form]
    for extra in (["--disable-modular-filtering"], []):
        code, text, _error = process.output(base + extra + list(patterns), host.env, 300)
        if code == 0:
            break
    found = {}
    for line in text.splitlines():
        pieces = line.strip().split("\t")
        if len(pieces) != 6 or pieces[2] not in (os.uname()[4], "noarch"):
            continue
        if not any(fnmatch.fnmatchcase(pieces[0], pattern) for pattern in patterns):
            continue
        version = pieces[1][2:] if pieces[1].startswith("0:") else pieces[1]
        size = int(pieces[4]) if pieces[4].isdigit() else None
        offer = {
            "version": version,
            "size": size,
            "transitional": "transitional" in pieces[5].lower(),
            "source": pieces[3],
        }
        found.setdefault(pieces[0], []).append(offer)
    for offers in found.values():
        offers.sort(key=lambda offer: [int(piece) for piece in re.findall(r"\d+", offer["version"])], reverse=True)
    return found
