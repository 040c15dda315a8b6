#!/usr/bin/python
"""Ansible module: package repositories with proven keys."""

DOCUMENTATION = r"""
module: gpu_repo_source
short_description: Configure package repositories whose keys are verified by their full fingerprints
description:
  - Writes deb822 sources with C(Signed-By) or C(.repo) files with C(gpgkey); every key is compared with its full
    fingerprint first, and one wrong key means that nothing at all is written.
  - Other entries for the same address can be disabled; M(gpusetup.stack.gpu_state) restores them on removal.
extends_documentation_fragment: [gpusetup.stack.options.host, gpusetup.stack.options.gpu_repo_source]
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: NVIDIA's repository
  gpusetup.stack.gpu_repo_source:
    sources: "{{ gpu_repo_sources }}"
"""

RETURN = r"""
written:
  description: Files that were written or removed.
  returned: always
  type: list
  elements: str
"""

import os
import re
import tempfile
from typing import Any, Dict, Optional

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import (
    failure,
    files,
    local_repository,
    params,
    sources,
)
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe.host import LiveHost
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe.packages import sources as known_sources


def definitions(request: Dict[str, Any]) -> sources.Written:
    """Return {path: (content, mode)}; every source is checked and every key verified before anything is written."""
    layout, known = sources.Layout(), known_sources(LiveHost())
    wanted: sources.Written = {}
    unpacked = local_repository.folder_of(request["state_dir"])
    for given in request["sources"]:
        source = local_repository.usable(given, unpacked, lists_only=False)
        sources.check(source)
        wanted.update(sources.render(source, sources.key_of(source, request["network"]), layout, known))
    wanted.update(sources.preferences(request["pins"], layout))
    return wanted


def preview(request: Dict[str, Any]) -> sources.Written:
    """Return what `definitions` would return, with local repositories' packages unpacked into a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        real = local_repository.folder_of(request["state_dir"])
        wanted = definitions(dict(request, state_dir=folder))
        there = local_repository.folder_of(folder)
        return {
            path: (content.replace(there, real) if isinstance(content, str) else content, mode)
            for path, (content, mode) in wanted.items()
        }


def switched_off(request: Dict[str, Any], wanted: sources.Written) -> Dict[str, Optional[str]]:
    """Return {path: new content or None} for the host's own files that contain a replaced address."""
    found: Dict[str, Optional[str]] = {}
    for path in sources.definitions():
        text = files.read_text(path) if path not in wanted else None
        if text and request["replace"]:
            kept = sources.without(path, text, request["replace"])
            if kept != text:
                found[path] = kept
    return found


def enabled(request: Dict[str, Any], off: Dict[str, Optional[str]]) -> Dict[str, Optional[str]]:
    """Return {path: new content} that enables configured dnf repositories, in files as `switched_off` leaves them."""
    folder = sources.Layout().dnf_repos
    found: Dict[str, Optional[str]] = {}
    missing = set(request["enable"])
    for path in (path for path in sources.definitions() if os.path.dirname(path) == folder):
        text = (off[path] if path in off else files.read_text(path)) or ""
        for identity in request["enable"]:
            block = re.search(rf"^\[{re.escape(identity)}\]\s*\n(?:(?!\[).*\n?)*", text, re.MULTILINE)
            if block:
                missing.discard(identity)
                on = re.sub(r"^enabled\s*=.*$", "enabled=1", block.group(0), flags=re.MULTILINE)
                if on != block.group(0):
                    text = text.replace(block.group(0), on)
                    found[path] = text
    if missing:
        hint = "on RHEL register it first: subscription-manager register; subscription-manager repos --enable …"
        raise failure.HostFailure("GS-446", "this host has no repository " + ", ".join(sorted(missing)), hint=hint)
    return found


SPEC = params.SOURCES


def main() -> None:
    module, request = params.opened(SPEC)
    written = []
    with params.failing(module):
        ledger = Ledger(request["state_dir"], module.check_mode)
        wanted = definitions(request) if not module.check_mode else preview(request)
        changes = switched_off(request, wanted)
        changes.update(enabled(request, changes))
        written += ledger.arrange(wanted)
        for path, text in sorted(changes.items()):
            if ledger.write(path, text) if text is not None else ledger.delete(path):
                written.append(path)
        written += [path for path in sources.obsolete(ledger.state["files"], wanted) if ledger.give_up_file(path)]
    module.exit_json(changed=bool(written), written=written, diff=ledger.diffs)


if __name__ == "__main__":
    main()
