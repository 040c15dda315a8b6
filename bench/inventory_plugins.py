"""10,000 hosts from the plugins of clouds: read once by a run's first Ansible process, handed to those that follow.

Plugins and SDKs are the real ones, behind recorded answers (`tests/inventories`). What is not installed is named.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from gpusetup.drive.inventory_memory import InventoryMemory
from tests.inventories.recorded import clouds

_FILES = Path(__file__).resolve().parents[1] / "docs/examples/inventories"
_HOSTS = int(os.environ.get("BENCH_HOSTS", "10000"))
_LOOK = """
import json, os, resource, sys, time
from ansible.parsing.dataloader import DataLoader
from ansible.inventory.manager import InventoryManager
from ansible.plugins.loader import init_plugin_loader
from gpusetup.drive.inventory_memory import hand_over
init_plugin_loader([])
began = time.process_time()
inventory = InventoryManager(DataLoader(), sources=sys.argv[1:])
read = time.process_time() - began
why = hand_over(inventory._inventory, os.environ)
told = {"hosts": len(inventory.hosts), "read": read, "handed": time.process_time() - began - read, "why": why}
print(json.dumps(told | {"mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


def main() -> int:
    """Measure each installed plugin; return 1 if one does not pass on what it read."""
    missed = 0
    for file in sorted(_FILES.glob("*.yml")):
        with tempfile.TemporaryDirectory() as scratch, clouds(Path(scratch), _HOSTS, page=1000) as cloud:
            source = Path(scratch) / file.name
            source.write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
            handed = InventoryMemory()
            first, asked = _look(source, handed, cloud.environment), len(cloud.asked)
            if not first["hosts"]:
                print(f"{file.name}: its plugin is not installed here (./dev test inventories installs it)")
                continue
            then = _look(source, handed, cloud.environment)
            again = len(cloud.asked) - asked
        assert handed._memory is not None  # noqa: SLF001
        size = os.fstat(handed._memory.fileno()).st_size >> 20  # noqa: SLF001
        print(
            f"{file.name}: {first['hosts']} hosts, {asked} requests. First process {first['read']:.1f} s and "
            f"{first['handed']:.1f} s to hand on {size} MB; each other {then['read']:.1f} s, {again} requests "
            f"({first['read'] / then['read']:.0f} times less), {then['mb']:.0f} MB"
        )
        missed |= int(bool(again or first["why"] or then["hosts"] != first["hosts"]))
    return missed


def _look(source: Path, handed: InventoryMemory, environment: dict[str, str]) -> dict[str, float]:
    told, descriptors = handed.to_processes(str(source), ())
    own = {"HOME": str(source.parent), "GPUSETUP_EVENTS": str(source.parent / "run/events.jsonl")}
    done = subprocess.run(
        [sys.executable, "-c", _LOOK, str(source)],
        env=dict(os.environ) | environment | own | told, pass_fds=descriptors,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    sys.exit(main())
