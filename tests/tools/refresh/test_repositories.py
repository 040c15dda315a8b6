"""What NVIDIA's repositories for apt and dnf have beyond what is known, and lists that are no evidence."""

import gzip

import pytest

from tests.tools.refresh.published import apt, documents, newest, row_of, rpm
from tools.refresh import repositories

DEB, RPM = "ubuntu2404/x86_64", "rhel9/x86_64"
BRANCH = next(row for row in documents()["driver"]["branches"] if row["branch"] == 580)
DRIVER = f"{BRANCH['latest'].rpartition('.')[0].rpartition('.')[0]}.299.01"
CUDNN = "9.99.0.7"
NCCL = newest("nccl")


def test_both_kinds_bring_drivers_cudnn_and_nccl(site, ask):
    apt(site, DEB, {
        "nvidia-open-580": f"{DRIVER}-1", "libcudnn9-cuda-12": f"{CUDNN}-1", "libcudnn9-cuda-13": f"{CUDNN}-1",
        "libnccl2": f"{NCCL}-1+cuda12.9", "bash": "5.2-1",
    })  # fmt: skip
    rpm(site, RPM, {"cuda-drivers": f"{DRIVER}-1.el9", "libnccl": "2.99.1-1+cuda13.0"})
    found, failed = ask("repositories")
    assert failed == {}
    assert found.told == []
    assert row_of(found, "driver", DRIVER, "versions")["branch"] == 580
    assert next(row for row in found.rows("driver", "branches") if row["branch"] == 580)["latest"] == DRIVER
    assert row_of(found, "cudnn", CUDNN)["cuda_majors"] == [12, 13]
    builds = row_of(found, "nccl", NCCL)["builds"]
    assert {"cuda": "12.9", "kind": "package", "version": f"{NCCL}-1+cuda12.9"} in builds
    new = {"cuda": "13.0", "kind": "package", "version": "2.99.1-1+cuda13.0"}
    assert row_of(found, "nccl", "2.99.1")["builds"] == [new]


def test_a_repository_that_is_half_published_costs_only_itself(site, ask):
    apt(site, DEB, {"libcudnn9-cuda-13": f"{CUDNN}-1"})
    rpm(site, RPM, {"libnccl": "2.99.1-1+cuda13.0"})
    site.bodies[f"/repos/{DEB}/Packages.gz"] = ("application/gzip", gzip.compress(b"Package: other"))
    found, failed = ask("repositories")
    assert failed == {}
    assert "half published" in " ".join(found.told)
    assert row_of(found, "cudnn", CUDNN) is None
    assert row_of(found, "nccl", "2.99.1")


RELEASE, REPOMD = f"/repos/{DEB}/Release", f"/repos/{RPM}/repodata/repomd.xml"
ELSEWHERE = (
    b"<repomd xmlns='http://linux.duke.edu/metadata/repo'><data type='primary'>"
    b"<checksum type='sha256'>00</checksum><location href='repodata/../../../etc/passwd'/></data></repomd>"
)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        (RELEASE, b"<html>login</html>"), (RELEASE, b""), (REPOMD, b"<repomd"), (REPOMD, b"<html>login</html>"),
        (REPOMD, b"\x00\xff"), (REPOMD, ELSEWHERE),
    ],
)  # fmt: skip
def test_what_is_no_index_is_a_fault_with_a_name(site, ask, name, body):
    if DEB in name:
        rpm(site, RPM, {})
    else:
        apt(site, DEB, {"bash": "1-1"})
    site.bodies[name] = ("text/html", body)
    found, _failed = ask("repositories")
    assert found.told
    assert found.documents == documents()


def test_a_list_that_grows_without_end_is_refused(site, ask, monkeypatch):
    monkeypatch.setattr(repositories, "_LIST", 1 << 16)
    apt(site, DEB, {"bash": "1-1" + "0" * (1 << 18)})
    rpm(site, RPM, {"bash": "1-1" + "0" * (1 << 18)})
    _found, failed = ask("repositories")
    assert "breaks off, or is longer than" in str(failed["repositories"])


@pytest.mark.parametrize("version", ["580.299.01; rm -rf /-1", "../../etc-1", "799.10.01-1"])
def test_versions_that_are_none_are_not_taken(site, ask, version):
    rpm(site, RPM, {})
    apt(site, DEB, {"nvidia-open": version})
    found, failed = ask("repositories")
    assert failed == {}
    assert found.documents == documents()
