"""Images of distributions: a file, an address that is fetched once, or the one that the lab makes of Debian's packages."""

import hashlib
import json
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from gpusetup.bootstrap.web import Unfetched, session
from tests.lab.places import CACHE, LabError, locked
from tests.lab.process import run

LAB = "lab"
FOLDER = CACHE / "real"
KINDS = {"qcow2", "raw", "vpc", "vhdx", "vmdk"}
TRIES = 5


class Image(NamedTuple):
    path: Path
    kind: str
    name: str
    """As the page calls it: where it came from."""
    made_here: bool = False


def ready(word: str) -> Image:
    """Return what `--image` names, fetched or made first when needed."""
    if word == LAB:
        from tests.vm import image

        return Image(image.ready(), "raw", "made here by mmdebstrap of Debian's packages", made_here=True)
    path = _fetched(word) if word.startswith(("http://", "https://")) else Path(word)
    if not path.is_file():
        raise LabError(f"there is no image {path}; --image takes a file, an address, or the word {LAB}")
    return Image(path, _kind(path), word.rpartition("/")[2])


def _kind(path: Path) -> str:
    told = run(["qemu-img", "info", "--output", "json", path])
    kind = str(json.loads(told.stdout)["format"])
    if kind == "raw" and path.suffix in {".xz", ".gz", ".bz2", ".zst", ".zip"}:
        raise LabError(f"{path} is packed: unpack it first")
    if kind not in KINDS:
        raise LabError(f"{path} is {kind}, which no machine boots from")
    return kind


def _fetched(url: str) -> Path:
    """Fetch once; an address whose content moves ("latest") is fetched anew where the server says that it is another file."""
    place = FOLDER / f"{hashlib.sha256(url.encode()).hexdigest()[:12]}-{Path(urlsplit(url).path).name}"
    with locked("real-image"):
        FOLDER.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, TRIES + 1):
            try:
                _fetch(url, place)
                break
            except Unfetched as error:
                if attempt == TRIES:
                    raise LabError(f"the image cannot be fetched: {error}") from None
                time.sleep(2 * attempt)
    return place


def _fetch(url: str, place: Path) -> None:
    """What came before a break is kept, and the rest asked for."""
    partial, mark = place.with_name(place.name + ".part"), place.with_name(place.name + ".tag")
    had = mark.read_text() if mark.exists() else ""
    headers = {"If-None-Match": had} if had and place.exists() else {}
    if partial.exists() and had:
        headers = {"Range": f"bytes={partial.stat().st_size}-", "If-Range": had}
    with session() as opened, opened.get(url, headers=headers, stream=True, timeout=60) as answer:
        if answer.status_code == 304:
            return
        if answer.status_code == 416:
            partial.unlink()
        if answer.status_code not in {200, 206}:
            raise Unfetched(f"{answer.status_code} {answer.reason} for {url}")
        mark.write_text(answer.headers.get("ETag", ""))
        with partial.open("ab" if answer.status_code == 206 else "wb") as file:
            for block in answer.iter_content(1 << 16):
                file.write(block)
    partial.replace(place)


def kernels() -> list[Path]:
    """Kernels outside of images, by one of which hardware virtualisation can be tried."""
    return [*sorted((CACHE / "vm").glob("*.vmlinuz")), *sorted(Path("/boot").glob("vmlinuz-*"), reverse=True)]
