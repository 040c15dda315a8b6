"""Where the archives of distributions with rpm are, and whose key their packages are signed with.

Fingerprints are those of docs.rockylinux.org (GPG key info), almalinux.org/security, centos.org/keys and
fedoraproject.org/security; EPEL's those that public images pin. A distribution that is not here has archives for
subscribers, or addresses that change: they are named by hand.
"""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpusetup.content import host_code
from gpusetup.errors import BadInputError, UnreachableError
from gpusetup.model.package import Key, Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpusetup.model.record import Arch

__all__ = ["Repository", "archives_of", "given", "repositories"]


class _Archive(NamedTuple):
    name: str
    url: str
    key: str
    fingerprints: Mapping[str, tuple[str, ...]]
    """By the distribution's version."""


_ROCKY = {
    "8": ("7051C470A929F454CEBE37B715AF5DAC6D745A60",),
    "9": ("21CB256AE16FC54C6E652949702D426D350D275D",),
    "10": ("FC226859C0860BF0DDB95B085B106C736FEDFC85",),
}
_ALMA = {
    "8": ("5E9B8F5617B5066CE92057C3488FCF7C3ABB34F8", "BC5EDDCADF502C077F1582882AE81E8ACED7258B"),
    "9": ("BF18AC2876178908D6E71267D36CB86CB86B3716",),
    "10": ("EE6DB7B98F5BF5EDD9DA0DE5DEE5C11CC2A1E572",),
}
_CENTOS = {"9": ("99DB70FAE1D7CE227FB6488205B555B38483C65D",)}
_EPEL = {
    "8": ("94E279EB8D8F25B21810ADF121EA45AB2F86D6A1",),
    "9": ("FF8AD1344597106ECE813B918A3872BF3228467C",),
    "10": ("7D8D15CBFC4E62688591FB2633D98517E37ED158",),
}
_FEDORA = {
    "42": ("B0F4950458F69E1150C6C5EDC8AC4916105EF944",),
    "43": ("C6E7F081CF80E13146676E88829B606631645531",),
    "44": ("36F612DCF27F7D1A48A835E4DBFCF71C6D9F90A6",),
}
_ROCKY_URL, _ROCKY_KEY = (
    "https://dl.rockylinux.org/pub/rocky/{version}/{part}/{arch}/os/",
    "https://dl.rockylinux.org/pub/rocky/RPM-GPG-KEY-Rocky-{version}",
)
_ALMA_URL, _ALMA_KEY = (
    "https://repo.almalinux.org/almalinux/{version}/{part}/{arch}/os/",
    "https://repo.almalinux.org/almalinux/RPM-GPG-KEY-AlmaLinux-{version}",
)
_CENTOS_URL, _CENTOS_KEY = (
    "https://mirror.stream.centos.org/{version}-stream/{part}/{arch}/os/",
    "https://www.centos.org/keys/RPM-GPG-KEY-CentOS-Official",
)
_FEDORA_URL, _FEDORA_KEY = (
    "https://dl.fedoraproject.org/pub/fedora/linux/{part}",
    "https://src.fedoraproject.org/rpms/fedora-repos/raw/f{version}/f/RPM-GPG-KEY-fedora-{version}-primary",
)
_EPEL_ARCHIVE = _Archive(
    "epel", "https://dl.fedoraproject.org/pub/epel/{version}/Everything/{arch}/",
    "https://dl.fedoraproject.org/pub/epel/RPM-GPG-KEY-EPEL-{version}", _EPEL,
)  # fmt: skip
_EL = ("BaseOS", "AppStream", "{builders}")
_BUILDERS = {"8": "PowerTools"}
_ARCHIVES: dict[str, tuple[_Archive, ...]] = {
    "rocky": (*(_Archive(part, _ROCKY_URL, _ROCKY_KEY, _ROCKY) for part in _EL), _EPEL_ARCHIVE),
    "almalinux": (*(_Archive(part, _ALMA_URL, _ALMA_KEY, _ALMA) for part in _EL), _EPEL_ARCHIVE),
    "centos": (*(_Archive(part, _CENTOS_URL, _CENTOS_KEY, _CENTOS) for part in _EL), _EPEL_ARCHIVE),
    "fedora": tuple(
        _Archive(part, _FEDORA_URL, _FEDORA_KEY, _FEDORA)
        for part in ("releases/{version}/Everything/{arch}/os/", "updates/{version}/Everything/{arch}/")
    ),
}


