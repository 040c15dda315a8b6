"""Find the highest PTX version that a driver compiles: try an empty kernel of each version, the newest first.

`smoke.py` does it in its own context. `python ptx_sweep.py` opens the first GPU through the driver, without CuPy or a
toolkit, and prints one JSON document. Standard library only.
"""

import ctypes
import json
import sys
import time
from typing import Any, Callable, Dict, Tuple

LIBRARY = "libcuda.so.1"
_KERNEL = ".version {}\n.target sm_{}\n.address_size 64\n.visible .entry nothing() {{ ret; }}\n"
_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR


def highest_ptx(taken: Callable[[str], int]) -> Dict[str, Any]:
    """Try each version from 12.9 down to 6.0; any error but "too new" and "invalid" ends the search."""
    refused: Dict[str, int] = {}
    for major in range(12, 5, -1):
        for minor in range(9, -1, -1):
            version = f"{major}.{minor}"
            code = taken(version)
            if code == 0:
                return {"highest": version, "refused_with": sorted(set(refused.values()))}
            refused[version] = code
            if code not in (218, 222):  # CUDA_ERROR_INVALID_PTX, CUDA_ERROR_UNSUPPORTED_PTX_VERSION
                return {"error": "cuda", "status": code, "message": f"PTX {version} was refused"}
    return {"highest": None, "refused_with": sorted(set(refused.values()))}


def sweep(driver: Any, capability: str) -> Dict[str, Any]:
    """Find the version in the current context; the capability is written as in 90."""
    load, unload = driver.cuModuleLoadData, driver.cuModuleUnload
    load.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_char_p]
    unload.argtypes = [ctypes.c_void_p]

    def taken(version: str) -> int:
        module = ctypes.c_void_p()
        code = int(load(ctypes.byref(module), _KERNEL.format(version, capability).encode()))
        if code == 0:
            unload(module)
        return code

    return highest_ptx(taken)


def look() -> Dict[str, Any]:
    """Open the first GPU and find the version."""
    try:
        driver = ctypes.CDLL(LIBRARY)
    except OSError as failure:
        return {"error": "load", "message": str(failure)[:300]}
    answer: Dict[str, Any] = {}
    context, device, number, name = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
    retain = driver.cuDevicePrimaryCtxRetain
    retain.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int]
    driver.cuCtxSetCurrent.argtypes = [ctypes.c_void_p]
    steps: Tuple[Tuple[str, Callable[[], int]], ...] = (
        ("cuInit", lambda: driver.cuInit(0)),
        ("cuDriverGetVersion", lambda: driver.cuDriverGetVersion(ctypes.byref(number))),
        ("cuDeviceGet", lambda: driver.cuDeviceGet(ctypes.byref(device), 0)),
        ("cuDeviceGetName", lambda: driver.cuDeviceGetName(name, 256, device)),
        ("cuDevicePrimaryCtxRetain", lambda: retain(ctypes.byref(context), device)),
        ("cuCtxSetCurrent", lambda: driver.cuCtxSetCurrent(context)),
    )
    for step, call in steps:
        code = int(call())
        if code:
            return {"error": "cuda", "status": code, "message": step}
    digits = []
    for attribute in _CAPABILITY:
        value = ctypes.c_int()
        code = int(driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device))
        if code:
            return {"error": "cuda", "status": code, "message": "cuDeviceGetAttribute"}
        digits.append(str(value.value))
    answer["driver_cuda"] = f"{number.value // 1000}.{number.value % 1000 // 10}"
    answer["name"] = name.value.decode("utf-8", "replace")
    answer["compute_capability"] = ".".join(digits)
    answer.update(sweep(driver, "".join(digits)))
    return answer


def main() -> None:
    """Print the answer as the last line, whatever happens."""
    started = time.monotonic()
    try:
        answer = look()
    except Exception as failure:
        answer = {"error": "failed", "message": f"{type(failure).__name__}: {str(failure)[:1000]}"}
    answer["seconds"] = round(time.monotonic() - started, 3)
    sys.stdout.write("\n" + json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
