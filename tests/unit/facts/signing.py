"""Kernel modules signed for real, as the kernel's sign-file does it: openssl's message behind the file, then the trailer."""

import functools
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe.host import LiveHost

from tests.lab.repository.elf import module

_CERTIFICATE = bytes.fromhex("a159c0a5e494a74a87b5ab155c2bf072")


class Below(LiveHost):
    """A live host whose files are in a folder."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.folder = root

    def inside(self, path: str) -> str:
        return str(self.folder) + path


@dataclass(frozen=True)
class Key:
    """A private key and its certificate in a folder."""

    folder: Path
    name: str
    organisation: str = ""

    def __post_init__(self) -> None:
        subject = (f"/O={self.organisation}" if self.organisation else "") + f"/CN={self.name}"
        self.folder.mkdir(parents=True, exist_ok=True)
        new = ["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        new += ["-nodes", "-subj", subject, "-keyout", str(self.key)]
        _run(*new, "-x509", "-days", "30", "-out", str(self.pem))
        _run("openssl", "x509", "-in", str(self.pem), "-outform", "DER", "-out", str(self.path))

    @property
    def key(self) -> Path:
        return self.folder / f"{self.name}.key"

    @property
    def pem(self) -> Path:
        return self.folder / f"{self.name}.pem"

    @property
    def path(self) -> Path:
        return self.folder / f"{self.name}.der"

    @property
    def der(self) -> bytes:
        return self.path.read_bytes()

    def in_kernel(self) -> str:
        """How /proc/keys shows the certificate once the kernel has loaded it."""
        name = f"{self.organisation}: {self.name}" if self.organisation else self.name
        text = _run("openssl", "x509", "-in", str(self.pem), "-noout", "-ext", "subjectKeyIdentifier")
        identifier = text.splitlines()[-1].strip().replace(":", "").lower()
        return (
            f"0f2d3c4b I------     1 perm 1f030000     0     0 asymmetri {name}: {identifier}: "
            f"X509.rsa {identifier[-8:]} []\n"
        )


@functools.cache
def signed(key: Key, *, by_key: bool = False) -> bytes:
    """A module with its signature, which names the certificate's number, or with `by_key` the key."""
    plain = module({"version": "580.95.05", "license": "Dual MIT/GPL"})
    body = key.folder / "body"
    body.write_bytes(plain)
    argv = ["openssl", "cms", "-sign", "-binary", "-noattr", "-nocerts", "-md", "sha512", "-outform", "DER"]
    argv += ["-in", str(body), "-signer", str(key.pem), "-inkey", str(key.key), "-out", str(key.folder / "message")]
    _run(*argv, *(["-keyid"] if by_key else []))
    message = (key.folder / "message").read_bytes()
    return plain + message + struct.pack(">BBBBB3xI", 0, 0, 2, 0, 0, len(message)) + b"~Module signature appended~\n"


def efi_list(*certificates: bytes) -> bytes:
    """A variable of signatures as the firmware keeps it, with the four bytes of its attributes before it."""
    found = b"\6\0\0\0"
    for certificate in certificates:
        item = bytes(16) + certificate
        found += _CERTIFICATE + struct.pack("<III", 28 + len(item), 0, len(item)) + item
    return found


def _run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout
