"""Collect everything that a helper needs into one archive, without secrets."""

import gzip
import io
import json
import re
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from gpusetup.doctor.catalogue import read_table
from gpusetup.errors import BadInputError

_TAKEN = json.loads(read_table("bundle.json"))
"""Files, and commands with a name and a limit in seconds."""
_ENVIRONMENT = re.compile(
    r"^(CUDA|NVIDIA|NCCL|TORCH|PYTORCH|TF_|XLA|JAX|CUPY|LD_|PATH$|VIRTUAL_ENV|CONDA_PREFIX|PYTHON)"
)
_TAIL = 4 * 1024 * 1024


class Files(Protocol):
    """Access to a machine's files and commands, live or from a capture."""

    def read(self, path: str) -> str | None:
        """Return a file's text."""

    def names(self, folder: str, pattern: str = "*") -> list[str]:
        """Return the names in a folder."""

    def run(self, label: str, argv: Sequence[str], seconds: float) -> dict[str, Any]:
        """Run a command and return its exit code and output."""


def collect(
    files: Files, documents: Mapping[str, str], environment: Mapping[str, str], redact: Callable[[str], str]
) -> dict[str, bytes]:
    """Return the archive's files by name: documents, logs, command output, GPU-related environment variables."""
    found = dict(documents)
    for path in _TAKEN["logs"]:
        if text := files.read(path):
            found["files" + path] = text[-_TAIL:]
    for folder in ("/etc/ld.so.conf.d", "/etc/modprobe.d"):
        for name in files.names(folder, "*.conf"):
            if text := files.read(f"{folder}/{name}"):
                found[f"files{folder}/{name}"] = text
    for version in files.names("/var/lib/dkms/nvidia"):
        if text := files.read(f"/var/lib/dkms/nvidia/{version}/build/make.log"):
            found[f"files/var/lib/dkms/nvidia/{version}/build/make.log"] = text[-_TAIL:]
    for label, argv, seconds in _TAKEN["commands"]:
        told = files.run(f"bundle-{label}", argv, seconds)
        if told["rc"] is not None:
            found[f"commands/{label}.txt"] = (
                f"$ {' '.join(argv)}\n{told['out']}{told['err']}(ended with {told['rc']})\n"
            )
    lines = [f"{name}={value}" for name, value in sorted(environment.items()) if _ENVIRONMENT.match(name)]
    found["environment.txt"] = "\n".join(lines) + "\n"
    return {name: redact(text).encode("utf-8", "replace") for name, text in found.items()}


def bug_report(place: Path, redact: Callable[[str], str]) -> dict[str, bytes]:
    """Return the redacted nvidia-bug-report.log from the given folder, /var/log or /root, if there is one."""
    for folder in (place, place.__class__("/var/log"), place.__class__("/root")):
        path = folder / "nvidia-bug-report.log.gz"
        try:
            text = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
        except (OSError, EOFError):
            continue
        return {"nvidia-bug-report.log": redact(text).encode("utf-8", "replace")}
    return {}


def write(path: Path, files: Mapping[str, bytes]) -> list[str]:
    """Write the archive, readable only by its owner; return the lines of its manifest."""
    manifest = [f"{len(content):>9}  {name}" for name, content in sorted(files.items())]
    members = {**files, "MANIFEST": ("\n".join(manifest) + "\n").encode()}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in sorted(members.items()):
            entry = tarfile.TarInfo(f"gpusetup-bundle/{name}")
            entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(content))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_bytes(packed.getvalue())
    except OSError as error:
        raise BadInputError("GS-603", f"cannot write the bundle: {error.strerror}", path=str(path)) from error
    return manifest
