"""A local repository that NVIDIA publishes as one package (`nvidia-driver-local-repo-…`, `cuda-repo-…-local…`).

The package is not installed: its folder below /var is unpacked and used like any other repository, with its own key. A
preview needs only the lists. Nothing of it is used before its digest or its key is verified.
"""

import os
import re
import shutil
import stat
import subprocess
import tarfile
import tempfile
from typing import IO, Any, Dict, Iterable, Iterator, List, Optional, Tuple, cast

from . import files, openpgp, process, runfile
from .failure import HostFailure

Source = Dict[str, Any]
_NAME = re.compile(r"^(?:cuda-repo|nvidia-driver-local-repo)-(?P<directory>[a-z]+[0-9]+)-")
_LISTS = re.compile(r"^(?:Packages|Release|InRelease|repodata/)|\.(?:gpg|pub|key|asc)$")
_KEY = re.compile(r"^[^/]*(?:-keyring\.gpg|\.pub)$")
_MARK = ".unpacked.json"
_HEAD = re.compile(rb"070701[0-9A-Fa-f]{104}")
_BLOCK = 1 << 20


def folder_of(state_dir: str) -> str:
    return os.path.join(state_dir, "sources")


def usable(source: Source, place: str, lists_only: bool) -> Source:
    """Unpack the local repository that a source names below `place`, and return an ordinary source for it; return other
    sources unchanged.
    """
    installer = source.get("installer") or {}
    if not installer.get("path"):
        return source
    path = installer["path"]
    runfile.refuse_unproven(path, installer.get("sha256") or "", "GS-478", "the local repository's package")
    _identify(path, installer.get("directory") or "")
    target = _target(place, path)
    mark = _mark(path, lists_only)
    if files.read_json(os.path.join(target, _MARK)) != mark:
        _unpack(path, target, lists_only)
        os.sync()  # a power cut must not leave the mark without the files
        files.write_json(os.path.join(target, _MARK), mark)
    key = _key(target, path, installer)
    plain = {name: value for name, value in source.items() if name != "installer"}
    # In such an rpm repository packages are signed, but lists are not.
    return dict(plain, uris=["file://" + target], key=key, repo_gpgcheck=source["kind"] == "apt")


def size(source: Source, state_dir: str) -> int:
    """Return the bytes that unpacking a source takes; 0 if it is unpacked already or needs no unpacking."""
    path: str = (source.get("installer") or {}).get("path") or ""
    is_there = os.path.isdir(_target(folder_of(state_dir), path))
    return os.path.getsize(path) if os.path.isfile(path) and not is_there else 0


def sweep(state_dir: str, texts: Iterable[bytes]) -> List[str]:
    """Delete unpacked repositories that no source of the host names any more; return their folders."""
    place, texts = folder_of(state_dir), list(texts)
    names = sorted(os.listdir(place)) if os.path.isdir(place) else []
    folders = [os.path.join(place, name) for name in names]
    gone = [folder for folder in folders if not any(folder.encode() in text for text in texts)]
    for folder in gone:
        shutil.rmtree(folder, ignore_errors=True)
    if gone and not os.listdir(place):
        os.rmdir(place)
    return gone


def _target(place: str, path: str) -> str:
    return os.path.join(place, os.path.splitext(os.path.basename(path))[0])


def _identify(path: str, directory: str) -> None:
    """Fail on a package that is not one of NVIDIA's local repositories, or is for another distribution."""
    env = process.environment()
    deb = path.endswith(".deb")
    argv = ["dpkg-deb", "-f", path, "Package"] if deb else ["rpm", "-qp", "--nosignature", "--qf", "%{NAME}", path]
    code, text, error = process.output(argv, env)
    match = _NAME.match(text.strip())
    if code or match is None:
        note = error.strip()[-200:] or f"it calls itself {text.strip()}"
        raise HostFailure("GS-478", "this is not one of NVIDIA's local-repository packages", path, note)
    if directory and match.group("directory") != directory:
        raise HostFailure(
            "GS-478", "the local repository is for {}, this host needs {}".format(match.group("directory"), directory),
            path,
        )  # fmt: skip


def _mark(path: str, lists_only: bool) -> Dict[str, Any]:
    seen = os.stat(path)
    return {"path": path, "size": seen.st_size, "time": seen.st_mtime_ns, "lists_only": lists_only}


