"""The start of the single file: at first use it makes an environment from its wheels, then runs gpusetup there.

It needs only Python: no pip, no network. The environment is in the user's cache; another file gets another one.
"""

import json
import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Run gpusetup with this process's arguments."""
    python, machine = "{}.{}".format(*sys.version_info[:2]), os.uname().machine
    with zipfile.ZipFile(HERE) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        wheels = manifest["wheels"].get(python)
        if wheels is None or machine != manifest["machine"]:
            known = ", ".join(sorted(manifest["wheels"], key=lambda name: int(name.partition(".")[2])))
            told = f"this file is for Python {known} on {manifest['machine']}; this is Python {python} on {machine}"
            sys.exit(f"gpusetup: {told}")
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gpusetup"
        home = environment(archive, wheels, cache / f"single-{manifest['digest'][:16]}-{python}")
    interpreter = str(home / "bin" / "python3")
    # -I: a folder called gpusetup where people happen to stand is not it.
    os.execv(interpreter, [interpreter, "-I", "-m", "gpusetup", *sys.argv[1:]])


def environment(archive: zipfile.ZipFile, wheels: "list[str]", home: Path) -> Path:
    """Return the environment's folder; make it atomically if it does not exist."""
    if home.is_dir():
        return home
    home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=home.parent))
    try:
        site = new / "lib" / "python{}.{}".format(*sys.version_info[:2]) / "site-packages"
        for name in wheels:
            with archive.open("wheels/" + name) as stream, zipfile.ZipFile(stream) as wheel:
                wheel.extractall(site)
        interpreter = Path(sys.executable).resolve()
        (new / "bin").mkdir()
        (new / "bin" / "python3").symlink_to(interpreter)
        (new / "pyvenv.cfg").write_text(f"home = {interpreter.parent}\n")
        try:
            new.rename(home)
        except OSError:
            if not home.is_dir():  # another start was faster
                raise
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return home


if __name__ == "__main__":
    main()
