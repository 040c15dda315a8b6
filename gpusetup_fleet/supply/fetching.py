"""Fetch files into a pool, and lay them into other folders."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from concurrent.futures import ThreadPoolExecutor, as_completed
from http import HTTPStatus
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

from urllib3.exceptions import HTTPError

from gpusetup.bootstrap.web import cause
from gpusetup.content import host_code
from gpusetup.errors import HostFailedError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from requests import Session

_BLOCK = 1 << 20
_TRIES = 5
"""Consecutive tries that bring nothing or are too slow."""
_SILENCE = 60.0
_PAUSE = 1.0
"""Seconds before the next try, times the number of such tries."""
_AT_ONCE = 4


def require_space(folder: Path, size: int) -> None:
    """Raise if a folder has too little free space for this many bytes."""
    room = shutil.disk_usage(folder).free
    if size > room:
        raise HostFailedError("GS-765", f"{folder} has {room >> 20} MiB free, the files need {-(-size >> 20)} MiB")


class Wanted(NamedTuple):
    """One file: its URL, name, size and digest."""

    url: str
    name: str
    size: int
    sha256: str


class Pool:
    """A folder of complete files, named by digest; `.part` has incomplete ones.

    `known`: path, digest and size of files elsewhere, which are not fetched again if they have this size. They are only
    linked, and a digest takes as long as a copy: `bundle --verify` computes it, and packing, apt, dnf and pip do.
    """

    def __init__(self, folder: Path, known: Iterable[tuple[Path, str, int]] = ()) -> None:
        self.folder = folder
        self.known = {sha256: path for path, sha256, size in known if path.is_file() and path.stat().st_size == size}
        (folder / ".part").mkdir(parents=True, exist_ok=True)

    def path(self, sha256: str) -> Path:
        """Return where a file is, or will be."""
        return self.known.get(sha256) or self.folder / sha256[:2] / sha256

    def lacking(self, files: Iterable[Wanted]) -> list[Wanted]:
        """Return the files to fetch, each once."""
        return list({item.sha256: item for item in files if not self.path(item.sha256).is_file()}.values())

    def new(self, files: Iterable[Wanted]) -> list[Path]:
        """Return the paths of those files that are in this folder, not in `known`."""
        return sorted({path for item in files if self.folder in (path := self.path(item.sha256)).parents})

    def fetch(self, files: Iterable[Wanted], tell: Callable[[int, int], None]) -> int:
        """Fetch the missing files; call `tell` with bytes done and in all. Return the bytes fetched."""
        todo = self.lacking(files)
        whole = sum(item.size for item in todo)
        require_space(self.folder, whole)
        done = 0
        import requests

        with ThreadPoolExecutor(_AT_ONCE) as workers, requests.Session() as session:
            over = Event()
            running = [workers.submit(self._bring, item, session, over) for item in todo]
            try:
                for one in as_completed(running):
                    done += one.result()
                    tell(done, whole)
            except BaseException:  # Ctrl-C too: do not wait for the rest of large files
                over.set()
                for one in running:
                    one.cancel()
                raise
        return done

    def lay(self, sha256: str, target: Path) -> None:
        """Link a file of the pool to another place in the bundle; copy it where hard links do not work."""
        laid(self.path(sha256), target)

    def _bring(self, item: Wanted, session: Session, over: Event) -> int:
        part = self.folder / ".part" / item.sha256
        without = 0
        while not over.is_set():
            before = part.stat().st_size if part.exists() else 0
            digest = problem = ""
            slow = False
            try:
                digest = _go_on(item, part, before, session, over)
            except (OSError, HTTPError) as error:
                if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise HostFailedError("GS-765", f"{self.folder} is full: {item.name} cannot be written") from error
                problem = cause(error)
                slow = isinstance(error, host_code("gpu_host.download").TooSlow)
            here = part.stat().st_size if part.exists() else 0
            if here and (here == item.size or not (item.size or problem)):
                if digest == item.sha256:
                    with part.open("rb") as stream:  # what is in the pool is whole, after a power cut too
                        os.fsync(stream.fileno())
                    self.path(item.sha256).parent.mkdir(exist_ok=True)
                    part.replace(self.path(item.sha256))
                    return here
                problem, here = "it is not the file that the signed index names (its SHA-256 differs)", 0
            if here <= before or (item.size and here > item.size):
                part.unlink(missing_ok=True)
                without += 1
            else:
                without = without + 1 if slow else 0
            if without == _TRIES:
                raise UnreachableError("GS-766", f"{item.name} could not be downloaded", context=item.url, note=problem)
            over.wait(_PAUSE * without)
        return 0


def _go_on(item: Wanted, part: Path, have: int, session: Session, over: Event) -> str:
    """Download the rest of a file; return the digest of all of it."""
    if item.url.startswith("file:"):
        shutil.copyfile(path_of(item.url), part)
        return _digest(part).hexdigest()
    if have and have == item.size:
        return _digest(part).hexdigest()
    headers = {"Range": f"bytes={have}-", "Accept-Encoding": "identity"} if have else {"Accept-Encoding": "identity"}
    with session.get(item.url, headers=headers, stream=True, timeout=_SILENCE) as answer:
        answer.raise_for_status()
        goes_on = answer.status_code == HTTPStatus.PARTIAL_CONTENT
        digest = _digest(part) if goes_on else hashlib.sha256()
        pace = host_code("gpu_host.download").Pace()
        with part.open("ab" if goes_on else "wb") as stream:
            while not over.is_set() and (block := answer.raw.read1(_BLOCK, decode_content=False)):
                stream.write(block)
                if item.size and stream.tell() > item.size:  # whatever this is, it does not fill the disk
                    break
                digest.update(block)
                pace.came_in(len(block))
    return digest.hexdigest()


def sized(files: Iterable[Wanted]) -> list[Wanted]:
    """Return the files; ask the server for a size that the index does not give."""

    def asked(item: Wanted) -> Wanted:
        import requests

        if item.size:
            return item
        if item.url.startswith("file:"):
            return item._replace(size=path_of(item.url).stat().st_size)
        try:
            answer = requests.head(item.url, timeout=_SILENCE, allow_redirects=True)
        except OSError:
            return item
        told = answer.headers.get("Content-Length", "") if answer.ok else ""
        return item._replace(size=int(told)) if told.isdecimal() else item

    with ThreadPoolExecutor(_AT_ONCE) as workers:
        return list(workers.map(asked, files))


def path_of(url: str) -> Path:
    """Return the path of a file: URL; apt writes file:/…, others file:///…."""
    return Path(url2pathname(urlsplit(url).path))


def _digest(path: Path) -> hashlib._Hash:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest


def laid(source: Path, target: Path) -> None:
    """Hard-link a file to another place, or copy it where the file system cannot."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
