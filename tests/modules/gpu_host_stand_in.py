"""A host below a folder: boards, a stand-in nvidia-smi that keeps state in captured words, units that are files."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import mig, mig_kept, process, systemd
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import mig as probe

from tests.lab.captures import H200, mig_profiles
from tests.stored import stored

_SMI = Path(__file__).parents[1] / "lab/repository/stand_in/nvidia-smi"
SYSTEMCTL = stored("gpu_host_stand_in_systemctl.txt")
FIRST, SECOND = "0000:00:06.0", "0000:00:07.0"


class Host:
    """A host below a folder, with boards and a stand-in nvidia-smi."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.monkeypatch = root, monkeypatch
        (root / "bin").mkdir()
        (root / "units").mkdir()
        (root / "did").write_text("")
        (root / "version").write_text("NVRM version: NVIDIA UNIX Open Kernel Module  580.159.04  Release Build\n")
        for name, text in (
            ("nvidia-smi", _SMI.read_text().replace("@VERSION@", "580.159.04")),
            ("systemctl", SYSTEMCTL),
        ):
            (root / "bin" / name).write_text(text)
            (root / "bin" / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{root}/bin:{os.environ['PATH']}")
        places = {
            "BOARDS": "gpus.json",
            "DRIVER": "version",
            "MIG": "mig.json",
            "MIG_KEPT": "kept.json",
            "FIGURES": "figures.json",
        }
        for name, file in places.items():
            monkeypatch.setenv(f"STAND_IN_{name}", str(root / file))
        monkeypatch.setenv("STAND_IN_ROOT", str(root))
        monkeypatch.setattr(systemd, "FOLDER", f"{root}/etc/systemd/system")
        monkeypatch.setattr(mig, "LOCK", f"{root}/lock")
        monkeypatch.setattr(mig_kept, "LAYOUT", f"{root}/etc/gpusetup/mig.json")
        monkeypatch.setattr(mig_kept, "FOLDER", f"{root}/usr/local/lib/gpusetup/mig")
        monkeypatch.setattr(mig_kept, "UNIT", f"{root}/etc/systemd/system/gpusetup-mig.service")
        monkeypatch.setattr(mig_kept, "MANAGER_CONFIG", f"{root}/etc/nvidia-mig-manager/gpusetup.yaml")
        monkeypatch.setattr(mig_kept, "MANAGER_DROP_INS", f"{root}/etc/systemd/system/nvidia-mig-manager.service.d")
        self.boards(H200, H200)

    def boards(self, *gpus: Any) -> None:
        rows = [
            {
                "name": gpu.name, "uuid": f"GPU-{number}", "address": f"0000:00:{6 + number:02x}.0",
                "compute_cap": gpu.capability, "memory_mib": gpu.memory_mib, "power_w": gpu.power_w, "fabric": False,
                "pci_device_id": "0x", "pci_sub_device_id": "0x", "mig": mig_profiles(gpu.mig),
            }
            for number, gpu in enumerate(gpus)
        ]  # fmt: skip
        (self.root / "gpus.json").write_text(json.dumps(rows))

    def state(self, **changes: Any) -> dict[str, Any]:
        path = self.root / "mig.json"
        state = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(state | changes))
        return dict(state)

    def reboot(self) -> None:
        (self.root / "mig.json").unlink(missing_ok=True)

    def unit(self, name: str, state: str = "active") -> None:
        (self.root / "units" / name).write_text(state)

    def did(self) -> list[str]:
        return [line for line in (self.root / "did").read_text().splitlines() if not line.startswith(("show", "is-"))]

    @property
    def layouts(self) -> dict[str, str]:
        gpus = probe.look(process.smi(process.environment()))
        assert gpus is not None
        return {gpu["address"]: mig.judge.text_of(mig.layout_of(gpu)) for gpu in gpus}

    @property
    def ledger(self) -> Ledger:
        return Ledger(str(self.root / "state"))
