"""The doctor, asked as on the command line."""

import io
import sys

import pytest

from gpusetup.cli.main import main


@pytest.fixture
def doctor(capsys, monkeypatch):
    """Ask the doctor, with a text on its standard input: doctor(0, "-", given="Xid 79")."""

    def asked(code, *arguments, given=""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        found, told = main(["doctor", *arguments]), capsys.readouterr()
        assert found == code, told
        return told.out + told.err

    return asked
