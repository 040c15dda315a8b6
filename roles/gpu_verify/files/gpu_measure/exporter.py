"""Query the exporter that is on the host's record, and return what it exports about the GPUs."""

import os
import re
import time
from typing import Any, Dict, List

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import record, services

TEXTFILE = "gpusetup-gpu.prom"
DEADLINE = 5
_OURS = re.compile(r"(?:DCGM_|nvidia_smi_|gpusetup_textfile_|node_textfile_)")
_MOST_LINES = 4000


def look(state_file: str = record.STATE_FILE) -> Dict[str, Any]:
    """Return {"kind", "listen", "status", "error", "lines", "age"}; empty if no exporter is on record."""
    told = record.applied(state_file).get("monitoring") or {}
    if not told:
        return {}
    found: Dict[str, Any] = {"kind": told["kind"], "listen": told.get("listen", ""), "status": None, "error": ""}
    text, found["age"] = "", None
    if found["listen"]:
        answer = services.scrape(found["listen"], bool(told.get("certificate")), DEADLINE)
        text, found["status"], found["error"] = answer["text"], answer["status"], answer["error"]
    if told["kind"] == "textfile":
        path = os.path.join(told.get("folder", ""), TEXTFILE)
        try:
            found["age"] = round(time.time() - os.stat(path).st_mtime, 1)
            with open(path, encoding="utf-8", errors="replace") as stream:
                text = text or stream.read()
        except OSError as error:
            found["error"] = found["error"] or f"{path}: {error.strerror}"
    found["lines"] = _lines(text)
    return found


def _lines(text: str) -> List[str]:
    return [line for line in text.splitlines() if _OURS.match(line)][:_MOST_LINES]
