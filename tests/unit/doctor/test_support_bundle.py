"""The bundle holds no secrets."""

import pytest

from gpusetup.content import host_code


@pytest.mark.parametrize(
    "text",
    [
        "password=hunter2hunter2", "NGC_API_KEY: hunter2hunter2", '{"token": "hunter2hunter2"}',
        "Authorization: Bearer hunter2hunter2", "proxy http://user:hunter2hunter2@proxy:3128/",
        "export HF_TOKEN=hunter2hunter2", "AWS_SECRET_ACCESS_KEY='hunter2hunter2'", "hf_hunter2hunter2hunter2",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2hunter2\n-----END RSA PRIVATE KEY-----",
    ],
)  # fmt: skip
def test_secrets_are_masked(text):
    assert "hunter2hunter2" not in host_code("gpu_probe.commands").mask(text)


def test_what_is_no_secret_stays():
    text = "NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus.\nCUDA_VISIBLE_DEVICES=0,1\n"
    assert host_code("gpu_probe.commands").mask(text) == text
