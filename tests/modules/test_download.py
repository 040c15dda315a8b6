"""Signing keys come whole or not at all: what breaks off is asked for again, what is refused is not."""

import hashlib

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.download import bring, fetch

from tests.flaky import CONTENT, serving
from tests.modules.stand_ins import refused


@pytest.fixture
def site():
    with serving() as one:
        yield one


@pytest.mark.parametrize("trouble", ["broken", "chunked, broken", "hangs up", "503", "429"])
def test_what_passes_is_tried_again(site, trouble):
    digest = hashlib.sha256(CONTENT).hexdigest()
    assert fetch(site.says(trouble, trouble, "whole"), {}, digest, pause=0.01) == CONTENT
    assert site.asked == 3


def test_the_endless_text_of_a_redirect_is_not_read(site):
    assert fetch(site.says("moved", "whole"), {}, seconds=1) == CONTENT
    assert site.handler.asked[1:] == ["/moved"]


def test_why_nothing_is_reached_is_told_in_words(tmp_path):
    reason, gone = "could not be downloaded: Connection refused", {"proxy": "http://127.0.0.1:9"}
    with refused("GS-442", reason):
        fetch("http://m.example/key", gone, pause=0.01)
    with refused("GS-479", reason):
        bring("http://m.example/x.run", gone, str(tmp_path), lambda *_words: None, pause=0)
