"""What tests of host code share: programs below a folder, constants below it, and failures known by their words."""

import contextlib
import os

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure


def write(root, texts, mode=0o644):
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.chmod(mode)


def programs(root, monkeypatch, texts):
    """Have programs before all others; they know the folder as STAND_IN_ROOT."""
    write(root / "bin", texts, 0o755)
    monkeypatch.setenv("PATH", f"{root}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("STAND_IN_ROOT", str(root))


def below(root, monkeypatch, places):
    """Have files of the host below a folder: {module: the names of its constants, separated by spaces}."""
    for module, names in places.items():
        for name in names.split():
            monkeypatch.setattr(module, name, f"{root}{getattr(module, name)}")


def replace(monkeypatch, module, **values):
    """Have other values in a module or a class."""
    for name, value in values.items():
        monkeypatch.setattr(module, name, value)


@contextlib.contextmanager
def refused(*words):
    """What is done ends in a failure that says all of this: its reference, its message, where, the note and the hint."""
    with pytest.raises(HostFailure) as caught:
        yield caught
    text = caught.value.text()
    assert [word for word in words if word not in text] == [], text
