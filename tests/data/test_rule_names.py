"""Every rule that the program cites by name is one that the data holds, so an explanation never points at nothing."""

import ast
from pathlib import Path

from tests.data.lint import shipped

PACKAGE = Path(__file__).parents[2] / "gpusetup"
CITING_CALLS = {"unary": 0, "pair": 0, "rule_source": 1, "rule_text": 1}


def cited(source):
    """The rule names in a module: `rule=…` arguments, and the name that constraints and look-ups take."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        place = CITING_CALLS.get(called)
        candidates = [keyword.value for keyword in node.keywords if keyword.arg == "rule"]
        if place is not None and len(node.args) > place:
            candidates.append(node.args[place])
        names |= {item.value for item in candidates if isinstance(item, ast.Constant) and isinstance(item.value, str)}
    return names


def missing(names, documents):
    known = {rule["id"] for document in documents.values() for rule in document.get("rules", ())}
    return sorted(names - known)


def test_shipped():
    names = {
        name
        for folder in ("matrix", "resolve")
        for path in (PACKAGE / folder).glob("*.py")
        for name in cited(path.read_text())
    }
    assert len(names) > 20, "the search for citations finds nothing any more"
    assert missing(names, shipped()) == []


def test_a_name_without_a_rule_is_seen():
    good = 'space.pair("one-cuda-major", a, b, f)\nReason(component="driver", rule="module-flavour")\n'
    bad = 'space.unary("two-cuda-majors", a, f)\nrule_source(matrix, "no-such-rule")\n'
    assert missing(cited(good), shipped()) == []
    assert missing(cited(bad), shipped()) == ["no-such-rule", "two-cuda-majors"]
