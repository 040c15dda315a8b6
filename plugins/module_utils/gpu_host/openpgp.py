"""Read OpenPGP public keys without gpg: the full fingerprints of the primary keys (RFC 4880, RFC 9580); and verify a
signature with the tools that package managers install.
"""

import base64
import hashlib
import re
import struct
from typing import Dict, Iterator, List, Optional, Tuple

from . import process

_ARMOR = re.compile(rb"-----BEGIN PGP PUBLIC KEY BLOCK-----\r?\n(.*?)-----END PGP PUBLIC KEY BLOCK-----", re.DOTALL)
_PUBLIC_KEY = 6
_PROVERS = ("gpgv", "gpgv2", "sqv")


class BadKey(ValueError):  # noqa: N818 - it is the key that is bad
    """The data is not an OpenPGP public key."""


def binary(raw: bytes) -> bytes:
    """Return the key without ASCII armour, the format of apt's .gpg files."""
    blocks = _ARMOR.findall(raw)
    if not blocks:
        if raw[:1] and ord(raw[:1]) & 0x80:
            return raw
        raise BadKey("it is neither an armoured nor a binary OpenPGP key")
    return b"".join(_dearmor(block) for block in blocks)


def _dearmor(block: bytes) -> bytes:
    """Decode one armoured block: the headers end at the first empty line, the checksum begins with `=`."""
    lines = [line.strip() for line in block.splitlines()]
    if b"" in lines:
        lines = lines[lines.index(b"") + 1 :]
    body = b"".join(line for line in lines if line and not line.startswith(b"=") and b":" not in line)
    try:
        return base64.b64decode(body, validate=True)
    except ValueError as error:
        raise BadKey("its ASCII armour is damaged") from error


def armored(raw: bytes) -> bytes:
    """Return the key with ASCII armour for rpm: `rpm --import` accepts none without its checksum."""
    if _ARMOR.search(raw):
        return raw
    text = base64.b64encode(binary(raw))
    lines = [text[start : start + 64] for start in range(0, len(text), 64)]
    lines.append(b"=" + base64.b64encode(struct.pack(">I", _crc24(binary(raw)))[1:]))
    return b"\n".join(
        [b"-----BEGIN PGP PUBLIC KEY BLOCK-----", b"", *lines, b"-----END PGP PUBLIC KEY BLOCK-----", b""]
    )


def _crc24(data: bytes) -> int:
    crc = 0xB704CE
    for byte in bytearray(data):
        crc ^= byte << 16
        for _bit in range(8):
            crc = (crc << 1) ^ (0x1864CFB if crc & 0x800000 else 0)
    return crc & 0xFFFFFF


def fingerprints(raw: bytes) -> List[str]:
    """Return the full fingerprints of all primary keys in upper case, in the file's order."""
    found = [_fingerprint(body) for tag, body in _packets(binary(raw)) if tag == _PUBLIC_KEY]
    if not found:
        raise BadKey("it contains no primary key")
    return found


def _fingerprint(body: bytes) -> str:
    version = ord(body[:1] or b"\0")
    if version == 4:
        return hashlib.sha1(b"\x99" + struct.pack(">H", len(body)) + body).hexdigest().upper()  # noqa: S324 - as OpenPGP defines it
    if version in (5, 6):
        lead = b"\x9a" if version == 5 else b"\x9b"
        return hashlib.sha256(lead + struct.pack(">I", len(body)) + body).hexdigest().upper()
    raise BadKey(f"it contains a key of version {version}, which is too old to be trusted")


def _packets(raw: bytes) -> Iterator[Tuple[int, bytes]]:
    at = 0
    while at < len(raw):
        first = ord(raw[at : at + 1])
        if not first & 0x80:
            raise BadKey(f"it is damaged at byte {at}")
        if first & 0x40:
            tag = first & 0x3F
            length, at = _new_length(raw, at + 1)
        else:
            tag = (first >> 2) & 0x0F
            length, at = _old_length(raw, at + 1, first & 3)
        if length is None or at + length > len(raw):
            raise BadKey("it is truncated")
        yield tag, raw[at : at + length]
        at += length


def _new_length(raw: bytes, at: int) -> Tuple[Optional[int], int]:
    first = ord(raw[at : at + 1] or b"\xff")
    if first < 192:
        return first, at + 1
    if first < 224:
        second = ord(raw[at + 1 : at + 2] or b"\0")
        return ((first - 192) << 8) + second + 192, at + 2
    if first == 255 and len(raw) >= at + 5:
        return struct.unpack(">I", raw[at + 1 : at + 5])[0], at + 5
    return None, at


def _old_length(raw: bytes, at: int, kind: int) -> Tuple[Optional[int], int]:
    if kind == 3:
        return len(raw) - at, at
    size = 1 << kind
    piece = raw[at : at + size]
    if len(piece) != size:
        return None, at
    return int.from_bytes(piece, "big"), at + size


def proven(keyring: str, signature: str, path: str, env: Dict[str, str]) -> Tuple[Optional[bool], str]:
    """Return whether a key of a binary keyring signed a file, None if no tool is installed; and the tool's message."""
    program = next((name for name in _PROVERS if process.which(name, env)), None)
    if program is None:
        return None, "none of {} is installed".format(", ".join(_PROVERS))
    code, _text, error = process.output([program, "--keyring", keyring, signature, path], env)
    return not code, " ".join(error.split())[-300:]
