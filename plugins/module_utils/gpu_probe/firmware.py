"""UEFI, Secure Boot, the keys that may sign a kernel module, and the signatures of modules.

Names are common names, as in modinfo; numbers are lower-case hexadecimal without leading zeros.
"""

import base64
import hashlib
import re
import struct
from typing import Any, Dict, Iterator, List, Optional, Tuple

from .host import LiveHost

_VARIABLES = "/sys/firmware/efi/efivars"
_GLOBAL = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
_SHIM = "605dab50-e046-4300-abb6-3dd810dd8b23"
_DATABASE = "d719b2cb-3d3a-4596-a3bc-dad00e67656f"
_TABLE = "/sys/firmware/efi/mok-variables"
_X509 = b"\xa1\x59\xc0\xa5\xe4\x94\xa7\x4a\x87\xb5\xab\x15\x5c\x2b\xf0\x72"
_CONFIGURED = re.compile(r"^\s*mok_certificate=[\"']?([^\"'\s$]+)", re.MULTILINE)
_SETTING, _FOLDER, _SHIMS = "mok_signing_key", "framework.conf.d", "/var/lib/shim-signed/mok"
_NOBODY = {"name": None, "issuer": None, "serial": None, "key": None}
DKMS = "/usr/sbin/dkms"
UBUNTU_PRIVATE_KEY = "/var/lib/shim-signed/mok/MOK.priv"
UBUNTU_KEY, DKMS_KEY = "/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub"
PASSWORD = "/var/lib/gpusetup/mok-password"  # noqa: S105 - where it is


