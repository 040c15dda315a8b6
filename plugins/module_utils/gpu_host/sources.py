"""Repository definitions: check them, fetch and verify their keys, write them as deb822 or .repo files."""

import os
import re
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple, Union
from urllib.parse import unquote

from . import download, files, openpgp
from .failure import HostFailure

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
_WORD = re.compile(r"^[^\s\x00-\x1f]+$")
_FINGERPRINT = re.compile(r"^(?:[0-9A-F]{40}|[0-9A-F]{64})$")
_FOLDER = re.compile(r"\b(?:file|copy):(?://)?(/\S+)")
_KEYS = ("file", "armored", "url", "package")

Source = Dict[str, Any]
Written = Dict[str, Tuple[Union[str, bytes], int]]  # path to content and mode
_LOGIN = re.compile(r"^([a-z][a-z0-9+.-]*://)([^/@\s:]*):([^/@\s]*)@(.*)$", re.IGNORECASE | re.DOTALL)


class Layout:
    """Where sources and keys are written: on the host, or below a preview's folder."""

    def __init__(self, root: str = "/") -> None:
        self.root = root
        self.apt_sources = os.path.join(root, "etc/apt/sources.list.d")
        self.apt_list = os.path.join(root, "etc/apt/sources.list")
        self.apt_keys = os.path.join(root, "etc/apt/keyrings")
        self.apt_logins = os.path.join(root, "etc/apt/auth.conf.d")
        self.apt_preferences = os.path.join(root, "etc/apt/preferences.d")
        self.apt_pins = os.path.join(self.apt_preferences, "gpusetup")
        self.dnf_repos = os.path.join(root, "etc/yum.repos.d")
        self.zypper_repos = os.path.join(root, "etc/zypp/repos.d")
        self.zypper_logins = os.path.join(root, "etc/zypp/credentials.d")
        self.rpm_keys = os.path.join(root, "etc/pki/rpm-gpg")


def check(source: Source) -> None:
    """Fail on a malformed source; nothing in it may add a line to a file."""
    name = source.get("name") or ""
    if not _NAME.fullmatch(name):
        raise HostFailure(
            "GS-444", f"{name!r} is not a repository name", hint="use letters, digits, dot, underscore, hyphen"
        )
    if source.get("kind") not in ("apt", "dnf", "zypper"):
        raise HostFailure("GS-444", f"the kind of repository {name} is not apt, dnf or zypper")
    words: List[str] = []
    for field in ("uris", "suites", "components", "architectures", "exclude"):
        words += source.get(field) or []
    words += [source.get("like_suite") or "x"]
    for word in words:
        if not _WORD.fullmatch(word):
            raise HostFailure("GS-444", f"repository {name} has {word!r} in it, which is not a single word")
    if re.search(r"[\x00-\x1f]", source.get("description") or ""):
        raise HostFailure("GS-444", f"the description of repository {name} has control characters in it")
    if source.get("like_suite") and source["kind"] != "apt":
        raise HostFailure("GS-444", f"repository {name} sets a suite to copy, which only apt has")
    if not (source.get("uris") or source.get("like_suite")):
        raise HostFailure("GS-444", f"repository {name} has no address")
    if source["kind"] != "apt" and source.get("gpgcheck") is False and source.get("repo_gpgcheck") is False:
        raise HostFailure(
            "GS-444", f"repository {name} would be used without a signature check",
            hint="keep gpgcheck or repo_gpgcheck on",
        )  # fmt: skip


def key_of(source: Source, network: Dict[str, Any]) -> Optional[bytes]:
    """Return the verified key of a source as binary OpenPGP, None if the host's own key is used."""
    if source.get("like_suite"):
        return None
    wanted = source.get("key") or {}
    given = [kind for kind in _KEYS if wanted.get(kind)]
    where = "repository {}".format(source["name"])
    if len(given) != 1:
        raise HostFailure("GS-444", "its key must be given in exactly one way of: {}".format(", ".join(_KEYS)), where)
    prints = [re.sub(r"\s", "", text).upper() for text in wanted.get("fingerprints") or []]
    if not prints and given != ["package"]:
        raise HostFailure(
            "GS-444", "its key has no fingerprint to compare with", where,
            hint="give the full fingerprint (40 hex digits)",
        )  # fmt: skip
    for text in prints:
        if not _FINGERPRINT.fullmatch(text):
            raise HostFailure(
                "GS-444", f"{text!r} is not a full fingerprint", where, hint="give all 40 (or 64) hex digits"
            )
    raw = _material(given[0], wanted, network, where)
    try:
        found, binary = openpgp.fingerprints(raw), openpgp.binary(raw)
    except openpgp.BadKey as error:
        raise HostFailure("GS-445", f"its signing key cannot be read: {error}", where) from error
    strangers = [text for text in found if prints and text not in prints]
    if strangers:
        raise HostFailure(
            "GS-445", "its signing key is not the expected one", where,
            "expected {}, found {}".format(", ".join(prints), ", ".join(strangers)),
            "nothing was changed; compare it with the publisher's; never accept it unchecked",
        )  # fmt: skip
    return binary


