"""An interpreter that somebody other than root can change is never started as root."""

import os
from types import SimpleNamespace

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import environment, system

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only as root does it matter, and can owners be given away")


@pytest.fixture
def python(tmp_path):
    tmp_path.chmod(0o755)
    path = tmp_path / "env" / "bin" / "python3.11"
    (tmp_path / "env" / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    path.parent.mkdir()
    path.write_text("#!/bin/sh\ntouch " + str(tmp_path / "started") + "\necho '[]'\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("part", ["bin/python3.11", "bin", ".", "lib/python3.11/site-packages"])
@pytest.mark.parametrize("how", ["owner", "mode"])
def test_whoever_can_change_a_part_of_it_is_found(python, part, how):
    victim = python.parents[1] / part
    if how == "owner":
        os.chown(victim, 12345, 0)
    else:
        victim.chmod(0o757)
    assert environment.changeable(str(python)) == str(victim.resolve())


def test_a_link_of_roots_to_somebodys_file_is_somebodys(python, tmp_path):
    link = tmp_path / "python3.11"
    link.symlink_to(python)
    os.chown(python, 12345, 0)
    assert environment.changeable(str(link)) == str(python)


def test_the_probe_does_not_start_it(python, tmp_path):
    host = SimpleNamespace(
        names=lambda *_: [], exists=os.path.exists, inside=str, link=lambda _: None, observe=lambda _label, look: look()
    )
    os.chown(python, 12345, 0)
    told = system.pythons(host, [str(python)])
    assert [item["changeable"] for item in told] == [str(python)]
    assert not (tmp_path / "started").exists()
