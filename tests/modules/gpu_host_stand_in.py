"""A host below a folder: units that are files; boards, and a stand-in nvidia-smi that keeps state in captured words."""

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import gpu_users, mig, mig_kept, process, systemd
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import mig as probe

from tests.lab.captures import H200, mig_profiles
from tests.modules.stand_ins import below, programs
from tests.stored import stored

_SMI = Path(__file__).parents[1] / "lab/repository/stand_in/nvidia-smi"
FIRST, SECOND = "0000:00:06.0", "0000:00:07.0"


class Units:
    """A host below a folder whose units are files: a stand-in systemctl writes their state, and what it did."""

    def __init__(self, root, monkeypatch, texts):
        self.root, self.monkeypatch = root, monkeypatch
        (root / "units").mkdir()
        self.forget()
        programs(root, monkeypatch, {"systemctl": stored("gpu_host_stand_in_systemctl.txt"), **texts})
        below(root, monkeypatch, {systemd: "FOLDER"})

    def unit(self, name, state="active"):
        (self.root / "units" / name).write_text(state)

    def refuse(self, *words):
        """Refuse one change of a unit from now on; without words nothing."""
        (self.root / "refused").write_text(" ".join(words) + "\n")

    def forget(self):
        (self.root / "did").write_text("")

    def did(self):
        return [line for line in (self.root / "did").read_text().splitlines() if not line.startswith(("show", "is-"))]

    @property
    def given(self):
        return {"state_dir": str(self.root / "state")}

    @property
    def ledger(self):
        return Ledger(str(self.root / "state"))


class Host(Units):
    def __init__(self, root, monkeypatch):
        text = _SMI.read_text().replace("@VERSION@", "580.159.04")
        super().__init__(root, monkeypatch, {"nvidia-smi": text})
        self.real, self.smi = process.output, compile(text, "nvidia-smi", "exec")
        monkeypatch.setattr(process, "output", self.output)
        (root / "version").write_text("NVRM version: NVIDIA UNIX Open Kernel Module  580.159.04  Release Build\n")
        places = {"BOARDS": "gpus.json", "DRIVER": "version", "MIG": "mig.json", "MIG_KEPT": "kept.json", "FIGURES": "figures.json"}  # fmt: skip
        for name, file in places.items():
            monkeypatch.setenv(f"STAND_IN_{name}", str(root / file))
        kept = "LAYOUT FOLDER UNIT MANAGER_CONFIG MANAGER_DROP_INS"
        below(root, monkeypatch, {mig: "LOCK", mig_kept: kept, gpu_users: "PROC"})
        for folder in (Path(mig.LOCK).parent, Path(gpu_users.PROC)):
            folder.mkdir(parents=True, exist_ok=True)
        self.boards(H200, H200)

    def output(self, argv, *more, **named):
        """Run nvidia-smi here: a Python of its own takes twenty times as long."""
        if argv[0] != "nvidia-smi":
            return self.real(argv, *more, **named)
        out, err, code = io.StringIO(), io.StringIO(), 0
        with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "argv", list(argv)):
            try:
                exec(self.smi, {"__name__": "__main__"})
            except SystemExit as end:
                code = end.code or 0
        return code, out.getvalue(), err.getvalue()

    def boards(self, *gpus):
        rows = [
            {
                "name": gpu.name, "uuid": f"GPU-{number}", "address": f"0000:00:{6 + number:02x}.0",
                "compute_cap": gpu.capability, "memory_mib": gpu.memory_mib, "power_w": gpu.power_w, "fabric": False,
                "pci_device_id": "0x", "pci_sub_device_id": "0x", "mig": mig_profiles(gpu.mig),
            }
            for number, gpu in enumerate(gpus)
        ]  # fmt: skip
        (self.root / "gpus.json").write_text(json.dumps(rows))

    def state(self, **changes):
        path = self.root / "mig.json"
        path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | changes))

    @property
    def layouts(self):
        gpus = probe.look(process.smi(process.environment()))
        return {gpu["address"]: mig.judge.text_of(mig.layout_of(gpu)) for gpu in gpus}
