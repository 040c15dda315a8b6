"""Everything that somebody needs to help, in one archive, without secrets."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import time
from typing import TYPE_CHECKING

from gpusetup.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from gpusetup.doctor.look import Look

__all__ = ["collect", "mask", "write"]

_VALUE = r"""("[^"\n]*"|'[^'\n]*'|[^\s"',;&}]+)"""
_SECRETS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----"), "(private key)"),
    (
        re.compile(
            r"(?i)\b([\w-]*(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|credential|private[_-]?key)"
            rf"""[\w-]*["']?\s*[=:]\s*){_VALUE}"""
        ),
        r"\1(masked)",
    ),
    (re.compile(r"(?i)(authorization\s*[:=]\s*(?:bearer|basic|token)?\s*)\S+"), r"\1(masked)"),
    (re.compile(r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/-]{8,}=*"), r"\1(masked)"),
    (re.compile(r"(\w+://)[^/\s:@]+:[^/\s@]+@"), r"\1(masked)@"),
    (re.compile(r"\b(?:hf|ghp|gho|ghs|glpat|nvapi|sk|xox[abp])[_-][A-Za-z0-9_-]{16,}"), "(masked)"),
    (re.compile(r"\bAKIA[0-9A-Z]{16}\b"), "(masked)"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*"), "(masked)"),
)
_LOGS = (
    "/var/log/nvidia-installer.log",
    "/var/log/fabricmanager.log",
    "/var/log/apt/history.log",
    "/etc/ld.so.conf",
    "/etc/docker/daemon.json",
    "/etc/nvidia-container-runtime/config.toml",
    "/proc/driver/nvidia/version",
    "/proc/driver/nvidia/params",
    "/proc/cmdline",
)
_COMMANDS = (
    ("nvidia-smi-q", ["nvidia-smi", "-q"], 20),
    ("nvidia-smi-topo", ["nvidia-smi", "topo", "-m"], 20),
    ("lspci", ["lspci", "-nnvk", "-d", "10de:"], 10),
    ("dkms-status", ["dkms", "status"], 10),
    ("ldconfig", ["ldconfig", "-p"], 10),
    ("fabricmanager-journal", ["journalctl", "-u", "nvidia-fabricmanager", "-n", "300", "--no-pager"], 10),
    ("toolkit-info", ["nvidia-container-cli", "info"], 10),
)
_ENVIRONMENT = re.compile(
    r"^(CUDA|NVIDIA|NCCL|TORCH|PYTORCH|TF_|XLA|JAX|CUPY|LD_|PATH$|VIRTUAL_ENV|CONDA_PREFIX|PYTHON)"
)
_TAIL = 4 * 1024 * 1024


def mask(text: str) -> str:
    """Take passwords, tokens and keys out of a text."""
    for expression, instead in _SECRETS:
        text = expression.sub(instead, text)
    return text


def collect(look: Look, documents: Mapping[str, str], redact: Callable[[str], str]) -> dict[str, bytes]:
    """Return the archive's files by name: the documents, logs, answers of commands, the environment's GPU part."""
    found = dict(documents)
    for path in _LOGS:
        if text := look.read(path):
            found["files" + path] = text[-_TAIL:]
    for folder in ("/etc/ld.so.conf.d", "/etc/modprobe.d"):
        for name in look.names(folder, "*.conf"):
            if text := look.read(f"{folder}/{name}"):
                found[f"files{folder}/{name}"] = text
    for version in look.names("/var/lib/dkms/nvidia"):
        if text := look.read(f"/var/lib/dkms/nvidia/{version}/build/make.log"):
            found[f"files/var/lib/dkms/nvidia/{version}/build/make.log"] = text[-_TAIL:]
    if look.kernel_log:
        found["kernel.log"] = look.kernel_log
    if look.files is not None:
        for label, argv, seconds in _COMMANDS:
            told = look.files.run(f"bundle-{label}", argv, seconds)
            if told["rc"] is not None:
                found[f"commands/{label}.txt"] = (
                    f"$ {' '.join(argv)}\n{told['out']}{told['err']}(ended with {told['rc']})\n"
                )
    lines = [f"{name}={value}" for name, value in sorted(look.environment.items()) if _ENVIRONMENT.match(name)]
    found["environment.txt"] = "\n".join(lines) + "\n"
    return {name: redact(mask(text)).encode("utf-8", "replace") for name, text in found.items()}


def bug_report(place: Path, redact: Callable[[str], str]) -> dict[str, bytes]:
    """Return NVIDIA's own report when there is one beside us, masked like the rest."""
    for folder in (place, place.__class__("/var/log"), place.__class__("/root")):
        path = folder / "nvidia-bug-report.log.gz"
        try:
            text = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
        except (OSError, EOFError):
            continue
        return {"nvidia-bug-report.log": redact(mask(text)).encode("utf-8", "replace")}
    return {}


def write(path: Path, files: Mapping[str, bytes]) -> list[str]:
    """Write the archive with its manifest, readable by its owner only; return the manifest's lines."""
    manifest = [f"{len(content):>9}  {name}" for name, content in sorted(files.items())]
    members = {**files, "MANIFEST": ("\n".join(manifest) + "\n").encode()}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in sorted(members.items()):
            entry = tarfile.TarInfo(f"gpusetup-bundle/{name}")
            entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(content))
    try:
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_bytes(packed.getvalue())
    except OSError as error:
        raise BadInputError(
            "GS-603", f"cannot write the bundle: {error.strerror}", path=str(path), hint="name another file"
        ) from error
    return manifest
