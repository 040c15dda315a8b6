"""CSV that survives a cut, and the document of a moment."""

import csv
import io
import json
from contextlib import closing
from unittest.mock import Mock

import jsonschema
import msgspec
import pytest

from gpusetup.cli.export import schema_of
from gpusetup.errors import BadInputError, Exit
from gpusetup_fleet.cli.watch import _exit_of
from gpusetup_fleet.watch.documents import COLUMNS, CsvFile, document, rows

from .conftest import gpu, program

HEADER = ",".join(COLUMNS) + "\n"
ROW = ["x"] * len(COLUMNS)


@pytest.mark.parametrize("cut", [None, 0, 1, len(HEADER) - 1, len(HEADER), len(HEADER) + 5, -1])
def test_the_header_comes_once_and_what_a_power_cut_left_is_whole_again(tmp_path, cut):
    path = tmp_path / "gpus.csv"
    for _ in range(2):
        with closing(CsvFile(str(path))) as file:
            file.add([ROW])
    whole = path.read_text()
    assert whole == HEADER + (",".join(ROW) + "\n") * 2
    path.write_text(whole[:cut])
    with closing(CsvFile(str(path))) as file:
        file.add([ROW])
    text = path.read_text()
    lines = list(csv.reader(io.StringIO(text)))
    assert (text[-1], lines[0], lines[1:]) == ("\n", list(COLUMNS), [ROW] * (len(lines) - 1))
    assert len(lines) == 2 + whole[:cut].count("\n", len(HEADER))


def test_a_file_with_other_columns_or_another_writer_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "gpus.csv"
    path.write_text("timestamp, name\n1, H200\n")
    with pytest.raises(BadInputError, match="does not begin with the header"):
        CsvFile(str(path))
    assert path.read_text() == "timestamp, name\n1, H200\n"
    other = str(tmp_path / "other.csv")
    with closing(CsvFile(other)), pytest.raises(BadInputError, match="another `gpusetup watch`"):
        CsvFile(other)
    with pytest.raises(BadInputError, match="cannot write"):
        CsvFile(str(tmp_path / "no/such/folder.csv"))
    with pytest.raises(BadInputError, match="is not a file"):
        CsvFile("/dev/null")
    monkeypatch.setattr(
        "gpusetup_fleet.watch.documents.fcntl.flock", Mock(side_effect=OSError(37, "No locks available"))
    )
    with pytest.raises(BadInputError, match="cannot reserve"):
        CsvFile(other)


def test_a_full_disk_leaves_no_half_line(tmp_path, monkeypatch):
    path = tmp_path / "gpus.csv"
    with closing(CsvFile(str(path))) as file:
        file.add([ROW])
        before, calls = path.read_bytes(), []

        def write(descriptor, data):
            calls.append(data)
            if len(calls) > 1:
                raise OSError(28, "No space left on device")
            return real(descriptor, data[:7])

        real = __import__("os").write
        monkeypatch.setattr("gpusetup_fleet.watch.documents.os.write", write)
        with pytest.raises(OSError, match="No space"):
            file.add([ROW, ROW])
    assert path.read_bytes() == before


def test_rows_have_a_look_s_figures_or_why_there_are_none(link, clock):
    def told(host, now, *columns):
        return [[dict(zip(COLUMNS, row, strict=True))[name] for name in columns] for row in rows(host, now)]

    well = link("a", gpu(0, processes=(program(), program(pid=2, user="bob"))), gpu(1, error="GPU is lost"))
    one, two = told(well, 0.0, "time", "state", "gpu", "memory_used_mib", "programs", "users", "error")
    assert one[:6] == ["2026-11-23T09:42:30.000Z", "live", 0, 102400, 2, "anna bob"]
    assert two[6] == "GPU is lost"
    clock.now += 60
    well.drop("Host key verification failed.")
    down = ["2026-11-23T09:43:19.000Z", "down", "", "Host key verification failed."]
    assert told(well, 1795426999.0, "time", "state", "gpu", "error") == [down]


def test_the_document_has_every_host(link, clock):
    well, hung = link("a", gpu(0)), link("b", gpu(0))
    clock.now += 20
    well.heard = well.seen = clock.now
    hung.take(b'{"watch":1,"time":1.0,"stuck":20.0,"in":"nvmlInit_v2"}\n')
    links = [well, hung, link("c", error="no driver")]
    told = json.loads(msgspec.json.encode(document(links, links, 1795426950.0)))
    jsonschema.validate(told, schema_of("watch"))
    assert (told["schema"], told["ok"], told["time"]) == ("gpusetup/watch/1", False, "2026-11-23T09:42:30.000Z")
    assert told["hosts"]["a"]["gpus"][0]["utilization"] == 90
    assert told["hosts"]["b"]["stuck"] == {"seconds": 20.0, "asked": "nvmlInit_v2"}
    assert told["hosts"]["b"]["age"] == 20.0
    assert told["hosts"]["c"]["error"] == "no driver"
    for one in (*links, link("d")):
        assert document([one], [], 1.0).ok == (_exit_of(one) is Exit.DONE), one.state