def _material(kind: str, wanted: Dict[str, Any], network: Dict[str, Any], where: str) -> bytes:
    if kind == "armored":
        return str(wanted["armored"]).encode("ascii", "replace")
    if kind == "file":
        raw: Optional[bytes] = files.read_bytes(wanted["file"])
        if raw is None:
            raise HostFailure("GS-445", "its key file {} is not on the host".format(wanted["file"]), where)
        return raw
    if kind == "url":
        return download.fetch(wanted["url"], network, wanted.get("sha256") or "")
    package = wanted["package"]
    if not package.get("sha256"):
        raise HostFailure("GS-444", "its keyring package has no digest to compare with", where)
    return download.member_of_deb(download.fetch(package["url"], network, package["sha256"]), package["member"])


def render(source: Source, key: Optional[bytes], layout: Layout, known: List[Dict[str, Any]]) -> Written:
    if source["kind"] == "apt":
        return _render_apt(source, key, layout, known)
    return _render_zypper(source, key, layout) if source["kind"] == "zypper" else _render_dnf(source, key, layout)


def _render_apt(source: Source, key: Optional[bytes], layout: Layout, known: List[Dict[str, Any]]) -> Written:
    written: Written = {}
    uris, signed_by = source.get("uris") or [], None
    if source.get("like_suite"):
        like = _like(source, known)
        uris, signed_by = uris or like["uris"], like["signed_by"]
    if key is not None:
        signed_by = os.path.join(layout.apt_keys, source["name"] + ".gpg")
        written[signed_by] = (key, 0o644)
    lines = [
        "# Written by gpusetup.",
        "Types: deb",
        "URIs: " + " ".join(without_logins(uris)),
        "Suites: " + " ".join(source.get("suites") or ["/"]),
    ]
    for field, title in (("components", "Components"), ("architectures", "Architectures")):
        if source.get(field):
            lines.append("{}: {}".format(title, " ".join(source[field])))
    if signed_by:
        lines.append("Signed-By: " + signed_by)
    found = logins_of(source["name"], uris)
    if found:
        text = "".join(f"machine {login.address} login {login.user} password {login.password}\n" for login in found)
        written[os.path.join(layout.apt_logins, source["name"] + ".conf")] = ("# Written by gpusetup.\n" + text, 0o600)
    written[os.path.join(layout.apt_sources, source["name"] + ".sources")] = ("\n".join(lines) + "\n", 0o644)
    return written


