"""A process that holds one GPU: reads one JSON request per line, does it, answers one JSON line.

Runs in the interpreter that apply made. CuPy is imported once, however many checks follow. Every failure becomes an
answer; a crash or a hang is the parent's to see.
"""

import importlib
import json
import os
import sys
import time
import traceback
from typing import IO, TYPE_CHECKING, Any, Dict, Iterable

if TYPE_CHECKING:
    from gpu import State

HERE = os.path.dirname(os.path.abspath(__file__))
if HERE not in sys.path:
    sys.path.insert(0, HERE)

# request -> module and function; modules that need CuPy are imported when first asked for
WORK = {
    "hello": ("environment", "hello"),
    "open": ("smoke", "open_device"),
    "smoke": ("smoke", "smoke"),
    "memory": ("bandwidth", "memory"),
    "pcie": ("bandwidth", "pcie"),
    "matrix": ("matrix", "rates"),
    "launch": ("launch", "latency"),
    "peer": ("peer", "matrix"),
    "nccl_id": ("collective", "unique_id"),
    "nccl": ("collective", "measure"),
    "burn": ("stress", "burn"),
}


def explain(failure: BaseException) -> Dict[str, Any]:
    """An exception as a document: what kind, which CUDA status, and the text."""
    status = getattr(failure, "status", None)
    answer: Dict[str, Any] = {"error": "failed", "type": type(failure).__name__, "message": str(failure)[:2000]}
    if isinstance(status, int):
        answer["status"] = status
    if isinstance(failure, ImportError):
        answer["error"] = "import"
    elif isinstance(failure, MemoryError) or "OutOfMemory" in type(failure).__name__ or status == 2:
        answer["error"] = "out-of-memory"
    elif answer["type"] in ("CompileException", "NVRTCError"):
        answer["error"] = "compile"
        answer["message"] = str(failure)[:600]
    elif "CUDA" in answer["type"] or "CUDA" in answer["message"][:40] or "cuda" in answer["message"][:40]:
        answer["error"] = "cuda"
    answer["where"] = traceback.format_exc().strip().splitlines()[-3:]
    return answer


def serve(stream_in: Iterable[str], stream_out: IO[str]) -> None:
    """Answer requests until the input ends."""
    state: "State" = {}
    for line in stream_in:
        if not line.strip():
            continue
        request = json.loads(line)
        started = time.time()
        try:
            module, function = WORK[request["do"]]
            if "gpu" in state:
                state["gpu"].device.use()  # the peer matrix before it went round all devices
            answer: Dict[str, Any] = getattr(importlib.import_module(module), function)(state, request)
        except BaseException as failure:
            answer = explain(failure)
            if isinstance(failure, (KeyboardInterrupt, SystemExit)):
                raise
        answer["seconds"] = round(time.time() - started, 3)
        stream_out.write(json.dumps(answer) + "\n")
        stream_out.flush()


def main() -> None:
    # Libraries print to stdout as they like; the answers keep the real one.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
