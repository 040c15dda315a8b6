"""Updates of CUDA and cuDNN from NVIDIA's manifests: whole ones, and every way in which they are not."""

import json

import pytest

from tests.tools.refresh.published import documents, listing, manifest, newest, next_patch, row_of

MINOR = "13.2"
KNOWN = newest("cuda", f"{MINOR}.")
NEW = next_patch(KNOWN)
BRANCH = next(row["driver_branch"] for row in documents()["cuda"]["releases"] if row["version"] == KNOWN)
DRIVER = next(row["version"] for row in documents()["driver"]["versions"] if row["branch"] == BRANCH)


def pair(site, version, driver, cuda=None):
    said = {"cuda": {"version": cuda or f"{version}.20261120"}, "nvidia_driver": {"version": driver}}
    site.bodies[f"/pairing/version_{version}.json"] = ("application/json", json.dumps(said).encode())


def test_an_update_of_a_known_minor_has_its_branch_and_the_installers_driver(site, ask):
    manifest(site, "cuda", NEW)
    pair(site, NEW, DRIVER)
    found, failed = ask("cuda")
    row = row_of(found, "cuda", NEW)
    assert failed == {}
    assert (row["minor"], row["driver_branch"], row["driver"], row["system"]) == (MINOR, BRANCH, DRIVER, True)
    assert row["sources"] == ["cuda_archives", "runfile_pairing"]
    assert row["confidence"] == "vendor"
    assert "read by a program on 2026-11-24" in row["note"]
    versions = [item["version"] for item in found.rows("cuda", "releases")]
    assert versions.index(NEW) == versions.index(KNOWN) + 1


def test_without_an_installer_it_is_no_package_of_a_system_and_its_branch_is_derived(site, ask):
    manifest(site, "cuda", NEW)
    row = row_of(ask("cuda")[0], "cuda", NEW)
    assert (row["system"], row["confidence"]) == (False, "inferred")
    assert "driver" not in row


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"release_label": "13.2.1"}, "its manifest is of 'cuda' '13.2.1'"),
        ({"release_product": "cudnn"}, "its manifest is of 'cudnn'"),
        ({"release_date": "2999-01-01"}, "still to come"),
        ({"release_date": "\x1b[31mnow"}, "its day is ?[31mnow"),
    ],
)
def test_a_manifest_that_contradicts_its_name_is_left_out(site, ask, change, said):
    manifest(site, "cuda", NEW, **change)
    found, _failed = ask("cuda")
    assert row_of(found, "cuda", NEW) is None
    assert said in " ".join(found.told)


def test_a_manifest_that_breaks_off_is_left_out(site, ask):
    manifest(site, "cuda", NEW)
    kind, body = site.bodies[f"/cuda/redistrib_{NEW}.json"]
    site.bodies[f"/cuda/redistrib_{NEW}.json"] = (kind, body[:-9])
    found, _failed = ask("cuda")
    assert row_of(found, "cuda", NEW) is None
    assert "is not a manifest, or not all of it" in " ".join(found.told)


@pytest.mark.parametrize(
    ("driver", "cuda", "said"),
    [
        ("999.10.01", None, "driver '999.10.01', which is not known"),
        ("580.178.04", None, "a person must look"),
        (DRIVER, "12.1.0", "it says to be of '12.1.0'"),
    ],
)
def test_an_installer_that_contradicts_what_is_known_is_no_evidence(site, ask, driver, cuda, said):
    manifest(site, "cuda", NEW)
    pair(site, NEW, driver, cuda)
    found, _failed = ask("cuda")
    assert row_of(found, "cuda", NEW) is None
    assert said in " ".join(found.told)


def test_a_new_minor_waits_for_a_person(site, ask):
    manifest(site, "cuda", "14.0.0")
    found, _failed = ask("cuda")
    assert row_of(found, "cuda", "14.0.0") is None
    assert "14.0 is new" in " ".join(found.told)


def test_links_that_lead_elsewhere_are_not_followed(site, ask):
    name = "redistrib_13.2.9.json"
    listing(site, "/cuda/", f"../../etc/{name}", f"//other.example/{name}", f"{name}/..")
    _found, failed = ask("cuda")
    assert "lists no manifest" in str(failed["cuda"])
    assert site.asked == ["/cuda/"]


CUDNN = "9.99.0"


def test_a_release_of_cudnn_is_for_the_cuda_that_its_manifest_names(site, ask):
    manifest(site, "cudnn", CUDNN, cudnn={"name": "cuDNN", "version": f"{CUDNN}.7", "cuda_variant": ["12", "13"]})
    found, failed = ask("cudnn")
    row = row_of(found, "cudnn", f"{CUDNN}.7")
    assert failed == {}
    assert row["cuda_majors"] == [12, 13]
    assert "wheels" not in row


@pytest.mark.parametrize(
    ("cudnn", "said"),
    [
        ({"version": "8.1.0.1", "cuda_variant": ["13"]}, "its manifest says to be of '8.1.0.1'"),
        ({"version": f"{CUDNN}.7", "cuda_variant": ["14"]}, "it is for CUDA"),
        ({"version": f"{CUDNN}.7", "cuda_variant": "13"}, "does not say which CUDA"),
        (None, "does not say which CUDA"),
    ],
)
def test_a_manifest_of_cudnn_that_does_not_fit_is_left_out(site, ask, cudnn, said):
    manifest(site, "cudnn", CUDNN, cudnn=cudnn)
    found, _failed = ask("cudnn")
    assert found.documents == documents()
    assert said in " ".join(found.told)