def archives_of(system: str, arch: Arch) -> list[Source]:
    """Return the archives of a release: their lists are not signed, their packages are."""
    match = re.fullmatch(r"([a-z-]+?)(\d+)", system)
    name, version = match.groups() if match else (system, "")
    found = []
    for number, archive in enumerate(_ARCHIVES.get(name, ())):
        prints = archive.fingerprints.get(version)
        if prints:
            texts = {"version": version, "arch": arch, "builders": _BUILDERS.get(version, "CRB")}
            url = archive.url.replace("{part}", archive.name).format(**texts)
            key = Key.at(archive.key.format(**texts), prints)
            found.append(
                Source(name=f"archive-{number}", kind="dnf", uris=(url,), key=key, gpgcheck=True, repo_gpgcheck=False)
            )
    if not found:
        raise _unknown(system)
    return found


def _unknown(system: str) -> BadInputError:
    return BadInputError(
        "GS-764", f"{system} has no archive that is known", path="--os",
        hint="name its archives: --archive FILE.repo, with baseurl= and gpgkey= as in a host's /etc/yum.repos.d",
    )  # fmt: skip


class Repository(NamedTuple):
    """One repository of a folder of definitions."""

    name: str
    url: str
    keys: tuple[Path, ...]
    signed: bool
    """Whether its packages are."""
    listed: bool = False
    """Whether its list is, and its packages are not."""


def repositories(folder: Path) -> list[Repository]:
    """Read the definitions that are in a folder; those with signed packages first."""
    found = []
    for path in sorted(folder.glob("*.repo")):
        for name, fields in _sections(path):
            keys = tuple(Path(word.removeprefix("file://")) for word in fields.get("gpgkey", "").split())
            signed = fields.get("pkg_gpgcheck", fields.get("gpgcheck", "1")) == "1"
            listed = not signed and fields.get("repo_gpgcheck") == "1"
            found.append(Repository(name, fields["baseurl"].split()[0], keys, signed, listed))
    return sorted(found, key=lambda repository: not repository.signed)


def _sections(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    text = configparser.ConfigParser(interpolation=None, strict=False)
    text.read_string(path.read_text(encoding="utf-8"))
    for name in text.sections():
        fields = dict(text[name])
        if fields.get("enabled", "1") == "1":
            yield name, fields


def given(path: Path, folder: Path, keys: Path, texts: dict[str, str], network: dict[str, Any]) -> None:
    """Take over the definitions of a file that a person names: whose packages they are, its keys say."""
    try:
        sections = list(_sections(path))
    except (OSError, configparser.Error, UnicodeDecodeError) as error:
        raise BadInputError(
            "GS-764", f"{path} cannot be read as a .repo file: {error}", path="--archive",
            hint="--archive FILE.repo, as in a host's /etc/yum.repos.d",
        ) from error  # fmt: skip
    for name, fields in sections:
        for variable, value in texts.items():
            fields = {key: text.replace(f"${variable}", value) for key, text in fields.items()}  # noqa: PLW2901
        if not fields.get("baseurl") or not fields.get("gpgkey"):
            raise BadInputError(
                "GS-764", f"[{name}] of {path} has no baseurl= or no gpgkey=", path="--archive",
                hint="name one address of the archive, not a list of mirrors, and the key of its packages",
            )  # fmt: skip
        named = []
        for number, url in enumerate(fields["gpgkey"].split()):
            target = keys / f"{name}-{number}"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(_key(url, network))
            named.append(f"file://{target}")
        folder.mkdir(parents=True, exist_ok=True)
        listed = fields.get("repo_gpgcheck", "0")
        (folder / f"{name}.repo").write_text(
            f"[{name}]\nname={name}\nbaseurl={fields['baseurl'].split()[0]}\nenabled=1\ngpgcheck=1\n"
            f"repo_gpgcheck={listed}\ngpgkey={' '.join(named)}\ntype=rpm-md\n"
        )


def _key(url: str, network: dict[str, Any]) -> bytes:
    failure = host_code("gpu_host.failure").HostFailure
    known = host_code("gpu_host.openpgp")
    try:
        raw = host_code("gpu_host.fetch").fetch(url, network)
        armored: bytes = known.armored(raw)
    except failure as error:
        raise UnreachableError(
            error.fields["reference"], error.fields["message"], context=url, note=error.fields["note"]
        ) from error
    except known.BadKey as error:
        raise BadInputError("GS-764", f"{url} cannot be read as a key: {error}", path="--archive") from error
    return armored
