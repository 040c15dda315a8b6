"""A local repository's package on a host: what is proven, what is unpacked, and what goes when it is no longer wanted."""

import hashlib
import io
import os
import shutil
import subprocess

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import local_repository

from tests.modules.stand_ins import programs, refused, write

KEYRING = "nvidia-driver-local-12345678-keyring.gpg"
NAME = "nvidia-driver-local-repo-debian12-580.142"
_BODY = b"\x04" + bytes(9)
KEY = bytes([0x98, len(_BODY)]) + _BODY
"""As small as a public key can be: one packet of version 4."""
pytestmark = pytest.mark.skipif(os.geteuid() != 0 or shutil.which("dpkg-deb") is None, reason="needs root and dpkg-deb")


def package(folder, name=NAME, keyring=KEY):
    """A package with two lists, one package and a key in the repository's folder, and a sources file beside it."""
    tree = folder / "tree"
    files = {"Packages": "p", "InRelease": "r", "nvidia-smi_1_amd64.deb": "x" * 5000, KEYRING: keyring}
    write(tree / "var" / name, files)
    control = f"Package: {name}\nVersion: 1.0-1\nArchitecture: amd64\nMaintainer: x <x@y.z>\nDescription: x\n"
    write(tree, {"etc/apt/x.list": "deb", "DEBIAN/control": control})
    made = folder / f"{NAME}_1.0-1_amd64.deb"
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", tree, made], check=True, capture_output=True)
    shutil.rmtree(tree)
    made.chmod(0o644)
    return made


def source(path, **words):
    installer = {"path": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "directory": "debian12"}
    return {"name": "cuda-debian12-local", "kind": "apt", "uris": ["file:///x"], "installer": {**installer, **words}}


def test_a_mark_is_written_once_its_files_are_on_the_disk(tmp_path, monkeypatch):
    done: list[bool] = []
    monkeypatch.setattr(local_repository.os, "sync", lambda: done.append(bool(list(tmp_path.rglob(".unpacked.json")))))
    local_repository.usable(source(package(tmp_path)), str(tmp_path / "there"), False)
    assert done == [False]


def refused_with(tmp_path, words, given):
    with refused("GS-478", words):
        local_repository.usable(given, str(tmp_path / "there"), True)


def test_what_is_wrong_is_said_before_anything_is_used(tmp_path):
    file = package(tmp_path)
    refused_with(tmp_path, "not the expected file", source(file, sha256="0" * 64))
    refused_with(tmp_path, "is for debian12, this host needs ubuntu2404", source(file, directory="ubuntu2404"))
    refused_with(tmp_path, "no digest or key proves", source(file, sha256=""))
    for path, mode in ((tmp_path, 0o777), (file, 0o666)):
        path.chmod(mode)
        refused_with(tmp_path, f"others can change {path}", source(file))
        path.chmod(0o755)
    other = package(tmp_path / "other", name="cuda-keyring")
    refused_with(tmp_path, "not one of NVIDIA", source(other))
    refused_with(tmp_path, "key cannot be read", source(package(tmp_path / "third", keyring=b"nothing")))


def test_what_nobody_wants_any_more_goes(tmp_path):
    file = package(tmp_path)
    assert local_repository.size(source(file), str(tmp_path)) == file.stat().st_size
    (address,) = local_repository.usable(source(file), str(tmp_path / "sources"), False)["uris"]
    assert local_repository.size(source(file), str(tmp_path)) == 0
    assert local_repository.sweep(str(tmp_path), [f"URIs: {address}\n".encode()]) == []
    assert len(local_repository.sweep(str(tmp_path), [b"URIs: file:///elsewhere\n"])) == 1
    assert not (tmp_path / "sources").exists()


def cpio(*members):
    out = b""
    for name, content in (*members, ("TRAILER!!!", b"")):
        mode = 0o100644 if content or name == "TRAILER!!!" else 0o040755
        fields = [1, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0]
        head = b"070701" + b"".join(f"{field:08x}".encode() for field in fields) + name.encode() + b"\0"
        out += head + b"\0" * (-len(head) % 4) + content + b"\0" * (-len(content) % 4)
    return out


def test_what_rpm2cpio_writes_is_read(tmp_path, monkeypatch):
    folder = "./var/nvidia-driver-local-repo-rhel9-580.142"
    files = {"repodata/repomd.xml": b"<xml/>", "a.rpm": b"12345"}
    ours = [(f"{folder}/{name}", content) for name, content in files.items()]
    whole = cpio((folder, b""), ours[0], ("./etc/yum.repos.d/x.repo", b"[x]"), ours[1])
    (tmp_path / "cpio").write_bytes(whole)
    programs(tmp_path, monkeypatch, {"rpm2cpio": f"#!/bin/sh\nhead -c 200000 /dev/zero >&2\ncat {tmp_path}/cpio\n"})
    found = [(name, stream.read(length)) for name, stream, length in local_repository._members("x.rpm")]
    assert found == list(files.items())
    with refused("cpio"):
        list(local_repository._of_cpio(io.BytesIO(b"07070X" + b"0" * 200), "x.rpm"))
    with refused("outside"):
        list(local_repository._of_cpio(io.BytesIO(cpio(("./var/cuda-repo-rhel9-1/../../etc/passwd", b"x"))), "x.rpm"))
