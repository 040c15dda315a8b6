"""Passwords of mirrors stand in no file that others than root may read, and the package managers find them there."""

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import sources

SECRET, SPELLED = "s3cr%t:x/y", "s3cr%25t%3Ax%2Fy"


def written(kind, *uris, root="/"):
    source = {"name": "site", "kind": kind, "uris": list(uris), "suites": ["/"]}
    return sources.render(source, b"\x99\x00\x00", sources.Layout(root), [])


@pytest.mark.parametrize("kind", ["apt", "dnf", "zypper"])
def test_what_others_may_read_has_no_password(kind):
    files = written(kind, f"https://anna:{SPELLED}@mirror.example.org/cuda/")
    text = {path: content if isinstance(content, str) else "" for path, (content, _mode) in files.items()}
    secret = {path for path, content in text.items() if SECRET in content}
    assert len(secret) == 1
    assert {files[path][1] for path in secret} == {0o600}
    assert not [path for path, content in text.items() if SPELLED in content or "anna:" in content]
    assert any("https://mirror.example.org/cuda/" in content for content in text.values())
    plain = written(kind, "https://mirror.example.org/cuda/").values()
    assert {mode for _content, mode in plain} == {0o644}, "without a login nothing is secret"


def test_each_of_apts_addresses_has_its_own_login():
    files = written("apt", "https://a:b@one/x/", "http://two/", "https://c:d@three/")
    content, _mode = files["/etc/apt/auth.conf.d/site.conf"]
    assert str(content).splitlines()[1:] == [
        "machine https://one/x/ login a password b", "machine https://three/ login c password d",
    ]  # fmt: skip
