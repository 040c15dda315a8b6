"""UEFI, Secure Boot and the keys that may sign a kernel module."""

import hashlib
import re
from typing import Any, Dict, List, Optional

from .host import LiveHost

_VARIABLES = "/sys/firmware/efi/efivars"
_GLOBAL = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
_SHIM = "605dab50-e046-4300-abb6-3dd810dd8b23"
_X509 = b"\xa1\x59\xc0\xa5\xe4\x94\xa7\x4a\x87\xb5\xab\x15\x5c\x2b\xf0\x72"
_CONFIGURED = re.compile(r"^\s*mok_certificate=[\"']?([^\"'\s$]+)", re.MULTILINE)
UBUNTU_KEY, DKMS_KEY = "/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub"
PASSWORD = "/var/lib/gpusetup/mok-password"  # noqa: S105 - where it is


def collect(host: LiveHost, disk: Optional[LiveHost] = None) -> Dict[str, Any]:
    """Return the firmware's state; "secure_boot" is None only where an UEFI machine does not let it be read.

    `disk` is where the signing keys are, when that is not the machine whose firmware this is (a simulated one).
    """
    uefi = host.kind("/sys/firmware/efi") == "folder"
    secure = _flag(host, "SecureBoot", uefi)
    enrolled = _enrolled(host) if uefi else []
    lockdown = re.search(r"\[(\w+)\]", host.read("/sys/kernel/security/lockdown") or "")
    return {
        "uefi": uefi,
        "secure_boot": secure,
        "setup_mode": _flag(host, "SetupMode", uefi),
        "lockdown": lockdown.group(1) if lockdown else None,
        "signatures_enforced": host.value("/sys/module/module/parameters/sig_enforce") == "Y",
        "enrolled_keys": enrolled,
        "signing_keys": signing_keys(disk or host, enrolled),
        "password": PASSWORD if (disk or host).exists(PASSWORD) else None,
    }


def _flag(host: LiveHost, name: str, uefi: bool) -> Optional[bool]:
    if not uefi:
        return False
    raw = host.read_bytes(f"{_VARIABLES}/{name}-{_GLOBAL}", "secure_boot")
    if raw is None:
        host.note("secure_boot", f"{name} is not readable: are the EFI variables mounted?")
        return None
    return len(raw) >= 5 and raw[4] == 1


def _enrolled(host: LiveHost) -> List[Any]:
    """Return the SHA-256 fingerprints of the machine owner keys that the boot loader shim accepts."""
    return host.observe("enrolled_keys", lambda: _fingerprints(host)) or []


def _fingerprints(host: LiveHost) -> List[str]:
    raw = host.read_bytes(f"{_VARIABLES}/MokListRT-{_SHIM}", "firmware.enrolled_keys") or b""
    raw = raw[4:]
    found: List[str] = []
    while len(raw) >= 28:
        size, header, item = (int.from_bytes(raw[at : at + 4], "little") for at in (16, 20, 24))
        if not 28 <= size <= len(raw):
            break
        if raw[:16] == _X509 and item > 16:
            starts = range(28 + header, size - item + 1, item)
            found += [hashlib.sha256(raw[start + 16 : start + item]).hexdigest() for start in starts]
        raw = raw[size:]
    return found


def signing_keys(host: LiveHost, enrolled: List[Any]) -> List[Any]:
    """Return the certificates that DKMS signs with: the configured one alone, else those of its own keys."""
    found = [_CONFIGURED.findall(host.read(path) or "") for path in _configurations(host)]
    configured = [path for paths in found for path in paths]
    return [
        key for key in (_signing_key(host, path, enrolled) for path in configured[-1:] or (UBUNTU_KEY, DKMS_KEY)) if key
    ]


def _configurations(host: LiveHost) -> List[str]:
    return ["/etc/dkms/framework.conf"] + [
        "/etc/dkms/framework.conf.d/" + name for name in sorted(host.names("/etc/dkms/framework.conf.d", "*.conf"))
    ]


def _signing_key(host: LiveHost, path: str, enrolled: List[Any]) -> Any:
    """Return a certificate that DKMS signs with, and whether the firmware knows it."""
    digest = host.observe("certificate:" + path, lambda: _digest(host, path))
    return {"path": path, "sha256": digest, "enrolled": digest in enrolled} if digest else None


def _digest(host: LiveHost, path: str) -> Any:
    raw = host.read_bytes(path, "firmware.signing_keys")
    return hashlib.sha256(raw).hexdigest() if raw else None
