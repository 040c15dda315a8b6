"""The kernel's argument by pbl and grubby, which keep one value for a key; pbl does nothing without a boot loader."""

import json
from pathlib import Path

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import boot_arguments, process
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.modules import gpu_nouveau

from tests.modules.stand_ins import replace


def ask(folder, state):
    params = {"state": state, "state_dir": str(folder), "simulated_root": "", "kernel_argument": True, "kernels": []}
    step = gpu_nouveau.Nouveau(params, False)
    return {"changed": step._argument(state == "present"), "warnings": step.warnings}


class Pbl:
    """The command line that the next boot gets; `loader` is whether there is anything to configure."""

    def __init__(self, folder, *words, loader=True):
        self.folder, self.words, self.loader = folder, list(words), loader

    def output(self, argv, *_more):
        assert list(argv[:2]) == ["pbl", "--get-option"]
        return 0, "".join(f"{word}\n" for word in self._of(argv[2])), ""

    def stream(self, argv, *_more, **_named):
        assert (argv[0], argv[-1]) == ("pbl", "--config"), "a change that is not brought into the menu is none"
        if self.loader:
            self.words = [word for word in self.words if word not in self._of(argv[2])]
            self.words += [argv[2]] if argv[1] == "--add-option" else []
        return 0, []

    def _of(self, option):
        return [word for word in self.words if word.partition("=")[0] == option.partition("=")[0]]

    def ask(self, state="present"):
        return ask(self.folder, state)

    @property
    def recorded(self):
        return Ledger(str(self.folder)).state["arguments"]


class Grubby(Pbl):
    """Two entries with the same words."""

    def output(self, argv, *_more):
        assert list(argv) == ["grubby", "--info=ALL"]
        return 0, 'args="{}"\n'.format(" ".join(self.words)) * 2, ""

    def stream(self, argv, *_more, **_named):
        verb, _equals, option = argv[-1].partition("=")
        return super().stream(["pbl", verb.replace("--args", "--add-option"), option, "--config"])


@pytest.fixture
def tool(tmp_path, monkeypatch):
    def make(kind, *words, loader=True):
        made = kind(tmp_path, *words, loader=loader)
        (tmp_path / "running").write_text(" ".join(words) + "\n")
        monkeypatch.setattr(boot_arguments, "RUNNING", str(tmp_path / "running"))
        replace(monkeypatch, process, output=made.output, stream=made.stream)
        replace(monkeypatch, process, which=lambda name, _env: name if name == kind.__name__.lower() else None)
        # An empty folder of drop-ins is no menu: grubby alone changes what boots.
        monkeypatch.setattr("os.path.isdir", lambda path: path == "/etc/default/grub.d" or Path(path).is_dir())
        return made

    return make


@pytest.mark.parametrize("kind", [Pbl, Grubby])
@pytest.mark.parametrize("value", ["floppy", "nouveau", "nouveau,floppy", "nouveau,nova_core"])
def test_what_somebody_else_keeps_off_stays_off(tool, value, kind):
    before = f"modprobe.blacklist={value}"
    host = tool(kind, before, "quiet")
    host.ask()
    (there,) = host._of(before)
    assert set(there.partition("=")[2].split(",")) == {*value.split(","), "nouveau", "nova_core"}
    host.ask("absent")
    assert sorted(host.words) == sorted([before, "quiet"])
    assert host.recorded == []


@pytest.mark.parametrize("theirs", [True, False])
def test_what_a_package_of_the_driver_added_goes_with_ours_and_what_was_set_for_the_next_boot_stays(tool, theirs):
    host = tool(Grubby, "quiet")
    host.words += ["modprobe.blacklist=nouveau"] * theirs
    (host.folder / "baseline.json").write_text(json.dumps({"arguments": boot_arguments.of_grubby({})}))
    host.words += ["modprobe.blacklist=nouveau"] * (not theirs)
    assert [host.ask()["changed"], host.ask("absent")["changed"]] == [True, True]
    assert (host.words, host.recorded) == (["quiet", *["modprobe.blacklist=nouveau"] * theirs], [])


def test_without_a_boot_loader_it_says_so_and_is_no_change(tool):
    host = tool(Pbl, "quiet", loader=False)
    answer = host.ask()
    assert answer["changed"] is False
    assert "no boot loader" in answer["warnings"][0]
    host.ask("absent")
    assert host.recorded == []
