"""Read the host's package sources, without any credentials."""

import re
from typing import Any, Dict, Iterator, List, Optional, Tuple

from .host import LiveHost

_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_NVIDIA = re.compile(r"nvidia|/cuda[-/]|libnvidia-container", re.IGNORECASE)
_OFF = ("0", "no", "false", "off", "without", "disable")
_ONE_LINE = re.compile(r"^(deb|deb-src)\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s*(.*)$")


def collect(host: LiveHost) -> List[Dict[str, Any]]:
    """Return every enabled source as {"file", "uri", "suites", "components", "signed_by", "nvidia"}."""
    found = []
    parts = host.names("/etc/apt/sources.list.d", "*.list") + host.names("/etc/apt/sources.list.d", "*.sources")
    for path in ["/etc/apt/sources.list"] + ["/etc/apt/sources.list.d/" + name for name in sorted(parts)]:
        if path.endswith(".list"):
            found += _list_file(path, host.read(path, "packages.sources", keep=without_secrets) or "")
        elif path.endswith(".sources"):
            found += _deb822_file(path, host.read(path, "packages.sources", keep=without_secrets) or "")
    for path, identity, fields in _repositories(host):
        if fields.get("enabled", "1").lower() not in _OFF:
            uri = fields.get("baseurl") or fields.get("metalink") or fields.get("mirrorlist") or ""
            signed = None if fields.get("gpgcheck", "1").lower() in _OFF else fields.get("gpgkey")
            found.append(_source(path, uri.split()[0] if uri else "", [identity], [], signed))
    return found


def disabled(host: LiveHost) -> List[str]:
    """Return the ids of the dnf and zypper repositories that are configured and switched off."""
    return [identity for _path, identity, fields in _repositories(host) if fields.get("enabled", "1").lower() in _OFF]


def without_secrets(text: str) -> str:
    """Return a sources file without comments, passwords and user names."""
    kept = []
    for line in text.splitlines():
        if line.lstrip().startswith("#") or re.match(r"\s*(username|password|proxy_password|sslclientkey)\s*=", line):
            continue
        kept.append(_CREDENTIALS.sub("", line))
    return "\n".join(kept) + "\n"


def _source(path: str, uri: str, suites: List[str], components: List[str], signed_by: Optional[str]) -> Dict[str, Any]:
    nvidia = bool(_NVIDIA.search(uri))
    return {
        "file": path,
        "uri": uri,
        "suites": suites,
        "components": components,
        "signed_by": signed_by,
        "nvidia": nvidia,
    }


def _list_file(path: str, text: str) -> List[Dict[str, Any]]:
    found = []
    for line in text.splitlines():
        match = _ONE_LINE.match(line.strip())
        if match and match.group(1) == "deb":
            signed = re.search(r"signed-by=(\S+)", match.group(2) or "", re.IGNORECASE)
            components = match.group(5).split("#")[0].split()
            found.append(
                _source(path, match.group(3), [match.group(4)], components, signed.group(1) if signed else None)
            )
    return found


def _deb822_file(path: str, text: str) -> List[Dict[str, Any]]:
    found = []
    for stanza in re.split(r"\n\s*\n", text):
        fields, last = {}, None
        for line in stanza.splitlines():
            match = re.match(r"^([A-Za-z-]+):\s*(.*)$", line)
            if match:
                last = match.group(1).lower()
                fields[last] = match.group(2).strip()
            elif last and line.startswith((" ", "\t")):
                fields[last] += " " + line.strip()
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in _OFF:
            continue
        signed = fields.get("signed-by")
        signed = "(embedded key)" if signed and "BEGIN PGP" in signed else signed
        suites, components = fields.get("suites", "").split(), fields.get("components", "").split()
        found += [_source(path, uri, suites, components, signed) for uri in fields.get("uris", "").split()]
    return found


def _repositories(host: LiveHost) -> Iterator[Tuple[str, str, Dict[str, str]]]:
    """Yield file, id and fields of each dnf or zypper repository."""
    for folder in ("/etc/yum.repos.d/", "/etc/zypp/repos.d/"):
        for name in host.names(folder, "*.repo"):
            text = host.read(folder + name, "packages.sources", keep=without_secrets) or ""
            for match in re.finditer(r"^\[([^\]]+)\]\s*\n((?:(?!\[).*\n?)*)", text, re.MULTILINE):
                fields = re.findall(r"^(\w+)\s*=\s*(.*?)\s*$", match.group(2), re.MULTILINE)
                yield folder + name, match.group(1), dict(fields)
