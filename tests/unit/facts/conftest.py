"""A folder that stands in for a machine, built file by file."""

import json

import pytest

from gpusetup.content import host_code


class Machine:
    """Files, links and recorded answers; `host()` is what the probe looks at, `live()` a live host with these files."""

    def __init__(self, root):
        self.root, self.observations = root, {}

    def _place(self, path):
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def put(self, path, content=""):
        self._place(path).write_bytes(content if isinstance(content, bytes) else content.encode())
        return self

    def link(self, path, target):
        self._place(path).symlink_to(target)
        return self

    def answer(self, label, value):
        self.observations[label] = value
        return self

    def says(self, label, out="", rc=0, err=""):
        return self.answer("command:" + label, {"rc": rc, "out": out, "err": err})

    def host(self):
        self.put("/gpusetup-capture.json", json.dumps({"observations": self.observations}))
        return host_code("gpu_probe.host").FolderHost(str(self.root))

    def live(self, kind="LiveHost", **parts):
        host = getattr(host_code("gpu_probe.host"), kind)()
        vars(host).update(parts, inside=lambda path: str(self.root) + path)
        return host


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.fixture
def machine_in(tmp_path):
    return lambda name: Machine(tmp_path / name)
