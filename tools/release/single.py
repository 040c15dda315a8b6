"""Build one file for a machine with only Python: a zipapp with the wheels for each Python."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from time import gmtime

from tools.release import starter
from tools.release.tree import Target, pip_words


def build(wheel: Path, out: Path, targets: list[Target], *, moment: int) -> Path:
    """Build the file for all Pythons of these targets."""
    made = out / f"gpusetup-{targets[0].machine}.pyz"
    with tempfile.TemporaryDirectory() as folder:
        chosen = {target.python: _wheels(Path(folder), wheel, target) for target in targets}
        wheels = {path.name: path.read_bytes() for paths in chosen.values() for path in paths}
    digest = hashlib.sha256(b"".join(wheels[name] for name in sorted(wheels))).hexdigest()
    names = {python: sorted(path.name for path in paths) for python, paths in chosen.items()}
    manifest = {"machine": targets[0].machine, "digest": digest, "wheels": names}
    contents = {
        "__main__.py": Path(starter.__file__).read_bytes(),
        "manifest.json": json.dumps(manifest, indent=1, sort_keys=True).encode(),
        **{f"wheels/{name}": wheels[name] for name in sorted(wheels)},
    }
    with made.open("wb") as stream:
        stream.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(stream, "w") as archive:
            for name, content in contents.items():
                archive.writestr(zipfile.ZipInfo(name, gmtime(moment)[:6]), content)  # wheels are packed already
    made.chmod(0o755)
    return made


def _wheels(folder: Path, wheel: Path, target: Target) -> list[Path]:
    place = folder / target.python
    argv = [sys.executable, "-m", "pip", "download", "-qq", "--dest", str(place), *pip_words(wheel, target)]
    subprocess.run(argv, check=True)
    return sorted(place.glob("*.whl"))
