"""The machine's own list of authorities counts, wherever its distribution keeps it."""

from gpusetup.bootstrap.web import authorities


def test_the_machines_list_or_that_of_requests(tmp_path):
    assert authorities(tmp_path) is True
    kept = tmp_path / "etc/pki/tls/certs/ca-bundle.crt"
    kept.parent.mkdir(parents=True)
    kept.touch()
    assert authorities(tmp_path) == str(kept)
