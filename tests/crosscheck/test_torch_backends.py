"""uv's table of torch backends by driver, against our torch builds with the GPU left open.

For each driver that the table names, a build must fit exactly when the table says so. Disagreements are listed below,
each with its reason; a new one fails the test, and so does one that is gone.
"""

import pytest

from gpusetup.errors import BadInputError
from gpusetup.versions import nv
from tests.crosscheck.facts import check_set, rows

FLOORS = {row["backend"]: row["min_driver_linux"] for row in rows("torch_backend_by_driver")}
DRIVERS = sorted(set(FLOORS.values()), key=nv)

OLDER_THAN_THE_MATRIX = {
    "375.26": "CUDA 8 to 9.2: no torch since 1.8 is built for them, and their drivers are older than every branch we know",
    "384.81": "as 375.26", "390.46": "as 375.26", "396.26": "as 375.26",
}  # fmt: skip
DISAGREEMENTS: dict[tuple[str, str], str] = {}
"""(driver, torch build) → why we and the table differ."""


def _builds(matrix):
    return [
        (f"{build.version}+{build.variant}", build.variant) for build in matrix.torch.builds if build.code is not None
    ]


def test_the_table_knows_every_variant_of_ours(matrix):
    assert len(FLOORS) == 27
    assert {build.variant for build in matrix.torch.builds} <= FLOORS.keys()


@pytest.mark.parametrize("driver", [driver for driver in DRIVERS if driver not in OLDER_THAN_THE_MATRIX])
def test_agreement(matrix, driver):
    differing = {}
    for build, variant in _builds(matrix):
        theirs = nv(driver) >= nv(FLOORS[variant])
        conflict = check_set({"torch": build}, matrix, driver=driver)
        if theirs != (not conflict):
            differing[driver, build] = conflict
    listed = {key for key in DISAGREEMENTS if key[0] == driver}
    assert differing.keys() == listed, differing


@pytest.mark.parametrize("driver", OLDER_THAN_THE_MATRIX)
def test_a_driver_from_before_the_matrix_is_refused_by_name(matrix, driver):
    """The table would offer torch builds that do not exist; we say that the driver is too old to judge."""
    assert not [build for build, variant in _builds(matrix) if nv(driver) >= nv(FLOORS[variant])]
    with pytest.raises(BadInputError, match=driver):
        check_set({"torch": "2.6.0+cu124"}, matrix, driver=driver)
