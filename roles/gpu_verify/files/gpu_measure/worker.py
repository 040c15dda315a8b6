"""The worker process of one GPU: reads one JSON request per line, executes it, answers with one JSON line.

Runs in the interpreter that apply made, so CuPy is imported only once for all checks. Every exception becomes an
answer; the parent detects crashes and hangs.
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
    """Return an exception as a document: kind, CUDA status and text."""
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
        started = time.monotonic()
        try:
            module, function = WORK[request["do"]]
            if "gpu" in state:
                state["gpu"].device.use()  # an earlier peer matrix may have left another device current
            answer: Dict[str, Any] = getattr(importlib.import_module(module), function)(state, request)
        except BaseException as failure:
            answer = explain(failure)
            if isinstance(failure, (KeyboardInterrupt, SystemExit)):
                raise
        answer["seconds"] = round(time.monotonic() - started, 3)
        stream_out.write(json.dumps(answer) + "\n")
        stream_out.flush()


def main() -> None:
    # Libraries print to stdout at will, so the answers get the real stdout and libraries get stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
