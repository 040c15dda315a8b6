"""Programs that came along with a module's arguments, to be run or kept on the host."""

import base64
import io
import zipfile
from typing import Dict


def texts(packed: str) -> Dict[str, str]:
    """Return a program's files: places in its folder → texts, as the action plugin packed them."""
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(packed))) as archive:
        return {name: archive.read(name).decode("utf-8") for name in archive.namelist()}
