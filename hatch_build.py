"""The wheel's front page and addresses, manual pages and completion; hatchling calls this when it builds."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent))

from tools.release import front  # from this folder, whatever else is installed


class FrontPage(MetadataHookInterface):
    """README and addresses, as tools/release/front.py makes them."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in what pyproject.toml calls dynamic."""
        root = Path(self.root)
        home = front.repository(root)
        text = front.page((root / "README.md").read_text(encoding="utf-8"), home, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = front.addresses(home, metadata["version"])


class ForPeople(BuildHookInterface):
    """Manual pages and completion: `./dev release` writes them, the sdist carries them, the wheel installs them."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add them where they are; an editable wheel and one straight from a checkout have none."""
        written, carried = os.environ.get("GPUSETUP_SHARE", ""), Path(self.root) / "share"
        if self.target_name == "sdist" and written:
            build_data["force_include"][written] = "share"
        if self.target_name == "wheel" and version != "editable" and carried.is_dir():
            build_data["shared_data"][str(carried)] = "share"
