"""Harm that a lab host takes from somebody else on it, for as long as a test wants."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.host import Host

_HOLD = (
    "import fcntl, sys; lock = open('/var/lib/dpkg/lock-frontend', 'w'); "
    "fcntl.lockf(lock, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"
)
BUILD_ERROR = "nv-pci.c:237: error: too few arguments to function pci_resize_resource"


def break_build(host: Host, version: str) -> Path:
    """Only this version no longer compiles, as a driver does that is older than its kernel: DKMS reads such overrides."""
    override = host.path(f"/etc/dkms/nvidia-{version}.conf")
    override.write_text(f"""MAKE[0]="echo '{BUILD_ERROR}'; false"\n""")
    return override


@contextmanager
def packages_locked(host: Host) -> Iterator[None]:
    """Another program holds dpkg's lock, from the first line of the block to its last."""
    argv = [*host.ssh_argv(), f'exec python3 -c "{_HOLD}" another-apt']
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        try:
            yield
        finally:
            other.stdin.close()
