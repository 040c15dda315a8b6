"""What AWX and Automation Controller need: an execution environment, a project, job templates and a workflow.

Each job runs gpusetup's own command in the execution environment (`playbooks/front_end.yml`). A site's own names are
variables of the playbook that sets AWX up; secrets are credentials of AWX, which are named and never written.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, requires
from typing import TYPE_CHECKING, Any

from gpusetup.handover.files import rendered

if TYPE_CHECKING:
    from collections.abc import Mapping


_RUNNER = "ansible-runner>=2.4,<3"


def awx_files(surveys: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """Return what is written, by name; `surveys` are the questions by command, and by `workflow`."""
    return rendered("awx", surveys=surveys, core=_range_of("ansible-core"), runner=_RUNNER)


def _range_of(package: str) -> str:
    """Return a package with the versions that gpusetup asks for, as its own metadata has them."""
    try:
        needs = requires("gpusetup") or []
    except PackageNotFoundError:
        needs = []
    found = [need.partition(";")[0].strip() for need in needs if need.startswith(package)]
    return found[0] if found else package
