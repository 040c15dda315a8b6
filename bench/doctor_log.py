"""CPU seconds that the doctor takes for a log of 50 MB, for several kinds of logs.

.venv/bin/python bench/doctor_log.py
"""

from __future__ import annotations

import hashlib
import io
import itertools
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gpusetup.doctor.findings import diagnose_chunks, diagnose_text  # noqa: E402
from gpusetup.doctor.scan import read_chunks  # noqa: E402

SIZE = 50 * 1024 * 1024
END = "CUDA error: an illegal memory access was encountered\n"
LOGS = {
    "nccl": "node{0}:4187:5023 [3] NCCL INFO Channel 05/0 : 3[3] -> 4[4] via P2P/CUMEM, torch {0}\n",
    "training": "2026-11-20 03:{0}:07,123 [rank3] INFO epoch 4 step {0} loss 2.317 lr 3e-4 mem 71.3GiB\n",
    "tensorflow": "03:04:05.{0}: I external/local_xla/xla/stream_executor/cuda/cuda_executor.cc:10] successful "
    "NUMA node read from SysFS had negative value (-1), but there must be at least one NUMA node\n",
    "kernel": "Nov 20 03:04:05 node7 kernel: [{0}.123456] nvidia 0000:41:00.0: irq 142 for MSI-X, link up\n",
    "traceback": '  File "/opt/venv/lib/python3.12/site-packages/torch/nn/module.py", line {0}, in _call_impl\n',
    "pip": "  Downloading nvidia_cublas_cu12-12.{0}-py3-none-manylinux_2_27_x86_64.whl.metadata (1.7 kB)\n",
    "xid storm": "NVRM: Xid (PCI:0000:41:00): 31, pid={0}, name=python3, Ch 00000008, intr 00000000. MMU Fault\n",
    "json": '{{"ts": 17321.{0}, "level": "error", "msg": "request failed", "cuda": null, "code": {0}}}\n',
}


def main() -> None:
    """Print the seconds for each kind."""
    diagnose_text("warm")
    LOGS["all different"] = ""
    worst = 0.0
    for name, line in LOGS.items():
        if not line:
            log = "\n".join(hashlib.sha512(str(number).encode()).hexdigest()[:100] for number in range(SIZE // 101))
        text = "".join(line.format(10 + number % 977) for number in range(5000))
        if line:
            log = "".join(itertools.repeat(text, SIZE // len(text) + 1))[:SIZE]
        raw = (log + "\n" + END).encode()
        began = time.process_time()
        found = diagnose_chunks(read_chunks(io.BytesIO(raw)))
        took = time.process_time() - began
        worst = max(worst, took)
        print(f"{name:<12}{took:6.2f} s  {', '.join(f'{entry.cause} ({entry.count})' for entry in found)}")
    print(f"worst: {worst:.2f} s (aim: under 3 s)")


if __name__ == "__main__":
    main()