def _like(source: Source, known: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Return the addresses and the key of the host's own entry for a suite."""
    own = "/{}.sources".format(source["name"])
    fitting = [
        entry
        for entry in known
        if source["like_suite"] in entry["suites"] and entry["uri"] and not entry["file"].endswith(own)
    ]
    if not fitting:
        raise HostFailure(
            "GS-446", "the host has no package source for {} to take the mirror from".format(source["like_suite"]),
            "repository {}".format(source["name"]), hint="give its address in `uris`",
        )  # fmt: skip
    signed = fitting[0]["signed_by"]
    if signed == "(embedded key)":
        raise HostFailure(
            "GS-446", "the host's source for {} carries its key inside".format(source["like_suite"]), fitting[0]["file"]
        )
    return {"uris": sorted({entry["uri"] for entry in fitting}), "signed_by": signed}


def _render_dnf(source: Source, key: Optional[bytes], layout: Layout) -> Written:
    lines = _checks(gpgcheck=source.get("gpgcheck"), repo_gpgcheck=source.get("repo_gpgcheck"))
    lines.append("gpgkey=file://" + _key_path(source, layout))
    if source.get("module_hotfixes"):
        lines.append("module_hotfixes=1")
    if source.get("exclude"):
        lines.append("excludepkgs=" + ",".join(source["exclude"]))
    login, plain = login_of(source["name"], source["uris"]), dict(source, uris=without_logins(source["uris"]))
    if login is None:
        return _repo_file(plain, key, layout, layout.dnf_repos, lines)
    lines += ["username=" + login.user, "password=" + login.password]
    return _repo_file(plain, key, layout, layout.dnf_repos, lines, mode=0o600)


def _render_zypper(source: Source, key: Optional[bytes], layout: Layout) -> Written:
    """For zypper, gpgcheck=1 means the list's signature, or without one that of each package."""
    lines = _checks(gpgcheck=True, repo_gpgcheck=source.get("repo_gpgcheck"), pkg_gpgcheck=source.get("gpgcheck"))
    lines += ["gpgkey=file://" + _key_path(source, layout), "autorefresh=1", "type=rpm-md"]
    login, plain = login_of(source["name"], source["uris"]), dict(source, uris=without_logins(source["uris"]))
    if login is None:
        return _repo_file(plain, key, layout, layout.zypper_repos, lines)
    place = os.path.join(layout.zypper_logins, "gpusetup-" + source["name"])
    plain["uris"] = [uri + ("&" if "?" in uri else "?") + "credentials=" + place for uri in plain["uris"]]
    written = _repo_file(plain, key, layout, layout.zypper_repos, lines)
    written[place] = (f"# Written by gpusetup.\nusername={login.user}\npassword={login.password}\n", 0o600)
    return written


def _checks(**wanted: Optional[bool]) -> List[str]:
    return [f"{name}={value is not False:d}" for name, value in wanted.items()]


def _key_path(source: Source, layout: Layout) -> str:
    return os.path.join(layout.rpm_keys, "RPM-GPG-KEY-" + source["name"])


def _repo_file(
    source: Source, key: Optional[bytes], layout: Layout, folder: str, lines: List[str], *, mode: int = 0o644
) -> Written:
    """Return the files of an rpm repository: its key, and its definition with these lines."""
    name = source["name"]
    first = ["# Written by gpusetup.", f"[{name}]", "name=" + (source.get("description") or name)]
    first += ["baseurl=" + "\n        ".join(source["uris"]), "enabled=1"]
    last = ["priority={}".format(int(source["priority"]))] if source.get("priority") else []
    return {
        _key_path(source, layout): (openpgp.armored(key or b""), 0o644),
        os.path.join(folder, name + ".repo"): ("\n".join([*first, *lines, *last]) + "\n", mode),
    }


def preferences(pins: List[Dict[str, Any]], layout: Layout) -> Written:
    stanzas = []
    for pin in pins:
        if not pin["packages"]:
            continue  # one without packages makes apt ignore the whole file
        rule = next((f"{kind} {pin[kind]}" for kind in ("version", "release") if pin.get(kind)), None)
        rule = rule or 'origin "{}"'.format(pin.get("origin") or "")
        values = [" ".join(pin["packages"]), rule, str(int(pin["priority"]))]
        if any(re.search(r"[\x00-\x1f]", value) for value in values):
            raise HostFailure("GS-444", "a package pin has control characters in it")
        stanzas.append("Package: {}\nPin: {}\nPin-Priority: {}\n".format(*values))
    return {layout.apt_pins: ("# Written by gpusetup.\n" + "\n".join(stanzas), 0o644)} if stanzas else {}


def is_of_sources(path: str) -> bool:
    """Return whether a file of a host is a source, a key, a login or our preferences."""
    layout = Layout()
    folders = (
        layout.apt_sources, layout.apt_keys, layout.apt_logins, layout.dnf_repos, layout.zypper_repos,
        layout.zypper_logins, layout.rpm_keys,
    )  # fmt: skip
    return os.path.dirname(path) in folders or path in (layout.apt_pins, layout.apt_list)


def place(folder: str, path: str) -> str:
    """Return the path of a host's file in a folder with the same structure."""
    return os.path.join(folder or Layout().root, os.path.relpath(path, Layout().root))


def definitions() -> List[str]:
    """Return the host's files that define package sources."""
    layout = Layout()
    places = (layout.apt_sources, layout.dnf_repos, layout.zypper_repos)
    found = [path for folder in places for path in files_in(folder) if path.endswith((".list", ".sources", ".repo"))]
    return [layout.apt_list, *found] if os.path.isfile(layout.apt_list) else found


def folders() -> List[str]:
    """Return the host's folders that serve as package sources."""
    texts = [files.read_text(path) or "" for path in definitions()]
    return sorted({folder for text in texts for folder in _FOLDER.findall(text) if os.path.isdir(folder)})


def logins_of_apt() -> List[str]:
    """Return the host's files with logins for apt."""
    return [path for path in files_in(Layout().apt_logins) if path.endswith(".conf")]


def files_in(folder: str) -> List[str]:
    paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))] if os.path.isdir(folder) else []
    return [path for path in paths if os.path.isfile(path)]


