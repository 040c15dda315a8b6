"""Programs packed into a module's arguments, to be run or installed on the host."""

import base64
import io
import zipfile
from typing import Dict


def texts(packed: str) -> Dict[str, str]:
    """Return {relative path: text} of the program that the action plugin packed."""
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(packed))) as archive:
        return {name: archive.read(name).decode("utf-8") for name in archive.namelist()}
