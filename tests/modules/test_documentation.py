"""What a module documents is what it takes: option by option, with types, defaults and choices."""

import importlib
import json
from pathlib import Path
from unittest.mock import Mock, patch

import pytest
from ansible.module_utils import basic
from ansible.parsing import plugin_docs
from ansible_collections.gpusetup.stack.plugins.doc_fragments.options import ModuleDocFragment

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
# gpu_shared_code takes what its action sends: test_shared_code compares the two
MODULES = sorted({path.stem for path in PLUGINS.glob("modules/gpu_*.py")} - {"gpu_shared_code"})
SAID = ("type", "elements", "required", "default", "choices")


def specification(module, monkeypatch):
    """What the module hands to Ansible."""
    loaded = importlib.import_module(f"ansible_collections.gpusetup.stack.plugins.modules.{module}")
    asked = Mock(side_effect=KeyboardInterrupt)  # what main() does with it is of no interest
    for place in (loaded, basic):
        monkeypatch.setattr(place, "AnsibleModule", asked, raising=False)
    with pytest.raises(KeyboardInterrupt):
        loaded.main()
    return (*asked.call_args.args, asked.call_args.kwargs.get("argument_spec"))[0]


def text_of(path):
    """The DOCUMENTATION in a file, as Ansible reads it; what Ansible would only warn of is an error here."""
    with patch.object(plugin_docs, "display", Mock(warning=Mock(side_effect=ValueError))):
        said = plugin_docs.read_docstring(str(path), verbose=False, ignore_errors=False)
    assert (said["doc"]["module"], bool(said["plainexamples"]), bool(said["returndocs"])) == (path.stem, True, True)
    return said["doc"]


def documented(module):
    document = text_of(PLUGINS / "modules" / f"{module}.py")
    fragment = document.get("extends_documentation_fragment")
    if fragment is None:
        return document.get("options", {})
    names = [name.rpartition(".")[2] for name in ([fragment] if isinstance(fragment, str) else fragment)]
    assert (names[-1], "options" in document) == (module, False)
    shared = [json.loads(getattr(ModuleDocFragment(), name.upper()))["options"] for name in names]
    return {name: option for options in shared for name, option in options.items()}


def compare(where, options, spec):
    assert sorted(options) == sorted(spec), where
    for name, taken in spec.items():
        said = options[name]
        place = f"{where}.{name}"
        assert said["description"], place
        usual = {"type": "str", "required": False}
        both = [{**usual, **{key: of[key] for key in SAID if key in of}} for of in (said, taken)]
        assert both[0] == both[1], place
        compare(place, said.get("suboptions", {}), taken.get("options", {}))


@pytest.mark.parametrize("module", MODULES)
def test_every_option_is_documented_as_it_is_taken(module, monkeypatch):
    compare(module, documented(module), specification(module, monkeypatch))
