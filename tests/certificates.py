"""An authority of the tests' own, and what it signs: servers by their names, clients by theirs."""

import datetime as dt
import ipaddress
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class Authority:
    """It lives for as long as a test; its certificate is `certificate`."""

    def __init__(self, folder: Path, name: str = "gpusetup test authority") -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _called(name)
        self.certificate = folder / "site-ca.pem"
        self.certificate.write_bytes(
            self._signed(self._name, self._key, (x509.BasicConstraints(ca=True, path_length=None), True))
        )

    def pair(self, *names: str, file: str = "site.pem", common: bool = True) -> Path:
        """Return key and certificate in one file, for a server with these names and for the client of the first.

        `common`: with a common name in its subject.
        """
        key, path = ec.generate_private_key(ec.SECP256R1()), self.folder / file
        alternatives = [
            x509.IPAddress(ipaddress.ip_address(name)) if name[0].isdigit() else x509.DNSName(name) for name in names
        ]
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        extensions = ((x509.SubjectAlternativeName(alternatives), False), (x509.ExtendedKeyUsage(uses), False))
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path.touch(mode=0o600)
        path.write_bytes(private + self._signed(_called(names[0]) if common else x509.Name([]), key, *extensions))
        return path

    def _signed(self, subject: x509.Name, key: Any, *extensions: tuple[Any, bool]) -> bytes:
        now = dt.datetime.now(dt.timezone.utc)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - dt.timedelta(days=1)).not_valid_after(now + dt.timedelta(days=2))
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _called(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
