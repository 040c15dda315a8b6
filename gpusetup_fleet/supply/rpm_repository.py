"""A signed repository of rpm packages for dnf and zypper; packages keep their vendors' signatures."""

import bz2
import gzip
import io
import lzma
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

from gpusetup.bootstrap.bundle import digest_of, replaced
from gpusetup.content import host_code
from gpusetup.drive.runner import Finished, filtering, run
from gpusetup.errors import PreflightError, UnreachableError
from gpusetup_fleet.supply.fetching import Pool, Wanted
from gpusetup_fleet.supply.root import Entry, Extras
from gpusetup_fleet.supply.signing import Signer, fingerprints_of

_COMMON = "{http://linux.duke.edu/metadata/common}"
_REPO = "{http://linux.duke.edu/metadata/repo}"
_OPENERS = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
_DEADLINE = 3600.0
_ARMORED = re.compile(rb"-----BEGIN PGP.*?-----END PGP PUBLIC KEY BLOCK-----", re.DOTALL)


def read(place: Path) -> list[Entry]:
    """Return the packages of a repository; none if it does not exist."""
    return list(entries_of(place, "")) if (place / "repodata/repomd.xml").is_file() else []


def entries_of(place: Path, url: str) -> Iterator[Entry]:
    """Read the index in a folder; `url`: the repository's address."""
    index = _listed(place, "primary")
    if index is None:
        return
    with _opened(index) as stream:
        for _event, element in ET.iterparse(stream):  # noqa: S314 - of a proven or own repository
            if element.tag != f"{_COMMON}package":
                continue
            yield _entry(element, _text(element, "arch"), url)
            element.clear()


def extras_in(place: Path, signer: Signer) -> Extras:
    """Return module streams and keys of a published repository."""
    keys = place / signer.key_file
    blocks = _ARMORED.findall(keys.read_bytes()) if keys.is_file() else ()
    return Extras(modules_of(place) if (place / "repodata/repomd.xml").is_file() else "", tuple(blocks))


def modules_of(place: Path) -> str:
    """Return the module streams of an index, as YAML."""
    index = _listed(place, "modules")
    if index is None:
        return ""
    with _opened(index) as stream:
        return stream.read().decode("utf-8", "replace")


def _listed(place: Path, kind: str) -> Path | None:
    """Return the file of one part of an index; the package manager checked its digest."""
    root = ET.parse(place / "repodata/repomd.xml").getroot()  # noqa: S314 - of a proven or own repository
    for data in root.iter(f"{_REPO}data"):
        location = data.find(f"{_REPO}location")
        if data.get("type") == kind and location is not None:
            return place / "repodata" / (location.get("href") or "").rpartition("/")[2]
    return None


def _opened(path: Path) -> IO[bytes]:
    if path.suffix == ".zst":
        if shutil.which("zstd") is None:
            raise PreflightError("GS-790", "zstd is not installed")
        with filtering(["zstd", "-q", "-d", "-c", str(path)]) as process:
            return io.BytesIO(process.communicate()[0])
    opener = cast("Callable[..., Any]", _OPENERS.get(path.suffix, open))
    return cast("IO[bytes]", opener(path, "rb"))


def _entry(element: Element, arch: str, url: str) -> Entry:
    location, checksum = element.find(f"{_COMMON}location"), element.find(f"{_COMMON}checksum")
    size = element.find(f"{_COMMON}size")
    assert location is not None  # noqa: S101 - the format has these
    assert checksum is not None  # noqa: S101
    assert size is not None  # noqa: S101
    href, name = location.get("href") or "", _text(element, "name")
    base = location.get("{http://www.w3.org/XML/1998/namespace}base") or url
    if checksum.get("type") != "sha256":
        raise UnreachableError(
            "GS-763", f"{name} has no SHA-256 in its repository's index", context=url, hint="use another mirror of it"
        )
    version = element.find(f"{_COMMON}version")
    file = Wanted(
        f"{base.rstrip('/')}/{href}", href.rpartition("/")[2], int(size.get("package") or 0), checksum.text or ""
    )
    return Entry(name, _evr(version) if version is not None else "", file, arch)


def _evr(element: Element) -> str:
    """Return a full version as rpm's tools print it: with an epoch only if it is not 0."""
    epoch, release = element.get("epoch") or "0", element.get("rel")
    version = element.get("ver") or ""
    return (f"{epoch}:" if epoch != "0" else "") + version + (f"-{release}" if release else "")


def _text(element: Element, name: str) -> str:
    return element.findtext(f"{_COMMON}{name}") or ""


