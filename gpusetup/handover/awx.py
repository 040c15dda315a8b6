"""What AWX and Automation Controller need: an execution environment, a project, job templates and a workflow.

Each job runs gpusetup's own command in the execution environment (`playbooks/front_end.yml`). A site's own names are
variables of the playbook that sets AWX up; secrets are credentials of AWX, which are named and never written.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, requires
from typing import TYPE_CHECKING, Any, NamedTuple

from gpusetup.content import COLLECTION
from gpusetup.handover.text import MADE, yaml_text

if TYPE_CHECKING:
    from collections.abc import Mapping

PYTHON = "3.12"
WHEELS = "gpusetup-bundle/wheels"
_COLLECTIONS = "/usr/share/ansible/collections/ansible_collections"

_LINK = (
    f"RUN mkdir -p {_COLLECTIONS} && "
    f'ln -s "$($PYCMD -m gpusetup export content collections)/ansible_collections/gpusetup" {_COLLECTIONS}'
)
"""Playbooks name the collection; AWX looks for it there."""


def execution_environment() -> dict[str, Any]:
    """Return the definition, version 3; gpusetup itself comes from a bundle, whose Python is that of the image."""
    return {
        "version": 3,
        "images": {"base_image": {"name": "quay.io/rockylinux/rockylinux:9"}},
        "dependencies": {
            "python_interpreter": {"package_system": f"python{PYTHON}", "python_path": f"/usr/bin/python{PYTHON}"},
            "ansible_core": {"package_pip": _range_of("ansible-core")},
            "ansible_runner": {"package_pip": _range_of("ansible-runner")},
            # A line of its own would be taken for the name of a file.
            "system": ["openssh-clients [platform:rpm]"],
        },
        "additional_build_files": [{"src": WHEELS, "dest": "wheels"}],
        "additional_build_steps": {
            "append_final": [
                "COPY _build/wheels /tmp/wheels",
                "RUN $PYCMD -m pip install --no-index --find-links /tmp/wheels gpusetup && rm -r /tmp/wheels",
                _LINK,
            ]
        },
    }


def _range_of(package: str) -> str:
    """Return a package with the versions that gpusetup asks for, as its own metadata has them."""
    try:
        needs = requires("gpusetup") or []
    except PackageNotFoundError:
        needs = []
    found = [need.partition(";")[0].strip() for need in needs if need.startswith(package)]
    return found[0] if found else package


_MODULES = "awx.awx"
_WORKFLOW = "gpusetup: roll-out"
_APPROVAL_SECONDS = 3 * 24 * 3600
_JOB_SECONDS = 6 * 3600


class Template(NamedTuple):
    """A job template, and the playbook of the project that it runs."""

    command: str
    description: str
    asks: bool = False
    """Whether people are asked for versions and the like."""
    planned: bool = False
    """Whether only what an earlier job planned is carried out."""


TEMPLATES = {
    "facts": Template("facts", "What each host is. Changes nothing."),
    "plan": Template("plan", "What would change on each host, and why. Changes nothing.", asks=True),
    "apply": Template("apply", "Plan and apply, batch by batch, each verified before the next.", asks=True),
    "apply_planned": Template("apply", "Apply exactly the plan of this workflow.", planned=True),
    "verify": Template("verify", "Prove on the GPUs that the stack works. Changes nothing."),
    "rollback": Template("rollback", "In a workflow the hosts that it broke, else all: back to what verified last."),
    "verdict": Template("verdict", "How the workflow ended for each host; fails where one is not well."),
}


def awx_files(surveys: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """Return what is written, by name; `surveys` are the questions by command, and by `workflow`."""
    files = {
        "README.md": _page(),
        "execution-environment/execution-environment.yml": yaml_text(
            execution_environment(), made=MADE + "# gpusetup itself: see README.md.\n"
        ),
        "awx/configure.yml": yaml_text(_configuration(surveys)),
        "awx/site.yml": yaml_text(
            _SITE, made="# A site's own names. Credentials are AWX's: they are named here, and made there.\n"
        ),
        "awx/requirements.yml": yaml_text({"collections": [{"name": _MODULES}]}),
        "project/known_hosts": "# Host keys, or a CA's line (@cert-authority). Hosts without one are refused.\n",
    }
    files |= {f"project/{name}.yml": yaml_text(_playbook(template)) for name, template in TEMPLATES.items()}
    return files


_SITE = {
    "gpu_awx_organization": "Default",
    "gpu_awx_image": "registry.example.com/gpusetup-ee:latest",
    "gpu_awx_project_url": "https://git.example.com/gpusetup-project.git",
    "gpu_awx_project_branch": "main",
    "gpu_awx_project_credential": "",
    "gpu_awx_inventory": "GPU hosts",
    "gpu_awx_credentials": ["GPU hosts"],
    "gpu_awx_forks": 25,
    "gpu_awx_slices": 1,
}


def _playbook(template: Template) -> list[dict[str, Any]]:
    told: dict[str, Any] = {"gpu_front_end_command": template.command}
    if template.planned:
        told["gpu_front_end_planned"] = True
    return [
        {
            "name": template.description.rstrip("."),
            "ansible.builtin.import_playbook": f"{COLLECTION}.front_end",
            "vars": told,
        }
    ]


def _called(name: str) -> str:
    return f"gpusetup: {name.replace('_', ' ')}"


def _configuration(surveys: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    environment = {
        "name": "gpusetup",
        "organization": "{{ gpu_awx_organization }}",
        "image": "{{ gpu_awx_image }}",
        "pull": "always",
    }
    project = {
        "name": "gpusetup",
        "organization": "{{ gpu_awx_organization }}",
        "scm_type": "git",
        "scm_url": "{{ gpu_awx_project_url }}",
        "scm_branch": "{{ gpu_awx_project_branch }}",
        "credential": "{{ gpu_awx_project_credential | default(omit, true) }}",
        "default_environment": "gpusetup",
        "scm_update_on_launch": True,
    }
    tasks = [
        _task("The execution environment", "execution_environment", environment),
        _task("The project", "project", project),
    ]
    tasks += [
        _task(f"The job template {name}", "job_template", _template(name, template, surveys))
        for name, template in TEMPLATES.items()
    ]
    tasks.append(_task("The workflow", "workflow_job_template", _workflow(surveys["workflow"])))
    return [
        {
            "name": "Set AWX up for gpusetup",
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "vars_files": ["site.yml"],
            "tasks": tasks,
        }
    ]


def _task(name: str, module: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, f"{_MODULES}.{module}": arguments}


def _template(name: str, template: Template, surveys: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    questions = surveys.get(template.command) if not template.planned else None
    return {
        "name": _called(name),
        "description": template.description,
        "organization": "{{ gpu_awx_organization }}",
        "project": "gpusetup",
        "playbook": f"{name}.yml",
        "inventory": "{{ gpu_awx_inventory }}",
        "credentials": "{{ gpu_awx_credentials }}",
        "execution_environment": "gpusetup",
        "job_type": "run",
        "forks": "{{ gpu_awx_forks }}",
        "timeout": _JOB_SECONDS,
        "job_slice_count": "{{ gpu_awx_slices }}",
        # A workflow hands its survey's answers, its inventory and its limit to jobs that ask for them.
        "ask_inventory_on_launch": True,
        "ask_limit_on_launch": True,
        "ask_variables_on_launch": True,
        "ask_job_slice_count_on_launch": True,
        "survey_enabled": questions is not None,
        **({"survey_spec": questions} if questions is not None else {}),
    }


_NODES: tuple[tuple[str, Mapping[str, str]], ...] = (
    ("facts", {"always": "plan"}),
    ("plan", {"always": "approval"}),
    ("approval", {"success": "apply_planned"}),
    ("apply_planned", {"success": "verify", "failure": "rollback"}),
    ("verify", {"success": "verdict", "failure": "rollback"}),
    ("rollback", {"always": "verdict"}),
    ("verdict", {}),
)
"""Each node, and which one follows how. A host that cannot be reached fails its job and must not hold up the others."""


def _workflow(questions: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": _WORKFLOW,
        "description": "Plan, ask for approval, apply in batches, verify, roll back failures.",
        "organization": "{{ gpu_awx_organization }}",
        "inventory": "{{ gpu_awx_inventory }}",
        "ask_inventory_on_launch": True,
        "ask_limit_on_launch": True,
        "ask_variables_on_launch": True,
        "allow_simultaneous": False,
        "survey_enabled": True,
        "survey_spec": questions,
        "workflow_nodes": [_node(name, ways) for name, ways in _NODES],
    }


def _node(name: str, ways: Mapping[str, str]) -> dict[str, Any]:
    if name == "approval":
        runs: dict[str, Any] = {
            "name": "Apply this plan?",
            "description": "The plan is the output of the job before.",
            "type": "workflow_approval",
            "timeout": _APPROVAL_SECONDS,
        }
    else:
        runs = {
            "name": _called(name),
            "type": "job_template",
            "organization": {"name": "{{ gpu_awx_organization }}"},
        }
    related = {f"{how}_nodes": [{"identifier": follower}] for how, follower in ways.items()}
    return {"identifier": name, "unified_job_template": runs, "related": related}


def _page() -> str:
    return f"""\
# Hand-over to AWX

1. The execution environment. gpusetup comes into it from a bundle; its Python is the image's.

   ```bash
   cd execution-environment
   gpusetup bundle --controller-only --python {PYTHON} --out {WHEELS.partition("/")[0]}
   ansible-builder build --tag registry.example.com/gpusetup-ee:latest
   podman push registry.example.com/gpusetup-ee:latest
   ```

2. The project. Put `project/` into a git repository that AWX can read. Fill its `known_hosts`: host keys are checked.

3. The names. Edit `awx/site.yml`. Make the inventory and the machine credential (an SSH key) in AWX under those names.

4. The job templates and the workflow. The token is read from the environment, and is written nowhere.

   ```bash
   cd awx
   ansible-galaxy collection install -r requirements.yml
   read -rs CONTROLLER_OAUTH_TOKEN && export CONTROLLER_OAUTH_TOKEN
   CONTROLLER_HOST=https://awx.example.com ansible-playbook configure.yml
   ```

   A second run changes nothing. For Automation Controller's own collection write `ansible.controller` for `{_MODULES}`.

5. Launch the workflow `{_WORKFLOW}`. A second launch, when all is well, changes nothing on any host.
"""
