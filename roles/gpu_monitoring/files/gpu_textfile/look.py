"""Read the GPUs once and write the textfile."""

import argparse
import os
import sys
import time
from typing import Dict, List, Optional, Sequence, Tuple

from gpu_read.nvml import LibraryMissingError

from . import kernel_log, nvml
from .figures import FIGURES, Gpu, UnreadableError

FILE = "gpusetup-gpu.prom"


def text_of(gpus: Sequence[Gpu], seen: Optional[kernel_log.Seen], why: str, seconds: float) -> str:
    """Return the exposition text; `seen` are the Xids, None if the kernel log could not be read."""
    lines: List[str] = []

    def metric(name: str, kind: str, said: str, samples: Sequence[Tuple[Dict[str, str], float]]) -> None:
        if samples:
            lines.extend((f"# HELP {name} {said}", f"# TYPE {name} {kind}"))
            lines.extend(f"{name}{_labels(labels)} {_shown(value)}" for labels, value in samples)

    info = [({"uuid": _bare(gpu.uuid), "index": str(gpu.number), "name": gpu.name}, 1.0) for gpu in gpus]
    metric("nvidia_smi_gpu_info", "gauge", "What each GPU is.", info)
    for figure in FIGURES:
        samples = [
            ({"uuid": _bare(gpu.uuid)}, gpu.values[figure.metric]) for gpu in gpus if figure.metric in gpu.values
        ]
        metric(figure.metric, figure.type, figure.help, samples)
    last = [
        ({"uuid": _bare(gpu.uuid), "xid": xid}, when)
        for (bus, xid), when in sorted((seen or {}).items())
        for gpu in gpus
        if gpu.bus == bus
    ]
    metric("nvidia_smi_xid_last_timestamp_seconds", "gauge", "Time of the driver's last report of this Xid.", last)
    own = "gpusetup_textfile_"
    metric(own + "up", "gauge", "1 when the driver answered.", [({}, float(not why))])
    metric(own + "xid_readable", "gauge", "1 when Xids can be read.", [({}, float(seen is not None))])
    metric(own + "duration_seconds", "gauge", "Duration of the reading.", [({}, round(seconds, 4))])
    metric(own + "timestamp_seconds", "gauge", "When this was written.", [({}, float(int(time.time())))])
    return "\n".join(lines) + "\n"


def _bare(uuid: str) -> str:
    return uuid[4:].lower() if uuid.startswith("GPU-") else uuid.lower()


def _labels(labels: Dict[str, str]) -> str:
    escaped = (
        '{}="{}"'.format(name, value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
        for name, value in labels.items()
    )
    return "{" + ",".join(escaped) + "}" if labels else ""


def _shown(value: float) -> str:
    return repr(int(value)) if value == int(value) else repr(round(value, 6))


def write(folder: str, text: str) -> None:
    """Write the file atomically: readers see the old one or the new one, never a part."""
    path = os.path.join(folder, FILE)
    beside = path + ".new"  # node_exporter reads only *.prom
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
    with os.fdopen(handle, "w") as stream:
        os.fchmod(stream.fileno(), 0o644)
        stream.write(text)
    os.rename(beside, path)


def look() -> List[Gpu]:
    """Return the GPUs with their current values."""
    try:
        return nvml.by_library()
    except LibraryMissingError:
        from . import smi  # imported late: hosts with the library never start programs

        return smi.by_smi()


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Read the GPUs once and write the textfile; return the exit status."""
    parser = argparse.ArgumentParser(prog="gpu_textfile", description="Write the GPUs' figures as a textfile.")
    parser.add_argument("--folder", required=True, help="where node_exporter reads files")
    folder = parser.parse_args(arguments).folder
    started, why = time.monotonic(), ""
    gpus: List[Gpu] = []
    try:
        gpus = look()
    except UnreadableError as error:
        why = str(error)
    records = kernel_log.records()
    seen = None if records is None else kernel_log.xids(records, kernel_log.booted())
    try:
        write(folder, text_of(gpus, seen, why, time.monotonic() - started))
    except OSError as error:
        why = f"{error.filename or folder}: {error.strerror}"
    if why:
        sys.stderr.write(f"gpu_textfile: {why}\n")
    return int(bool(why))


if __name__ == "__main__":
    sys.exit(main())