def obsolete(kept: Mapping[str, Mapping[str, Any]], wanted: Iterable[str]) -> List[str]:
    """Return our recorded source, key and preference files that are no longer wanted."""
    return sorted(
        path
        for path, entry in kept.items()
        if entry.get("original") is None and entry.get("present", True) and is_of_sources(path) and path not in wanted
    )


def conflicts(
    sources: List[Source], known: List[Dict[str, Any]], replace: Iterable[str], signers: Set[str]
) -> List[Dict[str, Any]]:
    """Return the host's own entries with one of our addresses but another key: apt refuses both together."""
    found = []
    for entry in known:
        for source in sources:
            own = entry["file"].endswith("/{}.sources".format(source["name"])) or entry["file"].endswith(
                "/{}.repo".format(source["name"])
            )
            same = _slashless(entry["uri"]) in [_slashless(uri) for uri in without_logins(source.get("uris") or [])]
            same = same and bool(set(entry["suites"]) & set(source.get("suites") or ["/"]))
            if same and not own and entry["signed_by"] not in signers and not replaced(entry, replace):
                found.append(entry)
    return found


def replaced(entry: Dict[str, Any], prefixes: Iterable[str]) -> bool:
    """Return whether a host's entry is to be disabled."""
    return any(_slashless(entry["uri"]).startswith(_slashless(prefix)) for prefix in prefixes or [])


def without(entry_file: str, text: str, prefixes: Iterable[str]) -> Optional[str]:
    """Return a sources file without the entries to be disabled, None if nothing is left."""
    if entry_file.endswith(".list"):
        kept = [line for line in text.splitlines(True) if not _list_line_fits(line, prefixes)]
        rest = "".join(kept)
        return rest if re.search(r"^\s*deb", rest, re.MULTILINE) else None
    between, joint = (r"\n\s*\n", "\n\n") if entry_file.endswith(".sources") else (r"\n(?=\[)", "\n")
    kept = [block for block in re.split(between, text) if not _names_one_of(prefixes, block)]
    rest = joint.join(kept)
    return rest if re.search(r"^(?:Types:|\[)", rest, re.MULTILINE | re.IGNORECASE) else None


def _names_one_of(prefixes: Iterable[str], block: str) -> bool:
    """Return whether an entry has one of these addresses, which may stand on further lines."""
    fields = re.findall(r"^(?:URIs:|baseurl\s*=)(.*(?:\n[ \t].*)*)", block, re.MULTILINE | re.IGNORECASE)
    return any(replaced({"uri": uri}, prefixes) for field in fields for uri in field.split())


def _list_line_fits(line: str, prefixes: Iterable[str]) -> bool:
    match = re.match(r"^\s*deb(?:-src)?\s+(?:\[[^\]]*\]\s+)?(\S+)", line)
    return bool(match and replaced({"uri": match.group(1)}, prefixes))


def _slashless(uri: str) -> str:
    return uri.rstrip("/")


class Login(NamedTuple):
    """A login for an address, which is stored without it."""

    address: str
    user: str
    password: str


def split_login(uri: str) -> Tuple[str, Optional[Login]]:
    """Return an address without its login, and the login if it has one."""
    match = _LOGIN.fullmatch(uri)
    if match is None:
        return uri, None
    scheme, user, password, rest = match.groups()
    return scheme + rest, Login(scheme + rest, unquote(user), unquote(password))


def without_logins(uris: List[str]) -> List[str]:
    """Return addresses without their logins."""
    return [split_login(uri)[0] for uri in uris]


def logins_of(name: str, uris: List[str]) -> List[Login]:
    """Return the logins of a repository's addresses; fail if one could reach another line or word of a file."""
    found = [login for _address, login in map(split_login, uris) if login is not None]
    for login in found:
        if re.search(r"[\s\x00-\x1f]", login.user + login.password) or not login.user:
            raise HostFailure(
                "GS-444", f"the login in an address of repository {name} has no user name, or a space in it",
                hint="write user:password before the @ of the address, in each of them without spaces",
            )  # fmt: skip
    return found


def login_of(name: str, uris: List[str]) -> Optional[Login]:
    """Return the login of a repository; fail if there are several."""
    found = logins_of(name, uris)
    if len({(login.user, login.password) for login in found}) > 1:
        raise HostFailure(
            "GS-444",
            f"the addresses of repository {name} have several logins, and dnf and zypper take one for a repository",
            hint="make a repository of each address",
        )
    return found[0] if found else None
