"""What reads the lines of `resolve --install docker` and `--install conda`: BuildKit's own parser, and conda's grammar.

Neither fetches anything: images and conda's channels are on servers of their own. The parsers are on PyPI, in the group
`index`: `dockerfile` is the parser of Docker's builder, `py-rattler` the library under pixi.
"""

import shlex
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

from gpusetup.matrix.load import matrix
from gpusetup.model.request import Request
from gpusetup.plan.install import install_of
from gpusetup.resolve.api import resolve
from gpusetup.resolve.requests import parse_requirements
from tests.questions import IDS, QUESTIONS

Asked = tuple[tuple[str, ...], dict[str, Any]]

pytestmark = pytest.mark.parametrize("asked", QUESTIONS, ids=IDS)


def resolved(asked):
    words, about = asked
    return resolve(Request(requirements=parse_requirements(list(words)), **about), matrix())


def install(asked):
    return install_of(resolved(asked), matrix())


def test_docker_s_own_parser_reads_the_dockerfile(asked):
    parser = pytest.importorskip("dockerfile")
    lines = install(asked).docker
    if not lines:
        pytest.skip("no image for this stack")
    commands = parser.parse_string("\n".join(lines) + "\n")
    assert len(commands) == len([line for line in lines if not line.startswith("#")])
    assert commands[0].cmd.upper() == "FROM"
    assert commands[0].value[0].startswith("nvidia/cuda:")
    assert [command.value for command in commands if command.cmd.upper() == "ENV"] in (
        [],
        [("PATH", "/opt/venv/bin:$PATH")],
        [("PATH", "/opt/venv/bin:$PATH", "=")],
    )


def test_conda_s_grammar_takes_every_word_of_the_line(asked):
    rattler = pytest.importorskip("rattler")
    lines = install(asked).conda
    if not lines:
        pytest.skip("nothing for conda in this stack")
    program, verb, *words = shlex.split(lines[0])
    assert (program, verb) == ("conda", "create")
    assert words[:5] == ["--yes", "--name", "gpu", "--channel", "conda-forge"]
    python, pip = (rattler.MatchSpec(word, strict=True) for word in words[5:])
    assert pip.to_canonical_string().startswith("pip")
    taken = rattler.VersionSpec(python.version)
    stack = resolved(asked).stack
    assert stack.python is not None
    meant = SpecifierSet(f"=={stack.python.version}.*" if stack.python.version else stack.python.requires)
    for minor in range(6, 20):
        assert taken.matches(rattler.Version(f"3.{minor}.1")) == (f"3.{minor}.1" in meant), lines[0]
