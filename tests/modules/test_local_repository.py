"""A local repository's package on a host: what is proven, what is unpacked, and what goes when it is no longer wanted."""

import hashlib
import io
import os
import shutil
import subprocess
import tarfile

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import local_repository

from tests.modules.stand_ins import programs, refused, write

KEYRING = "nvidia-driver-local-12345678-keyring.gpg"
NAME = "nvidia-driver-local-repo-debian12-580.142"
_BODY = b"\x04" + bytes(9)
KEY = bytes([0x98, len(_BODY)]) + _BODY
"""As small as a public key can be: one packet of version 4."""
PRINT = hashlib.sha1(b"\x99\x00" + bytes([len(_BODY)]) + _BODY).hexdigest().upper()
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


def files_of(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))


def test_a_look_unpacks_the_lists_and_an_apply_everything(tmp_path):
    file = package(tmp_path)
    place = tmp_path / "there"
    looked = local_repository.usable(source(file), str(place), True)
    target = place / f"{NAME}_1.0-1_amd64"
    assert (looked["uris"], looked["key"]["fingerprints"]) == ([f"file://{target}"], [PRINT])
    assert "installer" not in looked
    lists = ["InRelease", "Packages", KEYRING]
    assert files_of(target) == lists
    local_repository.usable(source(file), str(place), False)
    assert files_of(target) == sorted([*lists, "nvidia-smi_1_amd64.deb"])
    (target / "Packages").write_text("kept")
    local_repository.usable(source(file), str(place), False)
    assert (target / "Packages").read_text() == "kept", "what is there is not unpacked again"
    assert local_repository.sweep(str(tmp_path), []) == []
    found = local_repository.usable(source(file, fingerprints=["A" * 40]), str(place), True)
    assert found["key"]["fingerprints"] == ["A" * 40], "what is given is what the key is compared with"
    plain = {"name": "x", "kind": "apt", "uris": ["http://x"]}
    assert local_repository.usable(plain, str(tmp_path), False) is plain


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


def test_a_package_that_is_cut_in_the_middle_of_a_file_is_said(tmp_path):
    whole, item = io.BytesIO(), tarfile.TarInfo(f"./var/{NAME}/Packages")
    item.size = 5000
    with tarfile.open(fileobj=whole, mode="w") as archive:
        archive.addfile(item, io.BytesIO(b"x" * 5000))
    members = local_repository._of_tar(io.BytesIO(whole.getvalue()[:1500]), "/x")
    _name, stream, length = next(members)
    with refused("cut off"):
        local_repository._write(str(tmp_path / "Packages"), stream, length)


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
