"""People's own matrix data, bent at a random place: taken, or refused with the file's name, never a traceback."""

import json
import os
import tempfile
from pathlib import Path
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from gpusetup.matrix.load import NAMES, Matrix
from tests.property.test_command_line import run

SHIPPED = {name: json.loads(Path(Matrix().path(name)).read_bytes()) for name in NAMES}
COMMANDS = (
    ("resolve", "torch", "cupy", "cudnn", "nccl", "--gpu", "h100", "--os", "ubuntu24.04", "--format", "json"),
    ("resolve", "tensorflow", "jax", "--format", "json"),
    ("matrix", "--driver", "580.178.04", "--format", "json"),
    ("matrix", "torch", "--gpu", "v100", "--format", "csv"),
    ("resolve", "cuda==99.*", "--gpu", "b200", "--forward", "--format", "json"),
    ("why", "driver", "--gpu", "t4", "--format", "json"),
)
ODD = (
    "", "12.4\n", "1.", "999.1", "2026-99-99", "2026-13-01", "unknown", "cu999", "9.0", "3.12t", [], {}, ["9.0"], ["x"],
)  # fmt: skip
garbage = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 10**20), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=6), st.sampled_from(ODD),
)  # fmt: skip


def places(document, path=()):
    """Return the way to every value of a document."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield (*path, key)
            yield from places(value, (*path, key))
    elif isinstance(document, list):
        for index, value in enumerate(document):
            yield (*path, index)
            yield from places(value, (*path, index))


PLACES = {name: list(places(document)) for name, document in SHIPPED.items()}


@st.composite
def bent(draw):
    name = draw(st.sampled_from(sorted(SHIPPED)))
    document = json.loads(json.dumps(SHIPPED[name]))
    *way, last = draw(st.sampled_from(PLACES[name]))
    holder = document
    for step in way:
        holder = holder[step]
    if draw(st.booleans()):
        holder[last] = draw(garbage)
    elif isinstance(holder, dict) and draw(st.booleans()):
        holder["unheard_of"] = 1
    else:
        del holder[last]
    return name, document


@given(bent(), st.sampled_from(COMMANDS))
def test_a_bent_overlay_is_taken_or_refused_in_words(case, argv):
    name, document = case
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, {"GPUSETUP_MATRIX": folder}):
        (Path(folder) / f"{name}.json").write_text(json.dumps(document))
        code, out, err = run(list(argv))
    assert code in (0, 3, 4), err
    if code == 3 and "json" in argv:
        assert f"{name}.json" in json.loads(out)["error"]["path"]
