"""The guide's example inventories are the ones that are tried."""

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
GUIDE = (DOCS / "guides/inventories.md").read_text(encoding="utf-8")


def test_every_example_is_in_the_guide():
    files = sorted(path.name for path in (DOCS / "examples/inventories").iterdir())
    assert files == sorted(set(re.findall(r"examples/inventories/(gpus\.\w+\.yml)\)", GUIDE)))
