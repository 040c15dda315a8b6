"""What is sent to a watched host: the reader of GPUs as text, in one line."""

from __future__ import annotations

import base64
import json
import zlib

from gpusetup.content import content_path

__all__ = ["sent"]

_FILES = (
    "gpu_read.agent",
    "gpu_read.reader",
    "gpu_read.nvml",
    "gpu_read.smi",
    "gpu_read.processes",
    "gpu_probe.commands",
    "gpu_probe.masking",
)


def sent(every: float) -> bytes:
    """Return the line that `gpusetup.drive.route.BOOT` reads."""
    folder = content_path() / "plugins" / "module_utils"
    texts = {name: (folder / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8") for name in _FILES}
    start = (folder / "gpu_read/unpacked.py").read_text(encoding="utf-8") + "\nstart(*L[1:])\n"
    packed = zlib.compress(json.dumps([start, texts, "gpu_read.agent", {"every": every}]).encode())
    return base64.b64encode(packed) + b"\n"
