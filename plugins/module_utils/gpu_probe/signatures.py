"""Read signers and keys from kernel modules' appended signatures, from certificates, and from /proc/keys.

Names are common names, as in modinfo; numbers are lower-case hexadecimal without leading zeros.
"""

import base64
import re
import struct
from typing import Any, Dict, Iterator, List, Optional, Tuple

MARK = b"~Module signature appended~\n"
_TRAILER = struct.Struct(">BBBBB3xI")
_X509, _PKCS7 = 1, 2
_INTEGER, _SEQUENCE, _SET = 0x02, 0x30, 0x31
_COMMON_NAME, _SUBJECT_KEY = b"\x55\x04\x03", b"\x55\x1d\x0e"
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
# /proc/keys: number, flags, uses, expiry, permissions, owner, group, type cut to nine letters, "NAME: ID: KIND ..."
_KERNEL_KEY = re.compile(
    r"^[0-9a-f]+ \S+ +\d+ +\S+ +[0-9a-f]+ +0 +-?\d+ +asymmetri +(.*): ([0-9a-f]+): X509\.\S+", re.MULTILINE
)

Item = Tuple[int, bytes]


def of_module(image: Any) -> Dict[str, Any]:
    """Return {"signed", "signer", "key"} of a module file's bytes.

    `key` is the serial number of the signer's certificate, or its key identifier if the signature names that.
    """
    size = len(image) - len(MARK)
    if size < _TRAILER.size or image[size:] != MARK:
        return {"signed": False, "signer": None, "key": None}
    start = size - _TRAILER.size
    _algorithm, _hash, kind, name, identifier, length = _TRAILER.unpack(image[start:size])
    try:
        if kind == _PKCS7:
            signer, key = _of_message(bytes(image[start - length : start]))
        elif kind == _X509:  # kernels before 4.3
            begin = start - length - identifier - name
            signer, key = _text(image[begin : begin + name]), plain(bytes(image[begin + name : start - length]).hex())
        else:
            signer, key = None, None
    except (ValueError, IndexError, StopIteration):
        signer, key = None, None
    return {"signed": True, "signer": signer, "key": key}


def from_modinfo(fields: Dict[str, str]) -> Dict[str, Any]:
    """Return the same from modinfo's output; a modinfo without OpenSSL shows only that a signature exists."""
    signed = any(name in fields for name in ("sig_id", "sig_key", "sig_hashalgo", "signer"))
    return {
        "signed": signed,
        "signer": fields.get("signer", "").strip() or None,
        "key": plain(fields.get("sig_key", "")) or None,
    }


def certificate(raw: bytes) -> Optional[Dict[str, Any]]:
    """Return {"name", "issuer", "serial", "key"} of a certificate, None when it cannot be parsed."""
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
    return base64.b64decode(b"".join(found.group(1).split())) if found else raw


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
    """Return a hexadecimal number in canonical form."""
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
                return _text(value[1])
    return None


def _subject_key(extensions: bytes) -> Optional[str]:
    for _tag, several in _items(extensions):
        for _inner, one in _items(several):
            parts = list(_items(one))
            if parts[0][1] == _SUBJECT_KEY:
                (_kind, identifier), *_rest = _items(parts[-1][1])
                return plain(identifier.hex())
    return None


def _text(raw: Any) -> str:
    return bytes(raw).decode("utf-8", "replace")
