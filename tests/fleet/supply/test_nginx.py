"""Any static web server does: apt reads a bundle through the real nginx."""

import shutil
import socket
import subprocess

import pytest

from gpusetup.model.package import Package
from gpusetup_fleet.supply.apt_repository import AptRoot
from gpusetup_fleet.supply.fetching import Pool
from tests.fleet.supply.conftest import REPOSITORY, nothing
from tests.lab.process import until

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("apt-get", "gpg", "nginx"))), reason="needs: apt-get install gnupg nginx-light"
)

CONFIGURATION = """
pid {folder}/pid; error_log {folder}/error.log; daemon off; worker_processes 1;
events {{ }}
http {{
  access_log {folder}/access.log;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  server {{ listen 127.0.0.1:{port}; root {folder}/site; }}
}}
"""


@pytest.fixture
def served(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    tmp_path.chmod(0o755)
    (tmp_path / "nginx.conf").write_text(f"user root;{CONFIGURATION.format(folder=tmp_path, port=port)}")
    process = subprocess.Popen(["nginx", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")])
    until((tmp_path / "pid").exists, "it listens", 60)
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait()


def test_apt_installs_from_a_bundle_behind_nginx(tmp_path, out, key, served):
    line = f"deb [signed-by={out / REPOSITORY / key.key_file}] {served}/{REPOSITORY} /"
    root = AptRoot(tmp_path / "root", "debian12", "x86_64", (line,))
    root.refresh()
    found = root.closure([Package(name="driver", version="1:2.0-*")])
    assert {entry.name for entry in found} == {"driver", "dkms"}
    pool = Pool(tmp_path / "pool")
    assert pool.fetch([entry.file for entry in found], nothing) == sum(entry.file.size for entry in found)