def collect(host: LiveHost, disk: Optional[LiveHost] = None) -> Dict[str, Any]:
    """Return the firmware's state; "secure_boot" is None only where a UEFI machine does not let it be read.

    `disk` is the host with the signing keys, if it is not the machine with the firmware (simulated hosts).
    """
    uefi = host.kind("/sys/firmware/efi") == "folder"
    secure = _flag(host, "SecureBoot", uefi)
    if secure and _switched_off(host):
        secure = False
    trusted = _trusted(host)
    lockdown = re.search(r"\[(\w+)\]", host.read("/sys/kernel/security/lockdown") or "")
    return {
        "uefi": uefi,
        "secure_boot": secure,
        "setup_mode": _flag(host, "SetupMode", uefi),
        "lockdown": lockdown.group(1) if lockdown else None,
        "signatures_enforced": host.value("/sys/module/module/parameters/sig_enforce") == "Y",
        "enrolled_keys": trusted["fingerprints"],
        "trusted_keys": trusted["keys"],
        "signing_keys": signing_keys(disk or host, trusted),
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


def _switched_off(host: LiveHost) -> bool:
    """Return whether shim's validation was disabled at the console (mokutil --disable-validation): Linux obeys it."""
    raw = host.read_bytes(f"{_VARIABLES}/MokSBStateRT-{_SHIM}") or b""
    return len(raw) >= 5 and raw[4] == 1


def _trusted(host: LiveHost) -> Dict[str, Any]:
    """Return the certificates whose modules the kernel accepts: {"fingerprints", "keys"}.

    From the firmware's db, shim's list (which includes shim's own), and the kernel's keyring, which only root can read.
    """
    held = host.observe("enrolled_keys", lambda: _once(list(map(_sha256, _certificates(host))))) or []
    keys = host.observe("trusted_keys", lambda: _keys(host)) or []
    return {"fingerprints": held, "keys": keys}


def _keys(host: LiveHost) -> List[Dict[str, Any]]:
    known = [certificate(raw) for raw in _certificates(host)]
    loaded = kernels_keys(host.read("/proc/keys", keep=only_kernels_keys) or "")
    return _once([key for key in known if key] + loaded)


def _once(found: List[Any]) -> List[Any]:
    return [item for number, item in enumerate(found) if item not in found[:number]]


def _certificates(host: LiveHost) -> List[bytes]:
    """Return the certificates in shim's list (complete if the kernel has shim's table) and in db."""
    whole = host.read_bytes(_TABLE + "/MokListRT", "firmware.enrolled_keys")
    lists = [whole] if whole else [raw[4:] for raw in _variables(host, "MokListRT", _SHIM)]
    lists += [raw[4:] for raw in _variables(host, "db", _DATABASE)]
    return [certificate for raw in lists for certificate in _listed(raw)]


def _variables(host: LiveHost, name: str, vendor: str) -> List[bytes]:
    """Return a variable and its continuations, which shim numbers from 1 when the list is too large for one."""
    found: List[bytes] = []
    while True:
        number = str(len(found)) if found else ""
        raw = host.read_bytes(f"{_VARIABLES}/{name}{number}-{vendor}", "firmware.enrolled_keys")
        if raw is None or raw in found:
            return found
        found.append(raw)


def _listed(raw: bytes) -> List[bytes]:
    found: List[bytes] = []
    while len(raw) >= 28:
        size, header, item = (int.from_bytes(raw[at : at + 4], "little") for at in (16, 20, 24))
        if not 28 <= size <= len(raw):
            break
        if raw[:16] == _X509 and item > 16:
            found += [raw[start + 16 : start + item] for start in range(28 + header, size - item + 1, item)]
        raw = raw[size:]
    return found


def signing_keys(host: LiveHost, trusted: Dict[str, Any]) -> List[Any]:
    """Return the certificate that DKMS signs with: the configured one, else that of the key that it makes itself.

    That depends on the installed DKMS; if none is installed, a current release is assumed.
    """
    script = host.read(DKMS, keep=_of_signing)
    current = script is None or _SETTING in script
    configured = _configured(host, folder=script is None or _FOLDER in script) if current else []
    if configured:
        paths = configured[-1:]
    elif current:
        paths = [UBUNTU_KEY if _is_ubuntu(host) else DKMS_KEY]
    else:
        paths = [UBUNTU_KEY] if _SHIMS in (script or "") else []
    return [key for key in (_signing_key(host, path, trusted) for path in paths) if key]


def takes_a_key(host: LiveHost) -> bool:
    """Return whether the installed DKMS lets the signing key be configured; if none is installed, True."""
    script = host.read(DKMS, keep=_of_signing)
    return script is None or (_SETTING in script and _FOLDER in script)


def _of_signing(text: str) -> str:
    """Keep the words of the dkms script that show how it signs: before 3.0.4 it read neither setting nor folder."""
    return "".join(word + "\n" for word in (_SETTING, _FOLDER, _SHIMS) if word in text)


def _configured(host: LiveHost, folder: bool) -> List[str]:
    paths = ["/etc/dkms/framework.conf"]
    if folder:
        paths += ["/etc/dkms/" + _FOLDER + "/" + name for name in host.names("/etc/dkms/" + _FOLDER, "*.conf")]
    return [found for path in paths for found in _CONFIGURED.findall(host.read(path) or "")]


def _is_ubuntu(host: LiveHost) -> bool:
    """Return whether DKMS treats the host as Ubuntu, by ID or by the first word of ID_LIKE."""
    told = dict(re.findall(r"^(ID|ID_LIKE)=[\"']?([\w.-]+)", host.read("/etc/os-release") or "", re.MULTILINE))
    return "ubuntu" in (told.get("ID"), told.get("ID_LIKE"))


def _signing_key(host: LiveHost, path: str, trusted: Dict[str, Any]) -> Any:
    """Return a certificate that DKMS signs with, and whether the kernel trusts it."""
    digest = host.observe("certificate:" + path, lambda: fingerprint(host, path))
    if not digest:
        return None
    own = host.observe("certificate of:" + path, lambda: certificate(host.read_bytes(path) or b"")) or _NOBODY
    loaded = bool(own["key"]) and any(own["key"] == key["key"] for key in trusted["keys"])
    return dict(own, path=path, sha256=digest, enrolled=digest in trusted["fingerprints"] or loaded)


def knows(host: LiveHost, path: str, seen: Dict[str, Any]) -> bool:
    """Return whether the kernel trusts a certificate, given the firmware's state from `collect`."""
    key = _signing_key(host, path, {"fingerprints": seen["enrolled_keys"], "keys": seen["trusted_keys"]})
    return bool(key and key["enrolled"])


def fingerprint(host: LiveHost, path: str) -> Optional[str]:
    """Return the SHA-256 of a certificate, None without one."""
    raw = host.read_bytes(path, "firmware.signing_keys")
    return _sha256(der(raw)) if raw else None


def _sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


SIGNED = b"~Module signature appended~\n"
_TRAILER = struct.Struct(">BBBBB3xI")
_PLAIN, _PKCS7 = 1, 2
_INTEGER, _SEQUENCE, _SET = 0x02, 0x30, 0x31
_COMMON_NAME, _SUBJECT_KEY = b"\x55\x04\x03", b"\x55\x1d\x0e"
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
# /proc/keys: number, flags, uses, expiry, permissions, owner, group, type cut to nine letters, "NAME: ID: KIND ..."
_KERNEL_KEY = re.compile(
    r"^[0-9a-f]+ \S+ +\d+ +\S+ +[0-9a-f]+ +0 +-?\d+ +asymmetri +(.*): ([0-9a-f]+): X509\.\S+", re.MULTILINE
)

Item = Tuple[int, bytes]


def signature(image: Any) -> Dict[str, Any]:
    """Return {"signed", "signer", "key"} of a module file's bytes.

    `key` is the serial number of the signer's certificate, or its key identifier if the signature names that.
    """
    size = len(image) - len(SIGNED)
    if size < _TRAILER.size or image[size:] != SIGNED:
        return {"signed": False, "signer": None, "key": None}
    start = size - _TRAILER.size
    _algorithm, _hash, kind, name, identifier, length = _TRAILER.unpack(image[start:size])
    try:
        if kind == _PKCS7:
            signer, key = _of_message(bytes(image[start - length : start]))
        elif kind == _PLAIN:  # kernels before 4.3
            begin = start - length - identifier - name
            signer, key = _string(image[begin : begin + name]), plain(bytes(image[begin + name : start - length]).hex())
        else:
            signer, key = None, None
    except (ValueError, IndexError, StopIteration):
        signer, key = None, None
    return {"signed": True, "signer": signer, "key": key}


def signature_told(fields: Dict[str, str]) -> Dict[str, Any]:
    """Return the same from modinfo's output; a modinfo without OpenSSL shows only that a signature exists."""
    signed = any(name in fields for name in ("sig_id", "sig_key", "sig_hashalgo", "signer"))
    return {
        "signed": signed,
        "signer": fields.get("signer", "").strip() or None,
        "key": plain(fields.get("sig_key", "")) or None,
    }


def certificate(raw: bytes) -> Optional[Dict[str, Any]]:
    try:
        (_tag, outer), *_rest = _items(der(raw))
        (_tag, body), *_rest = _items(outer)
        items = [item for item in _items(body) if item[0] != 0xA0]
        serial, issuer, subject = items[0], items[2], items[4]
        extensions = next((item[1] for item in items[6:] if item[0] == 0xA3), b"")
        if serial[0] != _INTEGER:
            return None
        return {
            "name": _common_name(subject[1]),
            "issuer": _common_name(issuer[1]),
            "serial": plain(serial[1].hex()),
            "key": _subject_key(extensions),
        }
    except (ValueError, IndexError):
        return None


def der(raw: bytes) -> bytes:
    """Return a certificate in DER form, whether it comes as DER or PEM."""
    found = _PEM.search(raw)
    try:
        return base64.b64decode(b"".join(found.group(1).split())) if found else raw
    except ValueError:  # a damaged one is no certificate
        return raw


def kernels_keys(text: str) -> List[Dict[str, Any]]:
    """Return the certificates that the kernel has loaded, from /proc/keys, which shows them only to root.

    The kernel writes "ORGANISATION: NAME" or one of the two, then the key identifier.
    """
    return [
        {"name": name.rpartition(": ")[2], "issuer": None, "serial": None, "key": plain(key)}
        for name, key in _KERNEL_KEY.findall(text)
    ]


def only_kernels_keys(text: str) -> str:
    """Keep the lines of /proc/keys for certificates that the kernel has loaded."""
    return "".join(line for line in text.splitlines(True) if _KERNEL_KEY.match(line))


def plain(number: str) -> str:
    return number.replace(":", "").strip().lower().lstrip("0")


def _of_message(raw: bytes) -> Tuple[Optional[str], Optional[str]]:
    """Return a PKCS#7 message's signer: (issuer's name, certificate's serial), or (None, key identifier)."""
    (_tag, outer), *_rest = _items(raw)
    explicit = [item for item in _items(outer) if item[0] == 0xA0]
    (_tag, signed), *_rest = _items(explicit[0][1])
    (_tag, signer), *_rest = _items([item for item in _items(signed) if item[0] == _SET][-1][1])
    kind, value = list(_items(signer))[1]
    if kind == _SEQUENCE:
        issuer, serial = list(_items(value))[:2]
        return _common_name(issuer[1]), plain(serial[1].hex())
    return None, plain(value.hex())


def _items(raw: bytes) -> Iterator[Item]:
    """Yield the DER items in some bytes as (tag, content)."""
    at = 0
    while at < len(raw):
        tag, size, head = raw[at], raw[at + 1], 2
        if size & 0x80:
            more = size & 0x7F
            head += more
            if not 0 < more <= 4:
                raise ValueError("no DER")
            size = int.from_bytes(raw[at + 2 : at + head], "big")
        end = at + head + size
        if end > len(raw):
            raise ValueError("no DER")
        yield tag, raw[at + head : end]
        at = end


def _common_name(name: bytes) -> Optional[str]:
    for _tag, parts in _items(name):
        for _inner, pair in _items(parts):
            kind, value = list(_items(pair))[:2]
            if kind[1] == _COMMON_NAME:
                return _string(value[1])
    return None


def _subject_key(extensions: bytes) -> Optional[str]:
    for _tag, several in _items(extensions):
        for _inner, one in _items(several):
            parts = list(_items(one))
            if parts[0][1] == _SUBJECT_KEY:
                (_kind, identifier), *_rest = _items(parts[-1][1])
                return plain(identifier.hex())
    return None


def _string(raw: Any) -> str:
    return bytes(raw).decode("utf-8", "replace")
