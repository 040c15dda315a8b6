"""Which certificate authorities the machine trusts: its own list, to which the site's one was added."""

from __future__ import annotations

from pathlib import Path

__all__ = ["authorities"]

_LISTS = (
    "etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu
    "etc/pki/tls/certs/ca-bundle.crt",  # Enterprise Linux, Amazon Linux
    "var/lib/ca-certificates/ca-bundle.pem",  # SUSE
)


def authorities(root: Path = Path("/")) -> str | bool:
    """Return the machine's list for `requests`, which would bring a list of its own; without one, that one counts."""
    return next((str(root / name) for name in _LISTS if (root / name).is_file()), True)