def prove(paths: Iterable[Path], extras: Extras) -> None:
    """Raise if no vendor's key signed a package: most distributions sign packages, not lists."""
    files = [str(path) for path in paths]
    if not files:
        return
    with tempfile.TemporaryDirectory(prefix="gpusetup-rpm-") as folder:
        known, own = host_code("gpu_host.openpgp"), ("--dbpath", folder)
        for number, key in enumerate(extras.keys):
            path = Path(folder, f"{number}.asc")
            path.write_bytes(known.armored(key))
            tool("rpmkeys", *own, "--import", str(path))
        done = tool("rpmkeys", *own, "--define", "_pkgverify_level all", "--checksig", *files, fails=False)
    bad = [line for line in done.out.splitlines() if not re.search(r": .*\bsignatures OK$", line)]
    if bad or done.code:
        raise UnreachableError(
            "GS-791", "packages are not signed by the vendor whose repository has them",
            note=" | ".join(bad[:4]) or done.err.strip()[-300:], context=", ".join(fingerprints_of(extras.keys)),
        )  # fmt: skip


def publish(place: Path, entries: Iterable[Entry], pool: Pool, signer: Signer, extras: Extras) -> None:
    """Write the repository in one step."""
    with replaced(place) as new:
        for entry in entries:
            pool.lay(entry.file.sha256, new / entry.file.name)
        older = ("--update", "--update-md-path", str(place)) if (place / "repodata").is_dir() else ()
        form = ("--checksum", "sha256", "--general-compress-type", "gz", "--no-database")
        tool("createrepo_c", "--quiet", *form, *older, str(new))
        index = new / "repodata/repomd.xml"
        if extras.modules:
            modules = new / "modules.yaml"
            modules.write_text(extras.modules)
            tool("modifyrepo_c", "--mdtype=modules", "--compress-type=gz", str(modules), str(index.parent))
            modules.unlink()
        signer.detached(index, index.with_name("repomd.xml.asc"))
        public = signer.public()
        index.with_name("repomd.xml.key").write_bytes(public)
        (new / signer.key_file).write_bytes(_together(public, extras.keys, signer.fingerprint))


def _together(public: bytes, keys: Iterable[bytes], fingerprint: str) -> bytes:
    """Return the key of the list and the keys of the packages in one file: hosts check each by its fingerprint."""
    known = host_code("gpu_host.openpgp")
    others = dict.fromkeys(known.armored(key).rstrip() for key in keys if fingerprints_of((key,), fingerprint))
    return b"".join(key + b"\n" for key in (public.rstrip(), *others))


def tool(program: str, *words: str, fails: bool = True) -> Finished:
    """Run one of rpm's programs."""
    env = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    done = run((program, *words), env={**env, "LC_ALL": "C.UTF-8"}, deadline=_DEADLINE)
    if fails and done.code:
        raise PreflightError("GS-792", f"{program} failed", note=(done.err or done.out).strip()[-300:])
    return done


def known_by(entries: Iterable[Entry], pool: Pool, signed: Mapping[str, str]) -> tuple[Entry, ...]:
    """Return the entries; replace those that an earlier bundle signed by its files, to fetch nothing twice."""
    return tuple(
        _as_signed(entry, path, signed[entry.file.sha256])
        if entry.listed and (path := pool.path(signed.get(entry.file.sha256, ""))).is_file()
        else entry
        for entry in entries
    )


def sign_unsigned(entries: Iterable[Entry], pool: Pool, signer: Signer) -> tuple[tuple[Entry, ...], dict[str, str]]:
    """Sign packages that only a signed list proves; return the new entries, and our digest for each upstream digest.

    The pool has compared each file with the signed list. The content of a package does not change.
    """
    found, digests = [], {}
    for entry in entries:
        if not entry.listed:
            found.append(entry)
            continue
        part = pool.folder / ".part" / f"{entry.file.sha256}.rpm"
        shutil.copyfile(pool.path(entry.file.sha256), part)
        _sign(part, signer)
        prove([part], Extras(keys=(signer.public(),)))
        ours = digest_of(part)
        pool.path(ours).parent.mkdir(exist_ok=True)
        part.replace(pool.path(ours))
        digests[entry.file.sha256] = ours
        found.append(_as_signed(entry, pool.path(ours), ours))
    return tuple(found), digests


def _as_signed(entry: Entry, path: Path, sha256: str) -> Entry:
    return entry._replace(file=entry.file._replace(sha256=sha256, size=path.stat().st_size), listed=False)


def _sign(path: Path, signer: Signer) -> None:
    gpg = shutil.which("gpg")
    if shutil.which("rpmsign") is None or gpg is None:
        raise PreflightError(
            "GS-781", "a package without its vendor's signature is signed by rpmsign, which is not on this machine",
            hint="apt-get install rpm gnupg; elsewhere: dnf install rpm-sign",
        )  # fmt: skip
    home = signer.home or os.environ.get("GNUPGHOME", "")
    macros = {"_gpg_name": signer.fingerprint, "__gpg": gpg, "_gpg_digest_algo": "sha256"}
    macros |= {"_gpg_path": home} if home else {}
    words = [word for name, value in macros.items() for word in ("--define", f"{name} {value}")]
    tool("rpmsign", *words, "--addsign", str(path))
