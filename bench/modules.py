"""What an Ansible module costs a host beyond an empty one: the size of its task, and the CPU time to import it.

If the host keeps the code, a task sends only a loader and the code is compiled once. The first task of a host, and
hosts that cannot keep code, are measured separately. The runs are interleaved and the fastest counts.
"""

from __future__ import annotations

import datetime as dt
import inspect
import io
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import yaml
from ansible.executor import module_common
from ansible.plugins import loader

from bench.found import Found, Row
from gpusetup.content import COLLECTION, collections_path, content_path, host_code

RUNS = 5
KIB_BOUND, MS_BOUND = 30, 150
EMPTY = "from ansible.module_utils.basic import AnsibleModule\n"
SENT = "gpu_shared_code"
_LOOK = """
import sys, time
sys.path.insert(0, sys.argv[1])
began = time.process_time()
module = __import__(sys.argv[2], fromlist=["main"])
if sys.argv[3:]:
    module.load(*sys.argv[3:]).main
print(time.process_time() - began)
"""


def modules() -> dict[str, str]:
    """Return the collection's modules: name → text."""
    found = sorted((content_path() / "plugins" / "modules").glob("*.py"))
    return {path.stem: path.read_text(encoding="utf-8") for path in found}


def archives(folder: Path) -> dict[str, Path]:
    """Write Ansible's archive of each module and of an empty one into a folder; return the paths.

    This runs in a separate process, since Ansible's collection loader changes the whole process.
    """
    subprocess.run([sys.executable, "-m", "bench.modules", str(folder)], check=True, cwd=Path(__file__).parents[1])
    return {name: folder / f"{name}.zip" for name in ("empty", *modules())}


def _archive(name: str, text: str) -> bytes:
    """Return the archive of a module with its imports, compressed as Ansible does by default."""
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


def keeps_code(name: str) -> bool:
    """Return whether a task of this name runs from code that the host keeps."""
    routed = yaml.safe_load((content_path() / "meta/runtime.yml").read_text())["plugin_routing"]["modules"]
    action = content_path() / f"plugins/action/{name}.py"
    text = action.read_text() if action.exists() else ""
    return name in routed or "WithProgram" in text or "SharedCode" in text


def sent(packed: dict[str, Path], name: str) -> float:
    """Return the KiB of a task beyond those of an empty module."""
    return float(packed[SENT if keeps_code(name) else name].stat().st_size - packed["empty"].stat().st_size) / 1024


def seconds(packed: dict[str, Path], name: str, code: Path | None = None) -> float:
    """Return the CPU time to import a module in a new process, from its archive or from kept code."""
    archive, *more = (packed[SENT], str(code), name) if code else (packed[name],)
    argv = [sys.executable, "-I", "-c", _LOOK, str(archive), _full_name(SENT if code else name), *more]
    return float(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


def kept_code(folder: Path) -> Path:
    """Return the collection's code as a host keeps it."""
    for part in ("modules", "module_utils"):
        shutil.copytree(content_path() / "plugins" / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def main() -> Found:
    """Measure."""
    with tempfile.TemporaryDirectory() as folder:
        packed = archives(Path(folder))
        code = kept_code(Path(folder, "code"))
        taken: dict[str, list[float]] = {name: [] for name in packed}
        for _ in range(RUNS):
            for name, times in taken.items():
                times.append(seconds(packed, name, code if keeps_code(name) else None))
        plain = min(taken["empty"])
        rows = [Row(what="code of all modules, once for a boot and version", value=_zipped(code), unit="KiB")]
        for name in modules():
            slower = (min(taken[name]) - plain) * 1e3
            rows += [
                Row(what=name, value=sent(packed, name), unit="KiB", bound=KIB_BOUND),
                Row(what=f"{name}, import", value=slower, unit="ms", bound=MS_BOUND),
            ]
        whole = {name: path.stat().st_size - packed["empty"].stat().st_size for name, path in packed.items()}
        name = max(whole, key=lambda one: whole[one])
        rows.append(
            Row(what=f"{name}, to a host that can keep nothing (the largest)", value=whole[name] / 1024, unit="KiB")
        )
    return Found(rows=tuple(rows))


def _zipped(folder: Path) -> float:
    files = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.py"))}
    return len(host_code("programs").archive(files)) / 1024


def _full_name(name: str) -> str:
    return f"ansible_collections.{COLLECTION}.plugins.modules.{name}"


if __name__ == "__main__":
    loader.init_plugin_loader([str(collections_path())])
    for module, text in {"empty": EMPTY, **modules()}.items():
        Path(sys.argv[1], f"{module}.zip").write_bytes(_archive(module, text))
