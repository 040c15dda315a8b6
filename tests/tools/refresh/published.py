"""What publishers have for programs, made in their published form out of the shipped matrix, and served on this machine."""

import datetime as dt
import gzip
import hashlib
import json
from typing import Any

from gpusetup.matrix.load import NAMES, Matrix, package_files
from tests.replay import Replay

TODAY = dt.date(2026, 11, 24)
MATRIX = Matrix()


def documents() -> dict[str, Any]:
    found = {}
    for name in (*NAMES, *package_files()):
        with open(MATRIX.path(name), encoding="utf-8") as file:
            found[name] = json.load(file)
    return found


def newest(component: str, prefix: str = "") -> str:
    rows = [row for row in documents()[component]["releases"] if row["version"].startswith(prefix)]
    return max((row["version"] for row in rows), key=lambda text: [int(part) for part in text.split(".")])


def row_of(found: Any, component: str, version: str, part: str = "releases") -> Any:
    return next((row for row in found.rows(component, part) if row["version"] == version), None)


def next_patch(version: str) -> str:
    head, _, last = version.rpartition(".")
    return f"{head}.{int(last) + 1}"


def listing(site: Replay, path: str, *names: str) -> None:
    """Serve a folder's page, as NVIDIA's server writes one."""
    links = "".join(f"<a href='{name}'>{name}</a><br>" for name in ("..", *names))
    site.bodies[path] = ("text/html", f"<html><body>{links}</body></html>".encode())


def manifest(site: Replay, product: str, version: str, **more: Any) -> dict[str, Any]:
    """Serve the manifest of a release, and list it alone."""
    document = {"release_date": "2026-11-20", "release_label": version, "release_product": product, **more}
    site.bodies[f"/{product}/redistrib_{version}.json"] = ("application/json", json.dumps(document).encode())
    listing(site, f"/{product}/", f"redistrib_{version}.json")
    return document


def apt(site: Replay, directory: str, packages: dict[str, str]) -> None:
    """Serve a flat repository for apt."""
    stanzas = [
        f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nFilename: ./{name}_{version}.deb\nSize: 10\nSHA256: {'0' * 64}\n"
        for name, version in packages.items()
    ]
    packed = gzip.compress("\n".join(stanzas).encode(), mtime=0)
    site.bodies[f"/repos/{directory}/Packages.gz"] = ("application/gzip", packed)
    release = f"Origin: NVIDIA\nSHA256:\n {hashlib.sha256(packed).hexdigest()} {len(packed)} Packages.gz\n"
    site.bodies[f"/repos/{directory}/Release"] = ("text/plain", release.encode())


def rpm(site: Replay, directory: str, packages: dict[str, str]) -> None:
    """Serve a repository for dnf."""
    rows = "".join(
        f"<package type='rpm'><name>{name}</name><arch>x86_64</arch>"
        f"<version epoch='0' ver='{version.rpartition('-')[0]}' rel='{version.rpartition('-')[2]}'/>"
        f"<checksum type='sha256' pkgid='YES'>{'0' * 64}</checksum><size package='10'/><location href='{name}.rpm'/><format/></package>"
        for name, version in packages.items()
    )
    text = f"<metadata xmlns='http://linux.duke.edu/metadata/common' packages='{len(packages)}'>{rows}</metadata>"
    packed = gzip.compress(text.encode(), mtime=0)
    site.bodies[f"/repos/{directory}/repodata/primary.xml.gz"] = ("application/gzip", packed)
    index = (
        "<repomd xmlns='http://linux.duke.edu/metadata/repo'><data type='primary'>"
        f"<checksum type='sha256'>{hashlib.sha256(packed).hexdigest()}</checksum>"
        "<location href='repodata/primary.xml.gz'/></data></repomd>"
    )
    site.bodies[f"/repos/{directory}/repodata/repomd.xml"] = ("text/xml", index.encode())
