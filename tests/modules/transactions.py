"""A state folder, and transactions in it on whatever host the test has prepared."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import transaction
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger


@dataclass
class _Job:
    folder: str
    log_path: str = "/x/log"
    state: dict[str, Any] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def tell(self, _step: str, message: str, _percent: int | None = None) -> None:
        self.told.append(message)

    def log(self, text: str) -> None:
        self.told.append(text)


@dataclass
class Site:
    """One state folder, and transactions in it."""

    folder: Path

    @classmethod
    def alone(cls, folder: Path, monkeypatch: pytest.MonkeyPatch) -> "Site":
        """Nobody else changes packages, nothing is waited for, and no module is built."""
        monkeypatch.setattr(transaction.package_manager, "lock_holder", lambda: None)
        monkeypatch.setattr(transaction.time, "sleep", lambda _seconds: None)
        monkeypatch.setattr(transaction.dkms, "build_error", lambda _since: None)
        return cls(folder)

    def transaction(self, manager: str, *wanted: tuple[str, str], **params: Any) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "manager": manager, "network": {}, "remove": [], "may_remove": [], "hold": [], "free": [], "streams": [],
            "replace_runfile": False, "optional": False, "no_way_back": False, "recommends": False, "lock_timeout": 0,
            "auto_upgrades_block": False, "driver_packages": [], "driver_version": "", "driver_module": "", "kernels": [],
            "state_dir": str(self.folder), "simulated_root": "",
            "packages": [{"name": name, "version": version, "arch": ""} for name, version in wanted],
        }  # fmt: skip
        job = _Job(str(self.folder / "job"))
        os.makedirs(job.folder, exist_ok=True)
        return transaction.Transaction(job, {**plain, **params}).run()

    @property
    def state(self) -> dict[str, Any]:
        return Ledger(str(self.folder)).state

    @property
    def unfinished(self) -> dict[str, Any] | None:
        path = self.folder / "packages-before.json"
        return json.loads(path.read_text()) if path.exists() else None
