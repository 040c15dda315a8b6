"""Write docs/reference/messages from the catalogue: python tests/unit/doctor/write_pages.py."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from gpusetup.doctor.catalogue import PAGES  # noqa: E402
from gpusetup.doctor.pages import pages  # noqa: E402

if __name__ == "__main__":
    folder = ROOT / PAGES
    folder.mkdir(parents=True, exist_ok=True)
    wanted = pages()
    for path in folder.glob("*.md"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (folder / name).write_text(text, encoding="utf-8")
