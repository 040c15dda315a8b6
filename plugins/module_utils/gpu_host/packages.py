"""Package wishes and package sets, whatever the package manager."""

import fnmatch
import re

from .failure import HostFailure


def merge(wishes):
    """Return one wish per package name, in order; two wishes for two versions of one package are refused."""
    merged = {}
    for wish in wishes:
        name = wish["name"]
        if not re.match(r"^[A-Za-z0-9][A-Za-z0-9.+_-]*$", name):
            raise HostFailure("GS-461", f"{name!r} is no package name")
        version = wish.get("version") or ""
        if not re.match(r"^[A-Za-z0-9.+~:_^-]*\*?$", version):
            raise HostFailure("GS-461", f"{version!r} is no version of {name}")
        arch = wish.get("arch") or ""
        if arch and not re.match(r"^[a-z0-9_]+$", arch):
            raise HostFailure("GS-461", f"{arch!r} is no architecture of {name}")
        known = merged.get((name, arch))
        if known and known["version"] and version and known["version"] != version:
            raise HostFailure(
                "GS-461",
                "{} is asked for in two versions: {} and {}".format(name, known["version"], version),
                hint="let every role's package list name the same version",
            )
        merged[(name, arch)] = {"name": name, "version": version or (known or {}).get("version", ""), "arch": arch}
    return list(merged.values())


def matches(name, globs):
    """Say whether a package name fits one of the patterns."""
    bare = name.split(":")[0]
    return any(fnmatch.fnmatchcase(bare, glob) for glob in globs)


def fits(version, wanted):
    """Say whether an installed or offered version is the wanted one; the epoch may be left out of the wish."""
    if not wanted:
        return True
    plain = re.sub(r"^\d+:", "", version)
    if wanted.endswith("*"):
        return version.startswith(wanted[:-1]) or plain.startswith(wanted[:-1])
    return wanted in (version, plain) or version == "0:" + wanted


def difference(before, after):
    """Return what changed between two package sets: {"installed", "removed", "moved"}."""
    return {
        "installed": {name: after[name] for name in after if name not in before},
        "removed": {name: before[name] for name in before if name not in after},
        "moved": {
            name: [before[name], after[name]] for name in after if name in before and before[name] != after[name]
        },
    }


def unmet(wishes, installed):
    """Return the wishes that the installed set does not fulfil."""
    return [wish for wish in wishes if not fulfilled(wish, installed)]


def fulfilled(wish, installed):
    """Say whether a wish is installed in the wanted version."""
    version = version_of(installed, key(wish), wish["version"])
    return version is not None and fits(version, wish["version"])


def version_of(installed, name, wanted=""):
    """Return the installed version of a package, None when there is none; of several the wanted one, if that is among them."""
    if name in installed:
        return installed[name]
    several = sorted(version for found, version in installed.items() if found == one_of_several(name, version))
    return ([version for version in several if fits(version, wanted)] or several or [None])[-1]


def one_of_several(name, version):
    """Return the name under which a package set lists one version of a package that is there more than once."""
    return "{}-{}".format(name, re.sub(r"^0:", "", version))


def listed(name, version):
    """Return the wish for what a package set lists under a name."""
    end = one_of_several("", version)
    bare, _colon, arch = (name[: -len(end)] if name.endswith(end) else name).partition(":")
    return {"name": bare, "arch": arch, "version": version}


def key(wish):
    """Return the name under which a package set lists the wish."""
    return wish["name"] + (":" + wish["arch"] if wish["arch"] else "")


def nearest(offered, wanted):
    """Return the offered versions most like the wanted one, for the message."""

    def likeness(version):
        plain = re.sub(r"^\d+:", "", version)
        count = 0
        for ours, theirs in zip(plain, wanted):
            if ours != theirs:
                break
            count += 1
        return -count

    return sorted(set(offered), key=likeness)[:4]


def upstream(version):
    """Return the vendor's version inside a package version: 3:580.95.05-1.el9 is 580.95.05."""
    match = re.match(r"^(?:\d+:)?(\d+(?:\.\d+)*)", version)
    return match.group(1) if match else ""


def stub(name, version, driver_version):
    """Return why a package that is asked for by branch is a transitional stub of another branch, None when it is not."""
    major = driver_version.split(".")[0]
    found = upstream(version).split(".")
    if not major or len(found) < 2 or not (found[0].isdigit() and int(found[0]) >= 300):
        return None
    if found[0] == major:
        return None
    return f"{name} {version} belongs to branch {found[0]}, not {major}: a transitional package that would move the host to another branch"


def forbidden(removals, may_remove, asked):
    """Return the packages that a transaction would take away although nobody allowed it."""
    globs = list(may_remove) + [name.split(":")[0] for name in asked]
    return sorted(name for name in removals if not matches(name, globs))
