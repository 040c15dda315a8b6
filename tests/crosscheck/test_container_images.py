"""NVIDIA's own CUDA images: every set of CUDA, NCCL and cuDNN that an image pins is one that we accept.

The rows are read out of the images' Dockerfiles (313: CUDA releases 11.2.0 to 13.0.0, by distribution and CPU).
"""

import pytest

from gpusetup.versions import nv
from tests.crosscheck.facts import check_set, rows

ROWS = rows("container_image_pins")
PINNED = {(row["cuda"], row.get("nccl", ""), row.get("cudnn", "")) for row in ROWS}
SETS = sorted(PINNED, key=lambda row: (nv(row[0]), row))


def test_there_are_313_rows():
    assert len(ROWS) == 313
    assert len(SETS) > 50


@pytest.mark.parametrize(("cuda", "nccl", "cudnn"), SETS)
def test_the_set_is_accepted(matrix, cuda, nccl, cudnn):
    versions = {"cuda": cuda, "nccl": nccl, "cudnn": cudnn}
    assert check_set({name: version for name, version in versions.items() if version}, matrix) == []


def test_a_set_that_nobody_ships_is_refused(matrix):
    """The check can fail: cuDNN 8.1 was never made for CUDA 13, NCCL 2.8.4 neither."""
    assert check_set({"cuda": "13.0.0", "cudnn": "8.1.1.33"}, matrix)
    assert check_set({"cuda": "13.0.0", "nccl": "2.8.4"}, matrix)


def test_each_image_lies_in_the_range_of_its_distribution(matrix):
    """What os.json says a directory holds, holds every CUDA that an image was built from that directory."""
    systems = {system.repo: system for system in matrix.os.systems}
    outside = []
    for row in ROWS:
        system = systems.get(row["directory"])
        if system is None:
            continue
        low, high = system.cuda_min, system.cuda_max
        if (low and nv(row["cuda"]) < nv(low)) or (high and nv(row["cuda"]) > nv(high)):
            outside.append(f"CUDA {row['cuda']} in {row['directory']}")
    assert outside == []


def test_package_texts_follow_the_naming_rules(matrix):
    """The pins that repos.json forms are, character by character, those of the images."""
    wrong = []
    for row in ROWS:
        for component in ("nccl", "cudnn"):
            if component not in row:
                continue
            text = row[f"{component}_package"]
            form = "deb" if "=" in text else "rpm"
            version = row[component]
            names = [
                item
                for item in matrix.repos.libraries
                if item.component == component and item.format == form
                and (item.min_version is None or nv(version) >= nv(item.min_version))
                and (item.max_version is None or nv(version) <= nv(item.max_version))
            ]  # fmt: skip
            assert len(names) == 1, (component, version)
            dotted = ".".join(row["cuda"].split(".")[:2])
            fill = {"version": version, "dotted": dotted, "major": row["cuda"].split(".")[0]}
            formed = names[0].packages[0].format(**fill) + ("=" if form == "deb" else "-") + names[0].pin.format(**fill)
            built_for = text.rpartition("cuda")[2] if "+cuda" in text or ".cuda" in text else dotted
            if formed.replace(dotted, built_for) != text and formed != text:
                wrong.append((formed, text))
    assert wrong == []
