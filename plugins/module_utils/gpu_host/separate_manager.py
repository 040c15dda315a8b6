"""A package manager with its own sources and caches below a folder: for a preview, or for the sources before an apply,
which a rollback may need until the apply has ended.
"""

import os
from typing import Any, Dict, Iterable, List

from . import fetched, files, planning, sources
from .ledger import Ledger

Texts = Dict[str, bytes]


def manager(params: Dict[str, Any], folder: str, enable: Iterable[str] = ()) -> planning.Manager:
    """Return one; the host's own lists and caches stay unchanged."""
    if params["manager"] == "zypper":
        return planning.manager(params, looking=folder)
    # Report a dead mirror within about a minute; by default the programs try for some minutes.
    seconds = params.get("timeout", 300) // 12 or 1
    options = (_apt if params["manager"] == "apt" else _dnf)(sources.Layout(folder), folder, seconds)
    return planning.manager(params, options=options + ["--enablerepo=" + name for name in enable])


def _apt(layout: sources.Layout, folder: str, seconds: int) -> List[str]:
    lists, cache = os.path.join(folder, "lists"), os.path.join(folder, "cache")
    parts = (layout.apt_sources, layout.apt_preferences, layout.apt_logins)
    for needed in (*parts, os.path.join(lists, "partial"), os.path.join(cache, "archives", "partial")):
        os.makedirs(needed, exist_ok=True)
    return [
        "Dir::Etc::sourcelist=" + layout.apt_list,
        "Dir::Etc::sourceparts=" + layout.apt_sources,
        "Dir::Etc::preferencesparts=" + layout.apt_preferences,
        "Dir::Etc::netrcparts=" + layout.apt_logins,
        "Dir::State::lists=" + lists,
        "Dir::Cache=" + cache,
        f"Acquire::http::Timeout={seconds}",
        f"Acquire::https::Timeout={seconds}",
        "Acquire::Retries=0",
        "Acquire::Languages=none",  # no translated descriptions
    ]


def _dnf(layout: sources.Layout, folder: str, seconds: int) -> List[str]:
    options = ["reposdir=" + layout.dnf_repos, "cachedir=" + os.path.join(folder, "cache"), f"timeout={seconds}"]
    return ["--setopt=" + option for option in [*options, "retries=1"]]


def changed(ledger: Ledger, root: str = "") -> Texts:
    """Return {path: earlier content} of source files that differ from before the current apply.

    `root` is the folder of a preview, with the files that are to be.
    """
    past = {path: raw for path, raw in ledger.before_apply().items() if sources.is_of_sources(path)}
    found = {}
    for path in sorted({*sources.definitions(), *past}):
        raw = past[path] if path in past else files.read_bytes(path)
        now = files.read_bytes(sources.place(root, path))
        if raw is not None and raw != (now.replace(root.encode(), b"") if now is not None and root else now):
            found[path] = raw
    return found


def offers(texts: Texts, names: Iterable[str], params: Dict[str, Any]) -> Dict[str, List[Dict[str, str]]]:
    """Return what former sources offer today, each verified with its former key."""
    if not any(path.endswith((".list", ".sources", ".repo")) for path in texts):
        return {}
    layout, folder = sources.Layout(), fetched.new_folder()
    keys = [path for path in texts if os.path.dirname(path) in (layout.apt_keys, layout.rpm_keys)]
    try:
        for path in {*sources.logins_of_apt(), *texts}:
            raw = texts[path] if path in texts else files.read_bytes(path) or b""
            for key in keys:
                raw = raw.replace(key.encode(), sources.place(folder, key).encode())
            files.write_atomically(sources.place(folder, path), raw, 0o644 if path in keys else 0o600)
        host = manager(params, folder)
        try:
            host.refresh()
            return host.ever_offered(sorted(names))
        finally:
            host.close()
    finally:
        fetched.drop(folder)
