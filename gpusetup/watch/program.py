"""What is sent to a watched host: the reader of GPUs as text, in one line."""

from __future__ import annotations

import base64
import json
import zlib

from gpusetup.content import host_code

__all__ = ["sent"]

_ROLE, _START, _AGENT = "gpu_monitoring", "gpu_read/unpacked.py", "gpu_read/agent.py"


def sent(every: float) -> bytes:
    """Return the line that `gpusetup.drive.route.BOOT` reads."""
    programs = host_code("programs")
    start = programs.texts(_ROLE, _START)[_START] + "\nstart(*L[1:])\n"
    files = programs.texts(_ROLE, _AGENT)
    texts = {_module(place): text for place, text in files.items() if not place.endswith("/__init__.py")}
    packed = zlib.compress(json.dumps([start, texts, _module(_AGENT), {"every": every}]).encode())
    return base64.b64encode(packed) + b"\n"


def _module(place: str) -> str:
    return place.removesuffix(".py").replace("/", ".")
