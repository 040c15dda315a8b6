"""Measure each RDMA adapter with `ib_write_bw` against itself: from the host's memory, and from the nearest GPU's.

Server and client run on one machine, so this measures the adapter, its PCI Express link and the path to memory, not the
cable. Distributions build perftest without CUDA: then only the host's memory is measured, and the answer says so.
"""

import re
import socket
import subprocess
import time
from typing import Any, Dict, List, Optional, Sequence

import child

PROGRAM = "ib_write_bw"
DEADLINE = 20.0
_SIZE, _ROUNDS = "1048576", "5000"
_ROW = re.compile(r"^\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s*$", re.MULTILINE)


def measure(facts: Dict[str, Any]) -> Dict[str, Any]:
    """Return {"adapters": [{"name", "port", "gpu", "runs": {"host", "gpu"}}], "cuda"}; empty without active ports."""
    ports = [
        (hca, port)
        for hca in (facts.get("rdma") or {}).get("hcas") or ()
        for port in hca["ports"]
        if port["state"] == "ACTIVE"
    ]
    if not ports:
        return {}
    told = child.run([PROGRAM, "--help"], 10)
    if told["error"] == "missing":
        return {"error": "missing", "adapters": []}
    with_cuda = "--use_cuda" in told["stdout"] + told["stderr"]
    by_dma_buf = "--use_cuda_dmabuf" in told["stdout"] + told["stderr"] and "nvidia_peermem" not in facts["modules"]
    found: List[Dict[str, Any]] = []
    gpus = [gpu for gpu in facts["gpus"] if gpu.get("bound") == "nvidia"]  # CUDA counts no others
    for hca, port in ports:
        gpu = nearest(hca, gpus)
        runs = {"host": _run(hca["name"], port["number"], ())}
        if with_cuda and gpu is not None:
            words = [f"--use_cuda={gpu}"] + (["--use_cuda_dmabuf"] if by_dma_buf else [])
            runs["gpu"] = _run(hca["name"], port["number"], words)
        found.append({"name": hca["name"], "port": port["number"], "gpu": gpu, "runs": runs})
    return {"adapters": found, "cuda": with_cuda}


def nearest(hca: Dict[str, Any], gpus: Sequence[Dict[str, Any]]) -> Optional[int]:
    """Return the index of the GPU that shares most bridges with an adapter, else one on its NUMA node."""
    above = set((hca.get("way") or {}).get("above") or ())

    def near(gpu: Dict[str, Any]) -> Any:
        shared = len(above & set((gpu.get("way") or {}).get("above") or ()))
        return shared, gpu.get("numa_node") is not None and gpu.get("numa_node") == hca.get("numa_node")

    return max(range(len(gpus)), key=lambda index: (near(gpus[index]), -index)) if gpus else None


def _run(name: str, number: int, words: Sequence[str]) -> Dict[str, Any]:
    with socket.socket() as free:  # another verification may run
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv = [PROGRAM, "-d", name, "-i", str(number), "-p", str(port), "-s", _SIZE, "-n", _ROUNDS, "-F", "--report_gbits"]
    argv += words
    server = subprocess.Popen(
        argv, env=child.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True, preexec_fn=child.tied(),  # noqa: PLW1509 - as in child
    )  # fmt: skip
    try:
        answer = _client([*argv, "127.0.0.1"], server)
    finally:
        server.kill()
        server.wait()
    rows = _ROW.findall(answer["stdout"])
    if answer["rc"] == 0 and rows:
        return {"gbits": float(rows[-1]), "error": ""}
    said = (answer["stdout"] + answer["stderr"]).strip().splitlines()
    return {"gbits": None, "error": answer["error"] or (said[-1].strip()[:200] if said else "it says nothing")}


def _client(argv: Sequence[str], server: "subprocess.Popen[bytes]") -> Any:
    """Run the client until the server accepts it, which first opens the adapter and perhaps a GPU."""
    started = time.monotonic()
    while True:
        answer = child.run(argv, DEADLINE)
        refused = "Couldn't connect to" in answer["stdout"] + answer["stderr"]
        if not refused or server.poll() is not None or time.monotonic() - started > DEADLINE:
            return answer
        time.sleep(0.2)