def _unpack(path: str, target: str, lists_only: bool) -> None:
    """Unpack the repository's folder; an interruption leaves nothing that looks complete."""
    if not os.path.isdir(os.path.dirname(target)):
        os.makedirs(os.path.dirname(target), 0o755)
    new = tempfile.mkdtemp(prefix=".new-", dir=os.path.dirname(target))
    os.chmod(new, 0o755)  # noqa: S103 - apt reads as a user of its own
    try:
        count = 0
        for name, stream, length in _members(path):
            if lists_only and not _LISTS.search(name):
                continue
            _write(os.path.join(new, name), stream, length)
            count += 1
        if not count:
            raise HostFailure("GS-478", "the local repository's package holds no repository", path)
        if os.path.isdir(target):
            shutil.rmtree(target)
        os.rename(new, target)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _write(path: str, stream: IO[bytes], length: int) -> None:
    if not os.path.isdir(os.path.dirname(path)):
        os.makedirs(os.path.dirname(path), 0o755)
    with open(path, "wb") as out:
        while length:
            try:
                piece = stream.read(min(_BLOCK, length))
            except tarfile.TarError:
                piece = b""
            if not piece:
                raise HostFailure("GS-478", "the local repository's package is cut off", path)
            out.write(piece)
            length -= len(piece)
    os.chmod(path, 0o644)


def _members(path: str) -> Iterator[Tuple[str, IO[bytes], int]]:
    """Yield (name in the repository, content, length) of the files in the folder below /var."""
    deb = path.endswith(".deb")
    argv = ["dpkg-deb", "--fsys-tarfile", path] if deb else ["rpm2cpio", path]
    with tempfile.TemporaryFile() as errors:  # a pipe that nobody reads meanwhile could fill up
        try:
            process_ = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=errors, env=process.environment())
        except OSError as error:
            raise HostFailure("GS-478", f"{argv[0]} is not installed: the package cannot be unpacked", path) from error
        pipe = cast("IO[bytes]", process_.stdout)
        try:
            yield from _of_tar(pipe, path) if deb else _of_cpio(pipe, path)
            while pipe.read(_BLOCK):
                pass
        finally:
            pipe.close()
            code = process_.wait()
        errors.seek(0)
        if code:
            said = errors.read().decode("utf-8", "replace").strip()
            raise HostFailure("GS-478", "the local repository's package is damaged", path, said[-300:])


def _of_tar(pipe: IO[bytes], path: str) -> Iterator[Tuple[str, IO[bytes], int]]:
    try:
        with tarfile.open(fileobj=pipe, mode="r|") as archive:
            for item in archive:
                name = _inside(item.name, path)
                content = archive.extractfile(item) if name and item.isfile() else None
                if name and content is not None:
                    yield name, content, item.size
    except tarfile.TarError as error:
        raise HostFailure("GS-478", "the local repository's package is damaged", path, str(error)) from error


def _of_cpio(pipe: IO[bytes], path: str) -> Iterator[Tuple[str, IO[bytes], int]]:
    """Read rpm2cpio's output: 110 bytes in hexadecimal, a name, the content, each padded to four bytes."""
    while True:
        head = pipe.read(110)
        if not _HEAD.fullmatch(head):
            raise HostFailure("GS-478", "the local repository's package cannot be read as a cpio archive", path)
        mode, length, name_size = (int(head[at : at + 8], 16) for at in (14, 54, 94))
        name = pipe.read(name_size).rstrip(b"\0").decode("utf-8", "replace")
        pipe.read(-(110 + name_size) % 4)
        if name == "TRAILER!!!":
            return
        inside = _inside(name, path) if stat.S_ISREG(mode) else None
        rest = _Part(pipe, length)
        if inside:
            yield inside, cast("IO[bytes]", rest), length
        rest.read(rest.left)
        pipe.read(-length % 4)


class _Part:
    """A stream limited to a number of bytes."""

    def __init__(self, stream: IO[bytes], length: int) -> None:
        self.stream = stream
        self.left = length

    def read(self, count: int) -> bytes:
        piece = b""
        while count and self.left:
            more = self.stream.read(min(count, self.left, _BLOCK))
            if not more:
                break
            piece, count, self.left = piece + more, count - len(more), self.left - len(more)
        return piece


def _inside(name: str, path: str) -> Optional[str]:
    """Return a file's name below the repository's folder, None for all other files of the package."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise HostFailure("GS-478", "the local repository's package has a file outside of its folder", path, name)
    return "/".join(parts[2:]) if len(parts) > 2 and parts[0] == "var" and _NAME.match(parts[1] + "-") else None


def _key(target: str, path: str, installer: Dict[str, Any]) -> Dict[str, Any]:
    """Return the repository's own key with the given fingerprints, or its own if the package's digest was verified."""
    names = sorted(name for name in os.listdir(target) if _KEY.fullmatch(name))
    if not names:
        raise HostFailure("GS-478", "the local repository has no key in it", path)
    place = os.path.join(target, names[0])
    given = installer.get("fingerprints") or []
    if given:
        return {"file": place, "fingerprints": given}
    if not installer.get("sha256"):
        raise HostFailure(
            "GS-478", "no digest or key proves the local repository's package", path,
            hint="set gpusetup_source_sha256 to the digest that NVIDIA publishes, or gpusetup_source_fingerprints",
        )  # fmt: skip
    try:
        return {"file": place, "fingerprints": openpgp.fingerprints(files.read_bytes(place) or b"")}
    except openpgp.BadKey as error:
        raise HostFailure("GS-478", f"the local repository's key cannot be read: {error}", path) from error
