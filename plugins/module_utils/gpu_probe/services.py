"""The systemd units of a GPU stack, and what an exporter among them answers."""

import re
from typing import Any, Dict

from .host import LiveHost

_UNITS = (
    ("fabricmanager", "nvidia-fabricmanager.service"),
    ("persistenced", "nvidia-persistenced.service"),
    ("imex", "nvidia-imex.service"),
    ("gridd", "nvidia-gridd.service"),
    ("dcgm", "nvidia-dcgm.service"),
    ("dcgm_exporter", "nvidia-dcgm-exporter.service"),
    ("cdi_refresh", "nvidia-cdi-refresh.path"),
    ("display_manager", "display-manager.service"),
)
_FOLDERS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")


def collect(host: LiveHost, also: Any = ()) -> Dict[str, Any]:
    """Return whether each existing unit is enabled and active; asks systemd once, and only if it runs.

    `also` names further units; their keys are their own names.
    """
    units = list(_UNITS) + [(unit, unit) for unit in sorted(set(also) - {unit for _key, unit in _UNITS})]
    there = [(key, unit) for key, unit in units if any(host.exists(folder + "/" + unit) for folder in _FOLDERS)]
    if not there:
        return {}
    states = {}
    if host.exists("/run/systemd/system"):
        argv = ["systemctl", "show", "--property=Id,Names,ActiveState,UnitFileState,LoadState"] + [
            unit for _key, unit in there
        ]
        answer = host.run("services", argv, 8)
        if answer["rc"] == 0:
            for block in answer["out"].split("\n\n"):
                fields = dict(re.findall(r"^(\w+)=(.*)$", block, re.MULTILINE))
                for name in fields.get("Names", "").split():
                    states[name] = fields
        else:
            host.note("services", "systemctl: {}".format(answer.get("why") or answer["err"].strip()))
    return {
        key: {
            "unit": unit,
            "active": states[unit].get("ActiveState") if unit in states else None,
            "enabled": states[unit].get("UnitFileState") or None if unit in states else None,
        }
        for key, unit in there
    }


REACHED_AT = {"0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "[::1]"}  # noqa: S104 - the address to connect to
_MOST = 8 << 20


def scrape(listen: str, secured: bool, seconds: float) -> Dict[str, Any]:
    """Return {"status", "text", "error"}; no password is sent, so a protected exporter answers 401."""
    import http.client
    import ssl  # imported late: most probes do not need these
    import urllib.error
    import urllib.request

    address, _, port = listen.rpartition(":")
    url = "{}://{}:{}/metrics".format("https" if secured else "http", REACHED_AT.get(address, address), port)
    handlers: Any = [urllib.request.ProxyHandler({})]  # never through a proxy
    if secured:
        # No verification: this is the host's own port, and the certificate is issued for another name.
        nobody = ssl.create_default_context()
        nobody.check_hostname, nobody.verify_mode = False, ssl.CERT_NONE
        handlers.append(urllib.request.HTTPSHandler(context=nobody))
    try:
        with urllib.request.build_opener(*handlers).open(url, timeout=seconds) as answer:
            return {"status": answer.status, "text": answer.read(_MOST).decode("utf-8", "replace"), "error": ""}
    except urllib.error.HTTPError as error:
        return {"status": error.code, "text": "", "error": str(error)}
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        why = getattr(reason, "strerror", "") or str(reason) or type(error).__name__
        return {"status": None, "text": "", "error": why}
