"""What a package index brings: wheels of cuDNN and CuPy, patches of torch with their builds, packages above them."""

import pytest

from tests.replay import metadata
from tests.tools.refresh.published import documents, newest, next_patch, row_of

CUDNN = "9.99.0.7"
LINUX = "manylinux_2_27_x86_64"
TORCH = newest("torch")
NEW = next_patch(TORCH)
ROW = next(row for row in documents()["torch"]["releases"] if row["version"] == TORCH)
BUILDS = [row for row in documents()["torch"]["builds"] if row["version"] == TORCH]


def wheels(site, name, *versions):
    plain = name.replace("-", "_")
    site.package(name, *(site.file(f"{plain}-{version}-py3-none-{LINUX}.whl", b"") for version in versions))


def cupy(site, version=None):
    """Every package of CuPy as it is known, one of them with a release more."""
    rows = documents()["cupy"]["releases"]
    for name in dict.fromkeys(row["package"] for row in rows):
        known = [row["version"] for row in rows if row["package"] == name]
        last = [version] if version and name == "cupy-cuda13x" else []
        plain = name.replace("-", "_")
        site.package(name, *(
            site.file(f"{plain}-{one}-cp312-cp312-{LINUX}.whl", b"", metadata(name, one, "Requires-Dist: numpy<2.7,>=2.0"))
            for one in [*known, *last]
        ))  # fmt: skip


def test_wheels_of_cudnn_are_known_by_their_majors_of_cuda(site, ask):
    cupy(site)
    wheels(site, "nvidia-cudnn-cu11", "9.10.2.21")
    wheels(site, "nvidia-cudnn-cu12", newest("cudnn"), CUDNN, "10.0.0.1rc1", "9.99.0.8.post1")
    wheels(site, "nvidia-cudnn-cu13", newest("cudnn"), CUDNN)
    found, failed = ask("wheels")
    assert failed == {}
    row = row_of(found, "cudnn", CUDNN)
    assert (row["cuda_majors"], row["wheels"]) == ([12, 13], [12, 13])
    assert found.versions("cudnn") - {row["version"] for row in documents()["cudnn"]["releases"]} == {CUDNN}


def test_a_patch_of_cupy_was_tested_as_the_one_before(site, ask):
    for major in (11, 12, 13):
        wheels(site, f"nvidia-cudnn-cu{major}", newest("cudnn"))
    before = newest("cupy", "14.")
    version = next_patch(before)
    cupy(site, version)
    found, failed = ask("wheels")
    assert failed == {}
    row = row_of(found, "cupy", version)
    assert (row["confidence"], row["numpy"], row["pythons"]) == ("inferred", "<2.7,>=2.0", {"x86_64": ["3.12"]})
    assert f"are those of {before}" in row["note"]


def torch(site, version=NEW, lanes=(), **pins):
    """PyPI's torch, one patch beyond what is known, with what it asks for; and lanes that have it, too."""
    asked = []
    for name, text in (ROW["pins"] | pins).items():
        extras, bracket, rest = text.rpartition("]")
        exact = rest if not rest[:1].isdigit() else f"=={rest}"
        asked.append(f"Requires-Dist: {name}{extras}{bracket}{exact}; platform_system == 'Linux'")
    told = metadata("torch", version, "Requires-Python: >=3.11", *asked)
    files = [
        site.file(f"torch-{version}-cp312-cp312-manylinux_2_28_x86_64.whl", b"", told),
        site.file(f"torch-{TORCH}-cp312-cp312-manylinux_2_28_x86_64.whl", b""),
    ]
    site.package("torch", *files)
    vision = ROW["companions"]["torchvision"]
    site.package("torchvision", site.file(
        f"torchvision-{next_patch(vision)}-cp312-cp312-{LINUX}.whl", b"",
        metadata("torchvision", next_patch(vision), f"Requires-Dist: torch=={version}"),
    ))  # fmt: skip
    for lane in lanes:
        links = f"<html><body><a href='/f/torch.whl'>torch-{version}+{lane}-cp312-cp312-manylinux_2_28_x86_64.whl</a></body></html>"
        site.bodies[f"/lanes/{lane}/torch/"] = ("text/html", links.encode())


def test_a_patch_of_torch_comes_with_the_builds_that_there_are(site, ask):
    other = [row["variant"] for row in BUILDS if not row["default"]]
    torch(site, lanes=other[:1])
    found, failed = ask("torch")
    assert failed == {}
    row = row_of(found, "torch", NEW)
    assert row["pins"] == ROW["pins"]
    assert row["companions"]["torchvision"] == next_patch(ROW["companions"]["torchvision"])
    builds = {item["variant"]: item for item in found.rows("torch", "builds") if item["version"] == NEW}
    default = next(item["variant"] for item in BUILDS if item["default"])
    assert builds.keys() == {default, *other[:1]}
    for variant, build in builds.items():
        before = next(item for item in BUILDS if item["variant"] == variant)
        assert build["code"]["x86_64"]["targets"] == before["code"]["x86_64"]["targets"]
        assert {item["confidence"] for item in build["code"].values()} == {"inferred"}
        assert f"are those of {TORCH}" in build["note"]


def test_a_lane_that_cannot_be_read_costs_only_its_build(site, ask):
    torch(site)
    found, failed = ask("torch")
    assert failed == {}
    assert any("is left out" in text and "404" in text for text in found.told)
    assert [item["default"] for item in found.rows("torch", "builds") if item["version"] == NEW] == [True]


@pytest.mark.parametrize(
    ("pins", "said"),
    [
        ({"nvidia-cudnn-cu13": "9.99.0.7"}, "nvidia-cudnn-cu13 9.99.0.7, which is not known"),
        ({"cuda-toolkit": "[cudart]==13.0.3"}, "another than the release before"),
        ({"cuda-toolkit": "[cudart]==99.0.0"}, "cuda-toolkit 99.0.0, which is not known"),
    ],
)
def test_a_patch_that_brings_what_nobody_knows_waits(site, ask, pins, said):
    torch(site, **pins)
    found, _failed = ask("torch")
    assert row_of(found, "torch", NEW) is None
    assert said in " ".join(found.told)


def test_a_new_minor_of_torch_waits_for_a_person(site, ask):
    torch(site, "9.0.0")
    found, _failed = ask("torch")
    assert found.documents == documents()
    assert "no index tells which GPUs it has code for" in " ".join(found.told)


def test_an_index_that_stood_still_is_refused(site, ask):
    site.package("torch", site.file("torch-2.0.0-cp311-cp311-manylinux1_x86_64.whl", b""))
    found, failed = ask("torch")
    assert "an old copy" in str(failed["torch"])
    assert found.documents == documents()


def test_packages_above_are_taken_one_by_one(site, ask):
    name = "accelerate"
    known = documents()[f"frameworks/{name}"]["releases"][0]["version"]
    new = next_patch(known)
    site.package(
        name, site.file(f"{name}-{known}-py3-none-any.whl", b""),
        site.file(f"{name}-{new}-py3-none-any.whl", b"", metadata(name, new, "Requires-Dist: torch>=2.0")),
    )  # fmt: skip
    found, failed = ask("packages")
    assert failed == {}
    row = row_of(found, f"frameworks/{name}", new)
    assert row["requires"] == {"torch": ">=2.0"}
    assert row["note"].startswith("read by a program on")
    assert sum("404" in text for text in found.told) > 20
    before = documents()[f"frameworks/{name}"]["releases"]
    after = [item for item in found.rows(f"frameworks/{name}", "releases") if item["version"] != new]
    assert [item["version"] for item in after] == [item["version"] for item in before]
