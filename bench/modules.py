"""What each Ansible module costs a host: the files that it takes along, zipped, and the time to import them, cold.

Both are told beyond an empty module's, which takes along what Ansible itself needs. Ansible imports out of the archive,
where no bytecode lies, so that a host compiles every file at every call: the more a module refers to, the slower each
task. The runs are interleaved and the fastest of each counts; times are of the processor, as in the other benchmarks.
"""

from __future__ import annotations

import datetime as dt
import inspect
import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from ansible.executor import module_common
from ansible.plugins import loader

from bench.found import Found, Row
from gpusetup.content import COLLECTION, collections_path, content_path

RUNS = 5
KIB_BOUND, MS_BOUND = 30, 150
EMPTY = "from ansible.module_utils.basic import AnsibleModule\n"
_LOOK = """
import sys, time
sys.path.insert(0, sys.argv[1])
began = time.process_time()
__import__(sys.argv[2])
print(time.process_time() - began)
"""


def modules() -> dict[str, str]:
    """Return the collection's modules: name → text."""
    found = sorted((content_path() / "plugins" / "modules").glob("*.py"))
    return {path.stem: path.read_text(encoding="utf-8") for path in found}


def archives(folder: Path) -> dict[str, Path]:
    """Write into a folder the archive that Ansible makes of each module, and of an empty one; return where they are.

    It is done in a process of its own: Ansible finds collections by a loader that rules the whole of it.
    """
    subprocess.run([sys.executable, "-m", "bench.modules", str(folder)], check=True, cwd=Path(__file__).parents[1])
    return {name: folder / f"{name}.zip" for name in ("empty", *modules())}


def _archive(name: str, text: str) -> bytes:
    """Return the archive of a module and all that it refers to, compressed as Ansible does by default."""
    full, data = _full_name(name), text.encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        given: dict[str, Any] = {
            "name": name,
            "module_fqn": full,
            "module_data": data,
            "zf": target,
            "date_time": dt.datetime.now(tz=dt.timezone.utc),
        }
        if "extension_manager" in inspect.signature(module_common.recursive_finder).parameters:
            given["extension_manager"] = module_common._builder.ExtensionManager.create(task_vars={})  # noqa: SLF001
        module_common.recursive_finder(**given)
        parts = full.split(".")
        for end in range(1, len(parts)):
            package = "/".join(parts[:end]) + "/__init__.py"
            if package not in target.namelist():
                target.writestr(package, b"")
        target.writestr("/".join(parts) + ".py", data)
    return packed.getvalue()


def brought(packed: Path) -> list[str]:
    """Return the files of the collection in an archive."""
    inside = "ansible_collections/" + COLLECTION.replace(".", "/")
    return [name for name in zipfile.ZipFile(packed).namelist() if name.startswith(inside)]


def seconds(packed: Path, name: str) -> float:
    """Import a module out of its archive in a new process and return the processor's time."""
    argv = [sys.executable, "-I", "-B", "-c", _LOOK, str(packed), _full_name(name)]
    return float(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


def main() -> Found:
    """Measure."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        packed = archives(Path(folder))
        taken: dict[str, list[float]] = {name: [] for name in packed}
        for _ in range(RUNS):
            for name, path in packed.items():
                taken[name].append(seconds(path, name))
        bare, plain = packed["empty"].stat().st_size, min(taken["empty"])
        for name in modules():
            size = (packed[name].stat().st_size - bare) / 1024
            slower = (min(taken[name]) - plain) * 1e3
            files = len(brought(packed[name]))
            rows += [
                Row(what=f"{name}, {files} files", value=size, unit="KiB", bound=KIB_BOUND),
                Row(what=f"{name}, import", value=slower, unit="ms", bound=MS_BOUND),
            ]
    return Found(rows=tuple(rows))


def _full_name(name: str) -> str:
    return f"ansible_collections.{COLLECTION}.plugins.modules.{name}"


if __name__ == "__main__":
    loader.init_plugin_loader([str(collections_path())])
    for module, text in {"empty": EMPTY, **modules()}.items():
        Path(sys.argv[1], f"{module}.zip").write_bytes(_archive(module, text))
