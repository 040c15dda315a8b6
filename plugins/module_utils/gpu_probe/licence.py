"""How a vGPU guest is licensed: the daemon's settings, the digests of its tokens, and whether they are the wanted ones.

A token is a secret, and a licence server's name reveals the owner: neither appears in facts or captures.
"""

import hashlib
import os
import re
from typing import Any, Dict, List, Optional

from .host import LiveHost

SETTINGS = "/etc/nvidia/gridd.conf"
TOKENS = "/etc/nvidia/ClientConfigToken"
FEATURES = {"vgpu": 1, "workstation": 2, "gaming": 3, "compute": 4}
"""Licensable feature → FeatureType of the licence daemon."""
TOKEN = "client_configuration_token_gpusetup.tok"  # noqa: S105 - its file's name
_SETTING = re.compile(r"^\s*(FeatureType|ServerAddress)\s*=\s*(\S+)", re.MULTILINE)


def collect(host: LiveHost) -> Optional[Dict[str, Any]]:
    """Return {"feature", "server", "tokens"}; None without settings and tokens."""
    found: Optional[Dict[str, Any]] = host.observe("licence", lambda: _look(host))
    return found


def _look(host: LiveHost) -> Optional[Dict[str, Any]]:
    text, names = _read(host, SETTINGS), _tokens(host)
    if text is None and not names:
        return None
    settings = dict(_SETTING.findall((text or b"").decode("utf-8", "replace")))
    feature = settings.get("FeatureType", "")
    return {
        "feature": int(feature) if feature.isdigit() else None,
        "server": "ServerAddress" in settings,
        "tokens": {name: _digest(_read(host, f"{TOKENS}/{name}")) for name in names},
    }


def _tokens(host: LiveHost) -> List[str]:
    try:
        return sorted(name for name in os.listdir(host.inside(TOKENS)) if name.endswith(".tok"))
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            host.note("licence", f"{TOKENS}: {error.strerror}")
        return []


def _read(host: LiveHost, path: str) -> Optional[bytes]:
    """Read a file without recording it for a capture."""
    try:
        with open(host.inside(path), "rb") as handle:
            return handle.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        host.note("licence", f"{path}: {error.strerror}")
        return None


def _digest(raw: Optional[bytes]) -> Optional[str]:
    return hashlib.sha256(raw).hexdigest() if raw is not None else None


def lacking(there: Optional[Dict[str, Any]], token_sha256: str, feature: str) -> str:
    """Return the first setting that is wrong; an empty text when none is."""
    if there is None or TOKEN not in there["tokens"]:
        return "the token is missing"
    if there["tokens"][TOKEN] != token_sha256:
        return "another token is there"
    if there["server"]:
        return "the settings name a legacy licence server too; the daemon uses one or the other"
    if there["feature"] != FEATURES[feature]:
        return "FeatureType is {}, and {} is {}".format(there["feature"], feature, FEATURES[feature])
    return ""
