"""A lab host whose nvidia-smi is a stand-in that tells what a captured machine told, and gpusetup beside it."""

import json
import re
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path

from tests.lab.host import Host

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "/opt/gpusetup-lab"
CAPTURE = ROOT / "tests/fixtures/observations/h200-x1-quick.json"
NOT_HERE = "nouveau.absent"
"""What fails on every lab host whose driver nobody installed: its initramfs has nouveau."""
_ASKED = {
    "smi": "-q -x", "smi_query": "--query-gpu=index,uuid,pci.bus_id,compute_cap --format=csv,noheader,nounits",
    "smi_list": "-L", "topology": "topo -m", "nvlink_status": "nvlink -s", "nvlink_errors": "nvlink -e",
}  # fmt: skip


def stand_in(folder: Path, place: str, capture: Path = CAPTURE) -> None:
    """Write nvidia-smi into a folder; `place` is where that folder is for who runs it."""
    quick = json.loads(capture.read_text(encoding="utf-8"))["quick"]
    cases = []
    for name, words in _ASKED.items():
        (folder / f"{name}.txt").write_text(quick[name]["stdout"], encoding="utf-8")
        cases.append(f'  "{words}") cat {shlex.quote(place)}/{name}.txt ;;')
    script = folder / "nvidia-smi"
    lines = ["#!/bin/sh", f"test ! -e {place}/hangs || sleep 600", 'case "$*" in', *cases, "  *) exit 6 ;;", "esac"]
    script.write_text("\n".join(lines) + "\n", encoding="utf-8")
    script.chmod(0o755)


def goes_bad(folder: Path) -> None:
    _say(folder, "None", "Reset")


def recovers(folder: Path) -> None:
    _say(folder, "Reset", "None")


def is_used(folder: Path, by: str = "") -> None:
    """A program is on the GPU, or none."""
    path = folder / "smi.txt"
    text = re.sub(
        r"<processes>.*?</processes>", "<processes></processes>", path.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    one = (
        "<process_info><gpu_instance_id>N/A</gpu_instance_id><compute_instance_id>N/A</compute_instance_id><pid>4242</pid>"
        f"<type>C</type><process_name>{by}</process_name><used_memory>512 MiB</used_memory></process_info>"
    )
    _write(path, text.replace("<processes></processes>", f"<processes>{one if by else ''}</processes>"))


def _say(folder: Path, before: str, after: str) -> None:
    path = folder / "smi.txt"
    text = path.read_text(encoding="utf-8")
    changed = text.replace(f"<gpu_recovery_action>{before}<", f"<gpu_recovery_action>{after}<")
    assert f"<gpu_recovery_action>{after}<" in changed
    _write(path, changed)


def _write(path: Path, text: str) -> None:
    partial = path.with_suffix(".new")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def install(host: Host) -> Path:
    """Bring gpusetup from this checkout and the stand-in; return the folder of the latter, seen from here."""
    target = host.path(FOLDER)
    target.mkdir(parents=True)
    for name in ("gpusetup", "gpusetup_fleet", "plugins", "roles", "playbooks", "meta", ".collections"):
        shutil.copytree(ROOT / name, target / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(ROOT / "galaxy.yml", target)
    for module in ("msgspec", "packaging", "rich", "pygments", "markdown_it", "mdurl"):
        spec = find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        shutil.copytree(Path(spec.origin).parent, target / module, ignore=shutil.ignore_patterns("__pycache__"))
    python = host.ssh("python3", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
    host.path(python).mkdir(parents=True, exist_ok=True)
    (host.path(python) / "gpusetup-lab.pth").write_text(FOLDER + "\n")
    smi = host.path("/opt/smi")
    smi.mkdir()
    stand_in(smi, "/opt/smi")
    host.path("/usr/local/bin/nvidia-smi").write_text('#!/bin/sh\nexec /opt/smi/nvidia-smi "$@"\n')
    host.path("/usr/local/bin/nvidia-smi").chmod(0o755)
    return smi
