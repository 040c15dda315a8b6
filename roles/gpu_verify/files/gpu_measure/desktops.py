"""Test what each recorded desktop renders with: run a program in it with VirtualGL, as its user would."""

import glob
import http.client
import re
import ssl
from typing import Any, Dict

import child
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import services

DEADLINE = 30
_FIRST_DISPLAY = 20
_DENIED = 'for file; do [ -r "$file" ] && [ -w "$file" ] || echo "$file"; done'


def look(facts: Dict[str, Any]) -> Dict[str, Any]:
    """Return {user: {"active", "page", "denied", "drawn"}} of the desktops that the last apply set up."""
    lock = (facts.get("state") or {}).get("lock") or {}
    wish = (lock.get("wanted") or {}).get("desktops") or {}
    return {user: _desktop(user, number, wish) for number, user in enumerate(wish.get("users") or ())}


def _desktop(user: str, number: int, wish: Dict[str, Any]) -> Dict[str, Any]:
    unit = f"gpusetup-desktop-of-{user}.service"
    shown = child.run(["systemctl", "show", "-p", "ActiveState,SupplementaryGroups,Environment", unit], DEADLINE)
    told = dict(re.findall(r"^(\w+)=(.*)$", shown["stdout"], re.MULTILINE))
    device = re.search(r"VGL_DISPLAY=(\S+)", told.get("Environment", ""))
    settings = [
        f"DISPLAY=:{_FIRST_DISPLAY + number}",
        f"XAUTHORITY=/run/gpusetup-desktop-{user}/xauthority",
        "VGL_DISPLAY=" + (device.group(1) if device else "egl0"),
        "PATH=/opt/VirtualGL/bin:/usr/local/bin:/usr/bin:/bin",
    ]
    who = ["runuser", "-u", user]
    for group in told.get("SupplementaryGroups", "").split():
        who += ["-G", group]
    nodes = sorted(glob.glob("/dev/dri/renderD*") + glob.glob("/dev/nvidia[0-9]*") + glob.glob("/dev/nvidiactl"))
    denied = child.run([*who, "--", "sh", "-c", _DENIED, "sh", *nodes], DEADLINE)["stdout"].split() if nodes else []
    return {
        "active": told.get("ActiveState", ""),
        "page": _page(wish, number),
        "denied": denied,
        "drawn": child.run([*who, "--", "env", *settings, "vglrun", "glxinfo", "-B"], DEADLINE),
    }


def _page(wish: Dict[str, Any], number: int) -> str:
    """Request a desktop's page; return the HTTP status, or why there is none."""
    listen = wish.get("listen") or "127.0.0.1"
    place = services.REACHED_AT.get(listen, listen), int(wish.get("port") or 6080) + number
    connection: http.client.HTTPConnection = http.client.HTTPConnection(*place, timeout=10)
    if wish.get("certificate"):
        # No verification: this connects to the host itself, and the certificate is issued for another name.
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(*place, timeout=10, context=trusting)
    try:
        connection.request("GET", "/vnc.html")
        return str(connection.getresponse().status)
    except (OSError, http.client.HTTPException) as failure:
        return str(failure) or type(failure).__name__
    finally:
        connection.close()
