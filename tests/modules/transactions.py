"""A state folder, and transactions in it on whatever host the test has prepared."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import params, transaction
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger


class Job:
    def __init__(self, folder: str) -> None:
        self.folder, self.log_path, self.state = folder, folder + "/log", {}

    def tell(self, *_words: Any) -> None:
        pass

    log = tell


def asked(state_dir: Any, manager: str, *wanted: tuple[str, str], **more: Any) -> dict[str, Any]:
    """Return what a transaction or a look is asked for: the module's own defaults, and nothing is waited for."""
    plain = {name: option["default"] for name, option in params.TRANSACTION.items() if "default" in option}
    packages = [{"name": name, "version": version, "arch": ""} for name, version in wanted]
    own = {"manager": manager, "packages": packages, "state_dir": str(state_dir), "simulated_root": "", "network": {}}
    return {**plain, "lock_timeout": 0, "auto_upgrades_block": False, **own, **more}


@dataclass
class Site:
    folder: Path

    @classmethod
    def alone(cls, folder: Path, monkeypatch: pytest.MonkeyPatch) -> "Site":
        """Nobody else changes packages, nothing is waited for, and no module is built."""
        monkeypatch.setattr(transaction.package_manager, "lock_holder", lambda: None)
        monkeypatch.setattr(transaction.time, "sleep", lambda _seconds: None)
        monkeypatch.setattr(transaction.dkms, "build_error", lambda _since: None)
        return cls(folder)

    def transaction(self, manager: str, *wanted: tuple[str, str], **more: Any) -> dict[str, Any]:
        job = Job(str(self.folder / "job"))
        os.makedirs(job.folder, exist_ok=True)
        return transaction.Transaction(job, asked(self.folder, manager, *wanted, **more)).run()

    @property
    def state(self) -> dict[str, Any]:
        return Ledger(str(self.folder)).state

    @property
    def unfinished(self) -> dict[str, Any] | None:
        path = self.folder / "packages-before.json"
        return json.loads(path.read_text()) if path.exists() else None
