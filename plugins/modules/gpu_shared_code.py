#!/usr/bin/python
"""Ansible module: run another module of the collection from code that the host keeps until it boots again."""

DOCUMENTATION = r"""
module: gpu_shared_code
short_description: Run a module of this collection from code that the host keeps
description:
  - How the collection's action plugin runs the other modules; name those in playbooks, never this one.
  - The code of all modules lies in C(/run/gpusetup-code), in a folder per version that root alone can read or change.
    A host without it asks for it; one that cannot keep it gets each module whole.
options:
  module: {description: The module to run., type: str, required: true}
  arguments: {description: Its arguments., type: dict, required: true}
  code: {description: SHA-256 of the code of all modules., type: str, required: true}
  program:
    description: SHA-256 of the program that the module takes as its argument O(program).
    type: str
    default: ""
  sent: {description: "What the host asked for, by its SHA-256; zip archives in base64.", type: dict, default: {}}
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Look at the host from kept code (the task that you write is gpu_facts)
  gpusetup.stack.gpu_facts:
"""

RETURN = r"""
missing:
  description: What the host asks for, by its SHA-256; empty where it cannot keep anything. Else the answer is the
    module's.
  returned: where the module did not run
  type: list
  elements: str
"""

import base64
import hashlib
import importlib
import io
import json
import os
import shutil
import stat
import sys
import tempfile
import time
import zipfile
from typing import Any, Dict, List, Optional

from ansible.module_utils import basic

FOLDER = "/run/gpusetup-code"
PACKAGE = "ansible_collections.gpusetup.stack.plugins"
_DAY = 86400.0


def _owned(path: str, closed: bool = True) -> bool:
    """Return whether a path is a folder that only this user can change and, if `closed`, list."""
    seen = os.lstat(path)
    others = 0o077 if closed else 0o022
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid() and not seen.st_mode & others


def keep(place: str, digest: str, packed: str) -> None:
    """Unpack files into their folder, all or none, after checking their digest."""
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(packed))) as archive:
        files = {name: archive.read(name) for name in sorted(archive.namelist())}
    total = hashlib.sha256()
    for name, content in files.items():
        total.update(f"{name} {len(content)}\n".encode() + content)
    if total.hexdigest() != digest:
        raise ValueError("the files do not match their digest")
    if not os.path.lexists(FOLDER):
        os.mkdir(FOLDER, 0o700)
    if not _owned(FOLDER):
        raise PermissionError(FOLDER)
    for name in os.listdir(FOLDER):
        if os.lstat(os.path.join(FOLDER, name)).st_mtime < time.time() - _DAY:
            shutil.rmtree(os.path.join(FOLDER, name))
    part = tempfile.mkdtemp(prefix=".part-", dir=FOLDER)
    packed_by_ansible = getattr(basic.__loader__, "archive", "")
    try:
        for name, content in files.items():
            path = os.path.join(part, name)
            if not os.path.isdir(os.path.dirname(path)):
                os.makedirs(os.path.dirname(path))
            with open(path, "wb") as stream:
                stream.write(content)
        if packed_by_ansible:  # the next task can then be just the few lines that start a module
            with zipfile.ZipFile(packed_by_ansible) as archive:
                archive.extractall(os.path.join(part, "base"))
        os.rename(part, place)
    except BaseException as error:
        shutil.rmtree(part)
        if not (isinstance(error, OSError) and os.path.isdir(place)):  # else a task beside this one was faster
            raise


def held(digest: str, packed: Optional[str]) -> Optional[str]:
    """Return the folder with this digest, None if the host lacks it; raise if the host cannot keep it safely."""
    if not _owned(os.path.dirname(FOLDER), closed=False):  # /run belongs to root, so others fail here
        raise PermissionError(FOLDER)
    place = os.path.join(FOLDER, digest)
    if packed:
        keep(place, digest, packed)
    if not os.path.lexists(place):
        return None
    if not (_owned(FOLDER) and _owned(place)):
        raise PermissionError(place)
    os.utime(place)
    return place


def load(place: str, module: str) -> Any:
    """Import a module from the folder; remove damaged code and return None, so that the host asks for it again."""
    for package, folder in ((PACKAGE, place), (PACKAGE + ".modules", os.path.join(place, "modules"))):
        sys.modules[package].__path__ = [folder, *sys.modules[package].__path__]
    try:
        return importlib.import_module(PACKAGE + ".modules." + module)
    except (ImportError, SyntaxError):
        shutil.rmtree(place, ignore_errors=True)
        return None


def _ask_for(missing: List[str]) -> None:
    sys.stdout.write(json.dumps({"changed": False, "missing": missing}) + "\n")
    sys.exit(0)


def main() -> None:
    told = json.loads(basic._ANSIBLE_ARGS)  # noqa: SLF001 - the other module is to find its own arguments there
    request: Dict[str, Any] = told["ANSIBLE_MODULE_ARGS"]
    wanted = [digest for digest in (request["code"], request["program"]) if digest]
    try:
        places = {digest: held(digest, request["sent"].get(digest)) for digest in wanted}
    except (OSError, ValueError, zipfile.BadZipFile):
        _ask_for([])
    missing = [digest for digest in wanted if not places[digest]]
    if missing:
        _ask_for(missing)
    code, arguments = places[request["code"]], dict(request["arguments"])
    if request["program"]:
        with open(os.path.join(str(places[request["program"]]), "program"), encoding="ascii") as stream:
            arguments["program"] = stream.read()
    module = load(str(code), request["module"])
    if module is None:
        _ask_for([request["code"]])
    internal = {name: value for name, value in request.items() if name.startswith("_ansible_")}
    internal["_ansible_module_name"] = "gpusetup.stack." + request["module"]
    told["ANSIBLE_MODULE_ARGS"] = dict(arguments, **internal)
    basic._ANSIBLE_ARGS = json.dumps(told).encode()  # noqa: SLF001
    module.main()


if __name__ == "__main__":
    main()
