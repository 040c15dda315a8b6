"""Captures: what a recorder read from a host, redacted, as plain data or as a folder that stands in for the host."""

import base64
import hashlib
import json
import os
import re
from typing import Any, Dict, Iterable, List, Match, Optional

from .host import CAPTURE_FILE, Recorder

SCHEMA = "gpusetup/capture/1"
_UUID = re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b")
# EFI variable names end in these on every machine.
_KNOWN_UUIDS = ("8be4df61-93ca-11d2-aa0d-00e098032b8c", "605dab50-e046-4300-abb6-3dd810dd8b23")
_NO_UUID = "00000000-0000-0000-0000-"
_MACHINE_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
_MAC = re.compile(r"\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b")
_ADDRESS = re.compile(r"(?<![\w.+-])(?:\d{1,3}\.){3}\d{1,3}(?=[/:\s,\"']|$)")
_ADDRESS6 = re.compile(r"\b(?:[0-9a-fA-F]{1,4}:){3,7}:?[0-9a-fA-F]{1,4}\b|\b[fF][eE]80::[0-9a-fA-F:]+")
_URI = re.compile(r"(\w+://)([^/\s\"'\[\]]+)")
_BUILDER = re.compile(r"\((\w[\w.-]*)@([\w.-]*)\)")
_SECRET = re.compile(r"(?i)\b(password|token|secret|passwd|apikey|api_key)=\S+")
_HOME = re.compile(r"/(?:home|Users)/[^/\s\"']+")
# Public vendors' mirrors show how a host is configured; any other host name would show whose it is.
_PUBLIC = re.compile(
    r"(?:^|\.)(?:debian\.org|ubuntu\.com|nvidia\.com|nvidia\.cn|nvidia\.github\.io|rockylinux\.org|almalinux\.org|fedoraproject\.org|"
    r"redhat\.com|centos\.org|amazonaws\.com|amazonlinux\.com|docker\.com|rpmfusion\.org|opensuse\.org|suse\.com|oracle\.com)$"
)
# Files whose whole content identifies the machine.
_EMPTIED = ("/proc/sys/kernel/random/boot_id", "/etc/machine-id", "/etc/hostname")
_BINARY = re.compile(r"/(config|efivars/[^/]+)$")


def pack(host: Recorder) -> Dict[str, Any]:
    """Return what the recorder read, redacted: {"schema", "files", "folders", "links", "denied", "observations"}."""
    names = [name for name in (_node_name(),) if name]
    files = {}
    for path, raw in host.files.items():
        if path in host.reduced_to_nothing - host.asked:
            continue
        content = raw if _BINARY.search(path) else redact(raw.decode("utf-8", "replace"), names, path).encode("utf-8")
        is_key = b"PRIVATE KEY" in content or path.endswith((".key", ".priv", ".pem"))
        files[redact(path, names)] = base64.b64encode(b"" if is_key else content).decode("ascii")
    return {
        "schema": SCHEMA,
        "files": files,
        "folders": sorted(redact(path, names) for path in host.folders),
        "links": {redact(path, names): redact(target, names) for path, target in host.links.items()},
        "denied": {redact(path, names): redact(why, names) for path, why in host.refused.items()},
        "observations": _redact_all(host.answers, names),
    }


def redact(text: str, names: Iterable[str] = (), path: str = "") -> str:
    """Replace everything that identifies a machine or its owner: identifiers, addresses, names, secrets."""
    if path in _EMPTIED:
        return ""
    text = _UUID.sub(_plain_uuid, text)
    text = _MAC.sub("(address)", text)
    text = _MACHINE_ID.sub("0" * 32, text)
    text = _SECRET.sub(r"\1=redacted", text)
    text = _HOME.sub("/home/user", text)
    text = _BUILDER.sub("(build@host)", text)
    text = _URI.sub(lambda match: match.group(1) + _public(match.group(2)), text)
    text = _ADDRESS.sub("192.0.2.1", text)
    text = _ADDRESS6.sub("2001:db8::1", text)
    for name in names:
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "host", text)
    return text


def _plain_uuid(match: Match[str]) -> str:
    """Return an anonymous identifier; its last digits only distinguish the GPUs of one machine."""
    found = match.group(0)
    if found.startswith(_NO_UUID) or found in _KNOWN_UUIDS:
        return found
    return _NO_UUID + "{:012d}".format(int(hashlib.sha256(found.lower().encode("ascii")).hexdigest(), 16) % 10000)


def _public(authority: str) -> str:
    host = authority.rsplit("@", maxsplit=1)[-1]
    return host if _PUBLIC.search(host.split(":")[0]) else "mirror.invalid"


def _redact_all(value: Any, names: List[str]) -> Any:
    if isinstance(value, dict):
        return {redact(key, names): _redact_all(item, names) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_redact_all(item, names) for item in value]
    return redact(value, names) if isinstance(value, str) else value


def _node_name() -> Optional[str]:
    """Return the machine's name, None for a generic one such as "localhost"."""
    name = os.uname()[1].split(".")[0]
    return name if len(name) > 2 and name not in ("localhost", "host", "debian", "ubuntu") else None


def write(data: Dict[str, Any], folder: str) -> None:
    """Write packed data into a folder that mirrors the host's root."""
    for path in data["folders"]:
        os.makedirs(_below(folder, path), exist_ok=True)
    for path, text in sorted(data["files"].items()):
        place = _below(folder, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if not os.path.isdir(place):
            with open(place, "wb") as handle:
                handle.write(base64.b64decode(text))
    for path, target in data["links"].items():
        place = _below(folder, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        _replace_by_link(place, target)
    kept = {key: data[key] for key in ("schema", "denied", "observations")}
    with open(os.path.join(folder, CAPTURE_FILE), "w") as handle:
        json.dump(kept, handle, indent=1, sort_keys=True)
        handle.write("\n")


def _replace_by_link(place: str, target: str) -> None:
    if os.path.isdir(place) and not os.path.islink(place):
        if os.listdir(place):
            return
        os.rmdir(place)
    elif os.path.lexists(place):
        os.remove(place)
    os.symlink(target, place)


def _below(folder: str, path: str) -> str:
    """Return the path inside the folder for a host's path; refuse one that would leave the folder."""
    place = os.path.normpath(os.path.join(folder, path.lstrip("/")))
    if not (place + "/").startswith(os.path.normpath(folder) + "/"):
        raise ValueError("a capture may not write outside its folder: " + path)
    return place
