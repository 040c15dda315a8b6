"""Test the host's own cuDNN: load what the loader finds, ask for its version, and open it on the GPU.

In its own process, which a broken library may crash. Standard library only; prints one JSON document.
"""

import ctypes
import json
import os
import sys
import time
from typing import Any, Dict

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import environment

SONAMES = ("libcudnn.so.9", "libcudnn.so.8")


def look() -> Dict[str, Any]:
    """Load and test the newest cuDNN that the loader finds."""
    failures = []
    for soname in SONAMES:
        try:
            library = ctypes.CDLL(soname)
        except OSError as failure:
            failures.append(str(failure)[:300])
            continue
        return dict(opened(library), soname=soname)
    return {"error": "load", "message": "; ".join(failures)}


def opened(library: Any) -> Dict[str, Any]:
    """Ask a loaded cuDNN for its version and open the GPU with it, which loads its sub-libraries."""
    library.cudnnGetVersion.restype = ctypes.c_size_t
    library.cudnnGetErrorString.restype = ctypes.c_char_p
    handle = ctypes.c_void_p()
    answer = {"version": int(library.cudnnGetVersion()), "status": int(library.cudnnCreate(ctypes.byref(handle)))}
    if answer["status"]:
        words = library.cudnnGetErrorString(ctypes.c_int(answer["status"])) or b""
        return dict(answer, error="open", message=words.decode("ascii", "replace"))
    library.cudnnDestroy(handle)
    return answer


def main() -> None:
    """Print the answer as the last line, whatever happens."""
    started = time.monotonic()
    try:
        answer = look()
    except Exception as failure:
        answer = {"error": "failed", "message": f"{type(failure).__name__}: {str(failure)[:1000]}"}
    answer["loaded"] = environment.loaded_libraries()
    answer["seconds"] = round(time.monotonic() - started, 3)
    sys.stdout.write("\n" + json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
