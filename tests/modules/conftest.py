"""Tests of modules run the files that Ansible would run on a host, imported the way Ansible imports them."""

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import fetched


class Exit(Exception):  # noqa: N818 - it is how a module ends
    """A module's answer."""

    def __init__(self, result, failed):
        super().__init__(str(result.get("msg", "")))
        self.result = result
        self.failed = failed


@pytest.fixture(autouse=True)
def _looks_of_our_own(monkeypatch, tmp_path_factory):
    """Keep the folders of looks, which are swept, out of this machine's /var/tmp."""
    monkeypatch.setattr(fetched, "PLACE", str(tmp_path_factory.mktemp("looks")))


@pytest.fixture(scope="session")
def shelf(tmp_path_factory):
    """Where packages lie that tests made for the real package managers."""
    return tmp_path_factory.mktemp("packages")


@pytest.fixture
def run_module(monkeypatch):
    """Call a module's main() with parameters, as Ansible does; returns (failed, result)."""
    import json

    from ansible.module_utils import basic

    def answer(module, failed, result):
        raise Exit(result, failed)

    monkeypatch.setattr(basic.AnsibleModule, "exit_json", lambda module, **result: answer(module, False, result))
    monkeypatch.setattr(
        basic.AnsibleModule, "fail_json", lambda module, msg="", **result: answer(module, True, dict(result, msg=msg))
    )

    def call(module, check=False, **parameters):
        arguments = json.dumps({"ANSIBLE_MODULE_ARGS": dict(parameters, _ansible_check_mode=check, _ansible_diff=True)})
        monkeypatch.setattr(basic, "_ANSIBLE_ARGS", arguments.encode())
        if hasattr(basic, "_ANSIBLE_PROFILE"):
            monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy")
        with pytest.raises(Exit) as caught:
            module.main()
        return caught.value.failed, caught.value.result

    return call
