"""A stand-in for NVIDIA's `.run` installer: the fields, options and steps of the real one around a stand-in driver.

The real file is a shell script with a header of plain assignments, a checksum, and a packed tar file behind it; it unpacks
`nvidia-installer`, which copies files, builds by DKMS and leaves `nvidia-uninstall`. Nothing of NVIDIA's is in it.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
from typing import TYPE_CHECKING

from tests.lab.repository.catalog import Package
from tests.lab.repository.contents import content_of
from tests.lab.repository.deb import LIBDIR

if TYPE_CHECKING:
    from pathlib import Path

_HEADER = """#! /bin/sh
CRCsum=@SUM@
MD5=00000000000000000000000000000000
skip=@SKIP@
label="NVIDIA Accelerated Graphics Driver for Linux-x86_64 @VERSION@ (lab stand-in)"
version_string=@VERSION@
pkg_version=0
script=./nvidia-installer
targetdir=NVIDIA-Linux-x86_64-@VERSION@
scriptargs=""
keep=n
TARGET_OS="Linux"
TARGET_ARCH="x86_64"
case "$1" in
  --info) echo "  Identification    : $label"; exit 0 ;;
  --check)
    [ "$(tail -n +4 "$0" | cksum | cut -d' ' -f1)" = "$CRCsum" ] || { echo "Error in checksums"; exit 2; }
    echo "check sums are OK"; exit 0 ;;
esac
run=y
while [ "$1" ]; do
  case "$1" in
    --extract-only|-x) run=n; keep=y ;;
    --target) targetdir="$2"; keep=y; shift ;;
    *) scriptargs="$scriptargs $1" ;;
  esac
  shift
done
mkdir -p "$targetdir" && tail -n +$skip "$0" | gzip -dc | tar xf - -C "$targetdir" || exit 1
[ $run = n ] || { cd "$targetdir" && exec $script $scriptargs; }
exit 0
"""
_INSTALLER = """#!/bin/sh
# It copies what is in files/, builds by DKMS for one kernel, and writes what it did where the real one does.
version=@VERSION@ kernel=$(uname -r) dkms=n type=proprietary silent=n
for word in "$@"; do
  case "$word" in
    --advanced-options)
      printf '%s\\n' "  --silent" "  --dkms" "  --kernel-name=KERNEL-NAME" "  -M KERNEL-MODULE-TYPE, --kernel-module-type=…" \\
        "  --skip-module-load" "  --no-x-check"
      exit 0 ;;
    --silent) silent=y ;;
    --dkms) dkms=y ;;
    --kernel-name=*) kernel=${word#*=} ;;
    --kernel-module-type=*) type=${word#*=} ;;
    --skip-module-load|--no-x-check) ;;
    *) echo "nvidia-installer: unrecognized option: '$word'" >&2; exit 1 ;;
  esac
done
[ $silent = y ] || { echo "nobody answers questions here" >&2; exit 1; }
exec >/var/log/nvidia-installer.log 2>&1
echo "nvidia-installer command line: $*"
if [ -x /usr/bin/nvidia-uninstall ]; then
  echo "-> Uninstalling the previous installation with /usr/bin/nvidia-uninstall."
  /usr/bin/nvidia-uninstall --silent || exit 1
fi
undo() { /usr/bin/nvidia-uninstall --silent; exit 1; }
(cd files && find . ! -type d) | sed 's,^\\.,,' >/var/lib/nvidia-files
cp -a files/. /
cp -a "kernel-$type" "/usr/src/nvidia-$version"
echo "$version" >/var/lib/nvidia-version
install -m 755 nvidia-uninstall /usr/bin/nvidia-uninstall
[ $dkms = y ] || { echo "ERROR: this stand-in builds by DKMS only"; undo; }
dkms add -m nvidia -v "$version" && dkms build -m nvidia -v "$version" -k "$kernel" \\
  && dkms install --force -m nvidia -v "$version" -k "$kernel" || undo
ldconfig
echo "-> Installation of the NVIDIA Accelerated Graphics Driver is now complete."
"""
_UNINSTALLER = """#!/bin/sh
[ "$1" = --silent ] || exit 1
version=$(cat /var/lib/nvidia-version)
dkms remove -m nvidia -v "$version" --all >/var/log/nvidia-uninstall.log 2>&1
rm -rf "/usr/src/nvidia-$version"
while read -r path; do rm -f "$path"; done </var/lib/nvidia-files
rm -f /var/lib/nvidia-files /var/lib/nvidia-version /usr/bin/nvidia-uninstall
ldconfig
"""


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
