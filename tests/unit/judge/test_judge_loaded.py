"""The controller asks the very files that hosts run."""

import shutil
import subprocess
import sys

import pytest

from gpusetup.components.judge import versions
from gpusetup.content import content_path


def test_the_controllers_judge_is_the_collections_file():
    file = content_path() / "plugins" / "module_utils" / "gpu_judge" / "versions.py"
    assert versions.__file__ is not None
    assert file.samefile(versions.__file__)


@pytest.mark.parametrize("package", ["gpu_judge", "gpu_probe"])
def test_judge_and_probe_can_each_be_taken_along_alone(package, tmp_path):
    shutil.copytree(content_path() / "plugins" / "module_utils" / package, tmp_path / package)
    names = [path.stem for path in sorted((tmp_path / package).glob("[a-z]*.py"))]
    code = f"import sys; sys.path.insert(0, sys.argv[1]); from {package} import {', '.join(names)}; print('alone')"
    done = subprocess.run([sys.executable, "-I", "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "alone\n"
