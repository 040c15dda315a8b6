"""What a cold `gpusetup` may import: a lookup must not pay for progress bars, templates, HTTP or Ansible."""

import json
import os
import subprocess
import sys

import pytest

NEVER = (
    "rich",
    "jinja2",
    "requests",
    "urllib3",
    "ansible",
    "yaml",
    "asyncio",
    "concurrent",
    "http",
    "email",
    "tomllib",
    "argcomplete",
)
"""Heavy modules that no lookup needs."""
HOSTS_ONLY = (
    "gpusetup.components.driver",
    "gpusetup.components.base",
    "gpusetup.components.judge",
    "gpusetup_host_code",
)
"""What is known of a host and its package managers: a question about versions has no host."""
LOOKUPS = (
    ("matrix", "--format", "json"),
    ("matrix", "torch==2.6.*", "--gpu", "v100", "--format", "json"),
    ("matrix", "torch==2.6.*", "--format", "csv"),
    ("resolve", "--format", "json"),
    ("resolve", "torch", "--gpu", "h100", "--os", "ubuntu24.04", "--format", "json"),
    ("why", "cuda", "--format", "json"),
    ("why-not", "cuda=13.1", "--gpu", "v100", "--format", "json"),
)
PROBE = """
import json, sys
before = set(sys.modules)
from gpusetup.cli.main import main
code = main(sys.argv[1:])
print(json.dumps({"code": code, "loaded": sorted(set(sys.modules) - before)}), file=sys.stderr)
"""


def loaded_by(*argv):
    """Return the modules that a command imports in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "GPUSETUP_MATRIX"}
    done = subprocess.run([sys.executable, "-c", PROBE, *argv], capture_output=True, text=True, check=False, timeout=120, env=environment)  # fmt: skip
    told = json.loads(done.stderr.splitlines()[-1])
    assert told["code"] in (0, 4), done.stderr
    return set(told["loaded"])


@pytest.mark.parametrize("argv", LOOKUPS, ids=" ".join)
def test_a_lookup_imports_nothing_heavy(argv):
    loaded = loaded_by(*argv)
    assert not {module for module in loaded if module.split(".")[0] in NEVER}
    assert not {
        module
        for module in loaded
        if module.startswith(("gpusetup.drive", "gpusetup.verify", "gpusetup.bootstrap", "gpusetup.report"))
    }


@pytest.mark.parametrize("argv", [*LOOKUPS, ("resolve",), ("resolve", "vllm", "--os", "ubuntu24.04"), ("matrix", "vllm")], ids=" ".join)  # fmt: skip
def test_a_lookup_imports_nothing_of_hosts(argv):
    assert not {module for module in loaded_by(*argv) if module.startswith(HOSTS_ONLY)}


def test_what_a_host_of_the_lab_lacks_is_not_needed_for_a_text():
    code = "import sys, gpusetup.report.formats, gpusetup.cli.verify; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {name.split(".")[0] for name in loaded} & {"markupsafe", "jinja2", "rich", "requests", "ansible"}


def test_help_and_version_import_no_matrix():
    for argv in (("--help",), ("--version",)):
        code = "import sys; sys.argv = ['gpusetup', *sys.argv[1:]]\ntry:\n from gpusetup.cli.main import main; main(sys.argv[1:])\nexcept SystemExit: pass\nprint(sorted(m for m in sys.modules if m in ('msgspec', 'packaging', 'gpusetup.matrix.load')), file=sys.stderr)"  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", code, *argv], capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stderr.strip() == "[]"


def test_only_the_used_commands_module_is_imported():
    commands = {module for module in loaded_by("why", "cuda", "--format", "json") if module.startswith("gpusetup.cli.")}
    shared = {"main", "commands", "grammar", "options", "output", "requests", "streams", "why"}
    assert commands <= {f"gpusetup.cli.{name}" for name in shared}
