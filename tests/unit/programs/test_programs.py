"""Programs of roles: each has with it what it imports, and nothing else, wherever it lies."""

import os
import subprocess
import sys

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import params

from gpusetup.content import host_code
from gpusetup.verify.probe import probe_argv

PROGRAMS = host_code("programs")
SHARED = "ansible_collections/gpusetup/stack/plugins/module_utils/"


def unpacked(folder, role, *entries):
    texts = params.program(PROGRAMS.packed(role, *entries))
    for place, text in texts.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text)
    return sorted(texts)


@pytest.mark.parametrize(
    ("role", "entries", "beside", "imported"),
    [
        ("gpu_mig", (), "", ["mig_at_boot"]),
        ("gpu_monitoring", ("gpu_textfile/look.py",), "", ["gpu_textfile.look", "gpu_textfile.smi"]),
        ("gpu_monitoring", ("gpu_read/agent.py",), "", ["gpu_read.agent"]),
        ("gpu_verify", (), "gpu_measure", ["observe", "container", "worker"]),
    ],
)
def test_a_program_runs_from_its_folder_alone(tmp_path, role, entries, beside, imported):
    unpacked(tmp_path, role, *entries)
    code = (
        f"import sys; sys.path[:0] = {[str(tmp_path / beside), str(tmp_path)]!r}; import {', '.join(imported)}\n"
        "print([name for name in sys.modules if name.partition('.')[0] == 'ansible'],"
        "[file for file in (getattr(module, '__file__', None) or '' for name, module in sys.modules.items()"
        f" if name.startswith('ansible_collections')) if file and not file.startswith({str(tmp_path)!r})])"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[] []\n"), done.stderr


def test_a_program_takes_no_more_along_than_it_imports(tmp_path):
    places = unpacked(tmp_path, "gpu_monitoring", "gpu_textfile/look.py")
    assert [place for place in places if place.startswith(SHARED)] == [
        SHARED + "__init__.py",
        SHARED + "gpu_probe/__init__.py",
        SHARED + "gpu_probe/commands.py",
    ]
    assert [place for place in places if place.startswith("gpu_read/")] == [
        "gpu_read/__init__.py",
        "gpu_read/nvml.py",
        "gpu_read/smi.py",
    ]


@pytest.mark.parametrize("where", ["checkout", "host"])
def test_collections_that_are_installed_into_a_python_do_not_hide_ours(tmp_path, where):
    (tmp_path / "site/ansible_collections").mkdir(parents=True)
    (tmp_path / "site/ansible_collections/__init__.py").write_text("")
    argv = probe_argv()
    if where == "host":
        unpacked(tmp_path / "host", "gpu_verify")
        argv = [sys.executable, str(tmp_path / "host/gpu_measure/observe.py")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    request = '{"level": "no such"}'
    done = subprocess.run(argv, input=request, env=environment, capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError" not in done.stderr
    assert "level" in done.stdout + done.stderr
