"""Write the explorer into a folder: python -m tools.explorer FOLDER. The site has it below explorer/."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.explorer.folder import write

if __name__ == "__main__":
    write(Path(sys.argv[1]))
