"""Find a kernel's initramfs: in /boot, in the folder of a boot entry (systemd-boot, kernel-install), or inside a
unified kernel image. The file that a boot loader entry names takes precedence: others are only what it was copied from.
"""

import re
from typing import Dict, Iterator, List, NamedTuple, Optional

from . import arguments
from .host import LiveHost

ROOTS = ("/efi", "/boot", "/boot/efi")
"""Where kernel-install looks for the boot loader's partition."""
NAMED = ("/boot/initrd.img-{}", "/boot/initramfs-{}.img", "/boot/initrd-{}")
IMAGES = ("/boot/vmlinuz-{}", "/boot/vmlinux-{}", "/boot/Image-{}", "/lib/modules/{}/vmlinuz")
_MICROCODE = re.compile(r"(?:^|/)(?:intel|amd)[-_]ucode[^/]*$|microcode", re.IGNORECASE)


class Entry(NamedTuple):
    """A boot loader entry: its file, and the host's paths of its kernel and initramfs."""

    path: str
    kernel: str
    image: Optional[str]


def entries(host: LiveHost, release: str) -> List[Entry]:
    """Return the boot loader's entries for a kernel."""
    found = []
    for root in ROOTS:
        folder = root + "/loader/entries"
        for name in _names_in(host, folder, "*.conf"):
            path = f"{folder}/{name}"
            told = _fields(text_of(host, path))
            linux = (told.get("linux") or told.get("efi") or [""])[0]
            if release in (told.get("version") or []) or _names(linux, release):
                images = [_on_host(host, root, item) for line in told.get("initrd", []) for item in line.split()]
                image = next((item for item in reversed(images) if item and not _MICROCODE.search(item)), None)
                found.append(Entry(path, _on_host(host, root, linux) or linux, image))
    return found


def text_of(host: LiveHost, path: str) -> str:
    """Return the lines of an entry that name files, and those of its arguments that affect a GPU."""
    return host.read(path, "kernel.initramfs", keep=_kept) or ""


def _kept(text: str) -> str:
    lines = []
    for line in text.splitlines():
        key, _space, value = line.strip().partition(" ")
        if key in ("version", "linux", "efi", "initrd"):
            lines.append(line)
        elif key == "options":
            lines.append("options " + " ".join(arguments.of_gpus(value)))
    return "".join(line + "\n" for line in lines)


def find(host: LiveHost, release: str) -> Optional[str]:
    """Return the path of the initramfs that boots with a kernel, None when there is none."""
    named = [entry.image for entry in entries(host, release) if entry.image]
    named += unified(host, release)
    named += [path.format(release) for path in NAMED if host.exists(path.format(release))]
    return named[0] if named else next(_in_folders(host, release), None)


def _in_folders(host: LiveHost, release: str) -> Iterator[str]:
    """Yield the initramfs files in the folders that kernel-install makes for a kernel."""
    for root in ROOTS:
        for token in host.names(root):
            folder = f"{root}/{token}/{release}"
            for name in host.names(folder, "init*"):
                if not _MICROCODE.search(name):
                    yield f"{folder}/{name}"


def unified(host: LiveHost, release: str) -> List[str]:
    """Return the unified kernel images of a kernel: kernel, initramfs and arguments in one file."""
    return [
        f"{root}/EFI/Linux/{name}"
        for root in ROOTS
        for name in _names_in(host, root + "/EFI/Linux", "*.efi")
        if _names(name, release)
    ]


def bootable(host: LiveHost, release: str) -> bool:
    """Return whether a kernel's image is in a place from which a boot loader of this host loads it."""
    return any(host.exists(path.format(release)) for path in IMAGES) or _has_kernel(host, release)


def _has_kernel(host: LiveHost, release: str) -> bool:
    return bool(unified(host, release)) or any(host.exists(entry.kernel) for entry in entries(host, release))


def _names_in(host: LiveHost, folder: str, pattern: str) -> List[str]:
    """Return names in a folder; plain users cannot see into the boot partition, and that is not reported."""
    return host.names(folder, pattern, "kernel.initramfs") if host.exists(folder) else []


def _names(text: str, release: str) -> bool:
    """Return whether a path names this kernel, not one whose release merely starts or ends like it."""
    return bool(re.search(r"(?<![\w.])" + re.escape(release) + r"(?:\+\d+(?:-\d+)?)?(?=$|/|\.efi$|\.img$)", text))


def _fields(text: str) -> Dict[str, List[str]]:
    found: Dict[str, List[str]] = {}
    for line in text.splitlines():
        key, _space, value = line.strip().partition(" ")
        if key and not key.startswith("#"):
            found.setdefault(key, []).append(value.strip())
    return found


def _on_host(host: LiveHost, root: str, path: str) -> Optional[str]:
    """Return the host's path for a path in an entry, which is relative to the partition mounted at `root`."""
    for place in (root + path, path):
        if path and host.exists(place):
            return place
    return None
