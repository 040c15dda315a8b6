"""The wheel's front page and addresses; hatchling calls this when it builds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

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
