"""The stand-in repositories' faults on demand: apt does not take what is wrong."""

import re

import pytest

from tests.lab.repository import build


@pytest.fixture(scope="module")
def ubuntu(lab_hosts_module, lab_repositories):
    (host,) = lab_hosts_module(flavour="ubuntu2404-like", machine="h200-x8-nvswitch")
    return host


def shell(host, script, *, check=True):
    done = host.ssh("sh", "-c", script, check=check, timeout=300)
    return done.stdout + done.stderr


def install(host, *words, check=True):
    return shell(host, f"DEBIAN_FRONTEND=noninteractive apt-get install -y {' '.join(words)}", check=check)


@pytest.mark.parametrize(
    ("what", "where", "says"),
    [
        ("wrong-key", "index", "NO_PUBKEY"), ("expired", "index", "is expired"), ("404", "index", "404"), ("503", "all", "503"),
        ("corrupt", "index", "invalid|doesn't match|mismatch|BADSIG|NODATA|Clearsigned"),
        ("truncated", "index", "closed|unexpected|size|error"),
    ],
)  # fmt: skip
def test_apt_does_not_take_a_bad_index(what, where, says, ubuntu, lab_repositories):
    ubuntu.use(lab_repositories.with_fault(f"index{what.replace('-', '')}", what, where))
    shell(ubuntu, "rm -rf /var/lib/apt/lists/*")
    told = shell(
        ubuntu,
        "apt-get update -o Acquire::Retries=0 -o Acquire::Check-Valid-Until=true; apt-cache policy nvidia-open-580",
        check=False,
    )
    assert re.search(says, told, re.IGNORECASE), told
    assert "Candidate: 580" not in told


@pytest.mark.parametrize(
    ("what", "says"),
    [("corrupt", "Hash Sum mismatch|doesn't match"), ("truncated", "closed|unexpected|size"), ("404", "404")],
)
def test_apt_does_not_take_a_bad_package(what, says, ubuntu, lab_repositories):
    ubuntu.use(lab_repositories.with_fault(f"package{what}", what, "packages"))
    shell(ubuntu, "rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb; apt-get update")
    told = install(ubuntu, "-o", "Acquire::Retries=0", "cuda-compat-13-3", check=False)
    assert re.search(says, told, re.IGNORECASE), told
    assert "not-installed" in shell(
        ubuntu, "dpkg-query -W -f '${db:Status-Status}' cuda-compat-13-3 2>/dev/null || echo not-installed", check=False
    )
    build.set_fault(f"package{what}", "")
    install(ubuntu, "cuda-compat-13-3")
    shell(ubuntu, "dpkg --purge cuda-compat-13-3")
