"""CPU seconds that the doctor takes for a log of 50 MB, for many kinds of logs, beside what reading its lines takes.

The ratio is to decoding the same bytes and splitting them into lines, measured in the same run: a busy or slow machine
changes the seconds and hardly the ratio.
"""

from __future__ import annotations

import base64
import hashlib
import io
import itertools
import time
from collections.abc import Iterator

from bench.found import Found, Row
from gpusetup.doctor.findings import diagnose_chunks, diagnose_text
from gpusetup.doctor.logs import read_pieces

SIZE = 50 * 1024 * 1024
BOUND = 3.0
WORST = "other errors only"
"""Only messages, each of a different shape, so that each must be diagnosed. Not realistic: shown, without a bound."""
END = "CUDA error: an illegal memory access was encountered\n"
# {0} counts up to 977, {1} is a different word on every line.
LINES = {
    "all the same": "node1:4187:5023 [3] NCCL INFO Channel 05/0 : 3[3] -> 4[4] via P2P/CUMEM, torch\n",
    "nccl": "node{0}:4187:5023 [3] NCCL INFO Channel 05/0 : 3[3] -> 4[4] via P2P/CUMEM, torch {0}\n",
    "training": "2026-11-20 03:{0}:07,123 [rank3] INFO epoch 4 step {0} loss 2.317 lr 3e-4 mem 71.3GiB\n",
    "tensorflow": "03:04:05.{0}: I external/local_xla/xla/stream_executor/cuda/cuda_executor.cc:10] successful "
    "NUMA node read from SysFS had negative value (-1), but there must be at least one NUMA node\n",
    "dmesg": "Nov 20 03:04:05 node7 kernel: [{0}.123456] nvidia 0000:41:00.0: irq 142 for MSI-X, link up\n",
    "traceback": '  File "/opt/venv/lib/python3.12/site-packages/torch/nn/module.py", line {0}, in _call_impl\n',
    "pip": "  Downloading nvidia_cublas_cu12-12.{0}-py3-none-manylinux_2_27_x86_64.whl.metadata (1.7 kB)\n",
    "xid storm": "[{0}.1] NVRM: Xid (PCI:0000:41:00): 31, pid={0}, name=python3, Ch 00000008. MMU Fault\n",
    "json": '{{"ts": 17321.{0}, "level": "error", "msg": "request failed", "cuda": null, "code": {0}}}\n',
    "different": "{1}{1}{1} step {1}\n",
    "different, nvidia": "worker {1}: NCCL INFO cuda device {1} at /usr/lib/x86_64-linux-gnu/{1}.so torch\n",
    WORST: "{1}: RuntimeError: CUDA error: out of memory while allocating {1} for {1}\n",
    "different, near miss": "{1}: fopen: No such device, {1} cannot open shared object file {1}\n",
    "short": "ok {0}\n",
}


def log(line: str) -> bytes:
    """Write a log of 50 MB from one line template."""
    if "{1}" not in line:
        text = "".join(line.format(10 + number % 977) for number in range(5000))
        return "".join(itertools.repeat(text, SIZE // len(text) + 1))[:SIZE].encode()
    count = SIZE // len(line.format(0, "x" * 24)) + 1
    words = (base64.b64encode(hashlib.sha256(str(number).encode()).digest())[:24] for number in range(count))
    return "".join(line.format(number % 977, word.decode()) for number, word in enumerate(words))[:SIZE].encode()


def kinds() -> Iterator[tuple[str, bytes]]:
    """Yield the logs by name."""
    for name, line in LINES.items():
        yield name, log(line)
    different = log(LINES["different"])
    yield "random", bytes(base64.b64encode(different)[:SIZE])
    yield (
        "lines of 1 MB",
        b"\n".join(different[at : at + 2**20].replace(b"\n", b" ") for at in range(0, len(different), 2**20)),
    )
    yield "one line", log(LINES["json"]).replace(b"\n", b" ")


def main() -> Found:
    """Measure each kind and print what the doctor found."""
    diagnose_text("warm")
    rows = []
    for name, body in kinds():
        raw = body + b"\n" + END.encode()
        began = time.process_time()
        lines = raw.decode("utf-8", "replace").split("\n")
        plain = time.process_time() - began
        del lines
        began = time.process_time()
        found = diagnose_chunks(read_pieces(io.BytesIO(raw)))
        took = time.process_time() - began
        rows.append(Row(what=name, value=took, unit="s", plain=plain, bound=None if name == WORST else BOUND))
        print(f"{name}: " + ", ".join(f"{entry.cause} ({entry.count})" for entry in found), flush=True)
    return Found(plain="decoding and splitting it", rows=tuple(rows))
