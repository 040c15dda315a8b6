"""A stand-in for NVIDIA's `.run` installer: the fields, options and steps of the real one around a stand-in driver.

The real file is a shell script with a header of plain assignments, a checksum, and a packed tar file behind it; it unpacks
`nvidia-installer`, which copies files, builds by DKMS and leaves `nvidia-uninstall`. Nothing of NVIDIA's is in it.
"""

import io
import subprocess
import tarfile
from pathlib import Path

from tests.lab.repository.catalog import Package
from tests.lab.repository.contents import content_of
from tests.lab.repository.deb import LIBDIR
from tests.stored import stored

_HEADER = stored("runfile_header.txt")
_INSTALLER = stored("runfile_installer.txt")
_UNINSTALLER = stored("runfile_uninstaller.txt")


def write(path: Path, version: str) -> Path:
    """Make NVIDIA-Linux-x86_64-VERSION.run in a folder."""
    payload = io.BytesIO()
    with tarfile.open(fileobj=payload, mode="w:gz") as archive:
        for kind in ("smi", "libraries", "modprobe_conf"):
            content = content_of(Package(name=f"run-{kind}", version=version, content=kind, driver=version), LIBDIR)
            for place, (mode, raw) in content.files.items():
                if "/doc/" not in place:
                    _add(archive, f"files/{place}", raw, mode)
            for place, target in content.links.items():
                link = tarfile.TarInfo(f"files/{place}")
                link.type, link.linkname = tarfile.SYMTYPE, target
                archive.addfile(link)
        for flavour, mark in (("open", "-open"), ("proprietary", "")):
            extra = {"open": mark, "dkms_name": "nvidia"}
            package = Package(name="run-dkms", version=version, content="dkms", driver=version, extra=extra)
            for place, (mode, raw) in content_of(package, LIBDIR).files.items():
                if place.startswith("usr/src"):
                    _add(archive, f"kernel-{flavour}/{place.rpartition('/')[2]}", raw, mode)
        _add(archive, "nvidia-installer", _INSTALLER.replace("@VERSION@", version).encode(), 0o755)
        _add(archive, "nvidia-uninstall", _UNINSTALLER.encode(), 0o755)
    head = _HEADER.replace("@VERSION@", version)
    head = head.replace("@SKIP@", str(head.count("\n") + 1))
    behind = "".join(head.splitlines(keepends=True)[3:]).encode() + payload.getvalue()
    told = subprocess.run(["cksum"], input=behind, capture_output=True, check=True).stdout.split()[0].decode()
    target = path / f"NVIDIA-Linux-x86_64-{version}.run"
    target.write_bytes(head.replace("@SUM@", told).encode() + payload.getvalue())
    target.chmod(0o644)
    return target


def _add(archive: tarfile.TarFile, name: str, raw: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(raw), mode
    archive.addfile(entry, io.BytesIO(raw))
