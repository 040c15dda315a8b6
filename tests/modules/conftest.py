"""Tests of modules run the files that Ansible would run on a host, imported the way Ansible imports them."""

import json

import pytest
from ansible.module_utils import basic
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import fetched
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger

from tests.modules import gpu_host_stand_in
from tests.modules.transactions import Site


class Exit(Exception):  # noqa: N818 - it is how a module ends
    """A module's answer, and whether it failed."""


@pytest.fixture(autouse=True)
def _looks_of_our_own(monkeypatch, tmp_path_factory):
    """Keep the folders of looks, which are swept, out of this machine's /var/tmp."""
    monkeypatch.setattr(fetched, "PLACE", str(tmp_path_factory.mktemp("looks")))


@pytest.fixture(scope="session")
def shelf(tmp_path_factory):
    """Where packages lie that tests made for the real package managers."""
    return tmp_path_factory.mktemp("packages")


@pytest.fixture
def site(tmp_path, monkeypatch):
    return Site.alone(tmp_path / "state", monkeypatch)


@pytest.fixture
def ledger(tmp_path):
    """A host's record."""
    return Ledger(str(tmp_path / "state"))


@pytest.fixture
def host(request, tmp_path, monkeypatch):
    """A host below a folder; a file of tests may have a class of its own for it."""
    return getattr(request.module, "Host", gpu_host_stand_in.Host)(tmp_path, monkeypatch)


@pytest.fixture
def run_module(monkeypatch):
    """Call a module's main() with parameters, as Ansible does; return what it answers.

    `fails` has the words of its refusal. Without any it must not fail; None leaves that to the caller.
    """

    def ends(failed):
        def answer(_module, **result):
            raise Exit(result, failed)

        return answer

    monkeypatch.setattr(basic.AnsibleModule, "exit_json", ends(False))
    monkeypatch.setattr(basic.AnsibleModule, "fail_json", ends(True))

    def call(module, check=False, fails="", **parameters):
        arguments = json.dumps({"ANSIBLE_MODULE_ARGS": dict(parameters, _ansible_check_mode=check, _ansible_diff=True)})
        monkeypatch.setattr(basic, "_ANSIBLE_ARGS", arguments.encode())
        monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
        with pytest.raises(Exit) as caught:
            module.main()
        result, failed = caught.value.args
        assert fails is None or failed == bool(fails), result
        for word in (fails,) if isinstance(fails, str) else fails or ():
            assert word in result.get("msg", ""), result
        return result

    return call
