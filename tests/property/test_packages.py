"""The law for packages above the frameworks: what `matrix` marks is what `resolve` gives, for each of them on many machines."""

from itertools import product

import pytest

from gpusetup.errors import NoStackError
from gpusetup.matrix.load import matrix
from gpusetup.model.packages import major_of_extra
from gpusetup.model.request import PACKAGES, Request, Requirement
from gpusetup.resolve.api import resolve
from gpusetup.resolve.lookup import lookup

MACHINES = list(
    product(("h100", "v100", "rtx 5090"), (None, "535.154.05", "580.95.05"), (None, "rhel8"), (False, True))
)


@pytest.mark.parametrize("name", PACKAGES)
def test_what_matrix_marks_is_what_resolve_gives(name):
    answered, known = 0, matrix()
    for gpu, driver, system, builds in MACHINES:
        request = Request(
            requirements=(Requirement(component=name),), gpus=(gpu,), driver=driver, os=system, allow_builds=builds
        )
        try:
            answer = resolve(request, known)
            assert answer.stack.torch is None or "installs no CUDA libraries" not in " ".join(answer.warnings)
            part = answer.stack.part(name)
            given = part.version
            release = next(item for item in known.package(name).releases if item.version == given)
            assert {*part.extras} <= {*release.extras}
            assert gpu != "v100" or "13" not in map(major_of_extra, part.extras)
        except NoStackError:
            given = None
        try:
            first = lookup(request, known)[0]
        except NoStackError:
            first = {}
        marked = first[name] if first.get("chosen") else None
        assert marked == given, (gpu, driver, system, builds)
        if given is None and first:
            assert first["kind"] == "source", "only what has to be built is listed and not taken"
            assert not builds
        answered += given is not None
    assert answered, "nothing was tried"
