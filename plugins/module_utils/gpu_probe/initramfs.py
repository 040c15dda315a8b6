"""Read an initramfs: which GPU modules does it contain, and which modprobe settings?

An image is a sequence of cpio archives: uncompressed early ones (microcode), then the main one, usually compressed.
In a unified kernel image it is the section .initrd. Members are streamed, and reading stops once the answer is known.
"""

import bz2
import lzma
import posixpath
import re
import stat
import struct
import subprocess
import threading
import time
import zlib
from typing import Any, Callable, ClassVar, Dict, List, Optional, Set, Tuple

_BLOCK = 1 << 20
_MODULE = re.compile(r"/(nouveau|nova[-_]core|nvidia[\w-]*|nvme[-_]core)\.ko(\.\w+)?$")
_PE, _SECTION = struct.Struct("<4sHH12xH2x"), struct.Struct("<8sI4xII16x")
_SETTINGS = re.compile(r"(^|/)(etc|usr/lib|lib)/modprobe\.d/[^/]+\.conf$")
BLACKLIST = re.compile(r"^\s*(?:blacklist\s+nouveau|install\s+nouveau\s+/bin/(?:false|true))\s*(?:#.*)?$", re.MULTILINE)
_MAGICS = (
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    (b"\x02\x21\x4c\x18", "lz4"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\x5d\x00\x00", "lzma"),
)


class Unreadable(Exception):  # noqa: N818 - it ends the walk
    """The image could not be read to its end; the text says why."""


def inspect(path: str, seconds: float) -> Dict[str, Any]:
    """Return {"nouveau", "blacklist", "why"}; None for what could not be determined."""
    found = _read(path, _Contents(whole=False), seconds)
    return {name: found[name] for name in ("nouveau", "blacklist", "why")}


def contents(path: str, seconds: float) -> Dict[str, Any]:
    """Return the same with `modules` and `settings` (the text of each modprobe.d file), as far as was read."""
    return _read(path, _Contents(whole=True), seconds)


def _read(path: str, found: "_Contents", seconds: float) -> Dict[str, Any]:
    answer: Dict[str, Any] = {"why": None, "modules": found.modules, "settings": found.settings}
    missing = False  # type: Optional[bool]
    try:
        with open(path, "rb", buffering=0) as handle:
            start, size = section(handle, b".initrd")
            handle.seek(start)
            _walk(handle, start + size, found, time.monotonic() + seconds)
    except (OSError, EOFError, Unreadable, zlib.error, lzma.LZMAError, ValueError) as error:
        answer["why"], missing = f"{path}: {getattr(error, 'strerror', None) or error}", None
    return dict(answer, nouveau=found.nouveau or missing, blacklist=found.blacklist or missing)


class _Contents:
    """What was read so far. Links matter to the blacklist: Debian's own modprobe.d file links to another folder."""

    def __init__(self, whole: bool) -> None:
        self.whole = whole
        self.modules: Set[str] = set()
        self.settings: Dict[str, str] = {}
        self.blacklist = False
        self.blacklisting: Set[str] = set()
        self.links: Dict[str, str] = {}

    @property
    def nouveau(self) -> bool:
        """Whether it contains the kernel's own driver, nouveau or nova."""
        return bool(self.modules & {"nouveau", "nova_core"})

    @property
    def known(self) -> bool:
        """Whether reading can stop."""
        return not self.whole and self.nouveau and self.blacklist

    def name(self, name: str) -> None:
        match = _MODULE.search("/" + name)
        if match:
            self.modules.add(match.group(1).replace("-", "_"))

    def text(self, name: str, mode: int, text: str) -> None:
        """Record a settings file or a link to one."""
        name = posixpath.normpath(name)
        if stat.S_ISLNK(mode):
            self.links[name] = posixpath.normpath(posixpath.join("/", posixpath.dirname(name), text)).lstrip("/")
        else:
            if _SETTINGS.search(name):
                self.settings["/" + name.lstrip("/")] = text
            if BLACKLIST.search(text):
                self.blacklisting.add(name)
        self.blacklist = any(
            self._end(name) in self.blacklisting
            for name in set(self.links) | self.blacklisting
            if _SETTINGS.search(name)
        )

    def _end(self, name: str) -> str:
        for _hop in range(8):
            name = self.links.get(name, name)
        return name


def section(handle: Any, name: bytes) -> Tuple[int, int]:
    """Return (offset, length) of a section of a unified kernel image; for any other file, of the whole file."""
    handle.seek(0)
    if handle.read(2) != b"MZ":
        return 0, handle.seek(0, 2)
    handle.seek(0x3C)
    header = int.from_bytes(handle.read(4), "little")
    handle.seek(header)
    signature, _machine, count, optional = _PE.unpack(handle.read(_PE.size).ljust(_PE.size, b"\0"))
    if signature != b"PE\0\0":
        raise Unreadable("no unified kernel image")
    handle.seek(header + _PE.size + optional)
    for _number in range(count):
        label, length, raw_length, start = _SECTION.unpack(handle.read(_SECTION.size).ljust(_SECTION.size, b"\0"))
        if label.rstrip(b"\0") == name:
            return start, min(length or raw_length, raw_length)
    raise Unreadable("the unified kernel image has no section " + name.decode())


def _walk(handle: Any, end: int, found: _Contents, deadline: float) -> None:
    """Read every archive of the image; the first compressed one is the last."""
    while not found.known and handle.tell() < end:
        head = _skip_padding(handle, end)
        if not head:
            return
        if head.startswith((b"070701", b"070702")):
            _members(handle.read, found, deadline)
            continue
        for magic, name in _MAGICS:
            if head.startswith(magic):
                with _Unpacked(handle, name, deadline) as stream:
                    _members(stream.read, found, deadline)
                return
        raise Unreadable(f"unknown compression (starts with {head.hex()})")


def _skip_padding(handle: Any, end: int) -> bytes:
    """Skip zero bytes; return the next six bytes without consuming them, b"" at the end."""
    while True:
        start = handle.tell()
        block = handle.read(min(4096, end - start))
        if not block:
            return b""
        rest = block.lstrip(b"\x00")
        if rest:
            handle.seek(start + len(block) - len(rest))
            head: bytes = handle.read(6)
            handle.seek(start + len(block) - len(rest))
            return head


def _members(read: Callable[..., Any], found: _Contents, deadline: float) -> None:
    """Read the members of one cpio archive up to its trailer."""
    while not found.known:
        header = _exactly(read, 110)
        if header is None:
            raise Unreadable("the archive ends without its trailer")
        if header[:6] not in (b"070701", b"070702"):
            if not header.strip(b"\x00"):
                return
            raise Unreadable("damaged archive")
        if time.monotonic() > deadline:
            raise Unreadable("not read to its end within the time allowed")
        mode, size, length = int(header[14:22], 16), int(header[54:62], 16), int(header[94:102], 16)
        name = (_exactly(read, length + (-(110 + length)) % 4) or b"")[: length - 1].decode("utf-8", "replace")
        if name == "TRAILER!!!":
            return
        padded = size + (-size) % 4
        found.name(name)
        if size and size < 65536 and name.endswith(".conf"):
            text = (_exactly(read, padded) or b"")[:size].decode("utf-8", "replace")
            found.text(name, mode, text)
            continue
        while padded:
            piece = read(min(padded, _BLOCK))
            if not piece:
                raise Unreadable(f"the archive ends in the middle of {name}")
            padded -= len(piece)


def _exactly(read: Callable[..., Any], size: int) -> Optional[bytes]:
    parts = []
    while size:
        piece = read(size)
        if not piece:
            return None
        parts.append(piece)
        size -= len(piece)
    return b"".join(parts)


class _Unpacked:
    """Decompresses the rest of a file: with the standard library if it can, else with the format's own tool."""

    _TOOLS: ClassVar[Dict[str, List[str]]] = {"zstd": ["zstd", "-dcq"], "lz4": ["lz4", "-dcq"]}
    _LIBRARY: ClassVar[Dict[str, Callable[[], Any]]] = {
        "gzip": lambda: zlib.decompressobj(31),
        "xz": lzma.LZMADecompressor,
        "lzma": lzma.LZMADecompressor,
        "bzip2": bz2.BZ2Decompressor,
    }

    def __init__(self, handle: Any, name: str, deadline: float) -> None:
        self.handle, self.buffer, self.offset = handle, b"", 0
        self.process: Any = None
        if name in self._TOOLS:
            self._start(self._TOOLS[name], deadline)
        else:
            self.unpacker = self._LIBRARY[name]()

    def _start(self, argv: List[str], deadline: float) -> None:
        """Start the tool on the file's descriptor, which is unbuffered, so the tool continues where we stopped."""
        try:
            self.process = subprocess.Popen(
                argv,
                stdin=self.handle.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise Unreadable(f"{argv[0]} is needed to read it: {error.strerror}") from error
        self.timer = threading.Timer(max(0.1, deadline - time.monotonic()), self.process.kill)
        self.timer.daemon = True
        self.timer.start()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_details: object) -> None:
        if self.process is not None:
            self.timer.cancel()
            self.process.kill()
            self.process.stdout.close()
            self.process.wait()

    def read(self, size: int) -> bytes:
        """Return at most that many unpacked bytes, b"" at the end."""
        if self.process is not None:
            told: bytes = self.process.stdout.read(size)
            return told
        while self.offset >= len(self.buffer):
            raw = b"" if self.unpacker.eof else self.handle.read(_BLOCK // 4)
            if not raw:
                return b""
            self.buffer, self.offset = self.unpacker.decompress(raw), 0
        piece = self.buffer[self.offset : self.offset + size]
        self.offset += len(piece)
        return piece
