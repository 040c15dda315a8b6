"""The controller asks the very files that hosts run."""

from __future__ import annotations

import subprocess
import sys

from gpusetup.content import content_path
from gpusetup.plan.judge import versions


def test_the_controllers_judge_is_the_collections_file() -> None:
    file = content_path() / "plugins" / "module_utils" / "gpu_judge" / "versions.py"
    assert versions.__file__ is not None
    assert file.samefile(versions.__file__)


def test_the_judge_can_be_imported_without_the_program_around_it() -> None:
    folder = content_path() / "plugins" / "module_utils"
    code = "import sys; sys.path.insert(0, sys.argv[1]); from gpu_judge import versions; print(versions.upstream('3:580.1-1'))"
    done = subprocess.run([sys.executable, "-I", "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert done.stdout == "580.1\n"
