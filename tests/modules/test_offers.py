"""What repositories offer is not mixed up with what apt could not read."""

from __future__ import annotations

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import process
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.apt import Apt
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure

POLICY = """nvidia-driver:
  Installed: (none)
  Candidate: 580.95.05-1
  Version table:
     580.95.05-1 500
        500 http://repository.example ./ Packages
"""
SHOW = "Package: nvidia-driver\nVersion: 580.95.05-1\nSize: 10\nSection: main\nDescription: a driver\n"


@pytest.mark.parametrize("broken", ["", "pkgnames", "policy", "show"])
def test_lists_that_cannot_be_read_are_no_empty_repository(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    answers = {"pkgnames": "nvidia-driver\nbash\n", "policy": POLICY, "show": SHOW}

    def output(argv: list[str], *_more: object) -> tuple[int, str, str]:
        asked = next(word for word in argv if word in answers)
        if asked == broken:
            return 100, "", "E: The package lists or status file could not be parsed or opened.\n"
        return 0, answers[asked], ""

    monkeypatch.setattr(process, "output", output)
    host = Apt.__new__(Apt)
    host.options, host.env = [], {}
    if not broken:
        (offer,) = host.matching(["nvidia-*"])["nvidia-driver"]
        assert (offer["version"], offer["size"]) == ("580.95.05-1", 10)
        return
    with pytest.raises(HostFailure) as caught:
        host.matching(["nvidia-*"])
    assert caught.value.fields["reference"] == "GS-449"
    assert "could not be parsed" in caught.value.fields["context"]
