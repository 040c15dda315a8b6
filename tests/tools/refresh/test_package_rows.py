"""The rows of Python packages against an index: what differs is told, and nothing is written that was not read whole."""

import hashlib
import json

import pytest
from packaging.version import Version

from gpusetup.model.record import CANDIDATE
from tests.replay import CAPTURED, JSON, metadata, sdist, wheel
from tools.collect.__main__ import DATA, main
from tools.refresh.known_packages import PACKAGES

SEEN = "2026-01-01"
NOTE = f"{CANDIDATE} {SEEN}; nobody has tried it"
VLLM = "vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl"


@pytest.fixture
def data(tmp_path):
    """The shipped rows of two packages, of which the test has releases enough."""
    for name, keep in (("vllm", ("0.33.0", "0.32.0")), ("bitsandbytes", ("0.50.2",)), ("deepspeed", ("0.19.8",))):
        document = json.loads((DATA / f"{name}.json").read_text())
        rows = [item for item in document["releases"] if item["version"] in keep]
        document["releases"] = [item | {"note": NOTE} for item in rows]
        document["sources"]["index"]["seen"], document["date"] = SEEN, "2026-11-22"
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    return tmp_path


def captured(site):
    """Serve what PyPI says of vLLM 0.32 and 0.33; its wheels hold the metadata and the one module that is looked at."""
    listed = json.loads((CAPTURED / "vllm.json").read_text())["files"]
    text = (CAPTURED / "vllm-0.33.0.metadata").read_text()
    for entry in listed:
        name = entry["filename"]
        version = name.split("-")[1].removesuffix(".tar.gz")
        own = text.replace("0.33.0", version)
        if version == "0.32.0":
            for new, old in (
                ("transformers<5.21.0", "transformers<5.20.0"), ("torch==2.14.0", "torch==2.13.0"),
                ("torchvision==0.29.0", "torchvision==0.28.0"), ("0.7.2.post1", "0.7.0.post1"),
                ("nvidia-cudnn-frontend>=1.31.0", "nvidia-cudnn-frontend>=1.19.1"),
            ):  # fmt: skip
                assert new in own
                own = own.replace(new, old)
        members: dict[str, str | bytes] = {
            f"vllm-{version}.dist-info/METADATA": own, "vllm/envs.py": 'VLLM_MAIN_CUDA_VERSION: str = "13.0"\n',
        }  # fmt: skip
        entry["url"] = site.file(name, wheel(members))["url"]
    site.package("vllm", *listed)
    return listed


def collect(site, data, *words):
    return main([*words, "--index", site.index], data)


def row(data, name, version):
    releases = json.loads((data / f"{name}.json").read_text())["releases"]
    return next(item for item in releases if item["version"] == version)


@pytest.mark.parametrize("ranges", [True, False])
def test_rows_that_say_what_the_index_says_do_not_differ(site, data, capsys, ranges):
    captured(site)
    site.ranges = ranges
    assert collect(site, data, "vllm") == 0
    told = capsys.readouterr()
    assert "vllm: 2 rows, nothing differs" in told.out
    assert told.err == ""


def test_a_release_and_a_changed_pin_are_told_and_written_only_when_asked(site, data, capsys):
    document = json.loads((data / "vllm.json").read_text())
    document["releases"] = [item for item in document["releases"] if item["version"] == "0.32.0"]
    document["releases"][0]["requires"]["torch"] = "==2.12.0"
    before = json.dumps(document)
    (data / "vllm.json").write_text(before)
    listed = captured(site)
    assert collect(site, data, "vllm") == 9
    told = capsys.readouterr().out
    assert "~ 0.32.0: requires torch: ==2.12.0 → ==2.13.0" in told
    (line,) = [line for line in told.splitlines() if line.startswith("  + 0.33.0")]
    for words in ("2026-11-02", "glibc 2.28 on aarch64", "Python on x86_64: 3.11 3.12 3.13 3.14;", "CUDA 13.0",
                  "torch ==2.14.0", "(read: range)"):  # fmt: skip
        assert words in line
    assert (data / "vllm.json").read_text() == before

    listed[0]["yanked"] = listed[1]["yanked"] = listed[2]["yanked"] = "broken"
    site.package("vllm", *listed)
    assert collect(site, data, "vllm", "--write") == 0
    assert "~ 0.32.0: yanked: none → true" in capsys.readouterr().out
    new = row(data, "vllm", "0.33.0")
    known = row(DATA, "vllm", "0.33.0")
    del known["compilers"]  # of a resolver's run, not of the index
    assert new == known
    assert row(data, "vllm", "0.32.0")["yanked"] is True
    assert json.loads((data / "vllm.json").read_text())["sources"]["index"]["seen"] != SEEN


def test_a_sidecar_is_read_where_there_is_one_and_held_against_its_digest(site, data, capsys):
    text = metadata("bitsandbytes", "0.50.2", "Requires-Python: >=3.10", "Requires-Dist: torch<3,>=2.4")
    names = [f"bitsandbytes-0.50.2-py3-none-manylinux_2_24_{arch}.whl" for arch in ("x86_64", "aarch64")]
    digest = hashlib.sha256(text.encode()).hexdigest()
    told = {"requires-python": ">=3.10", "core-metadata": {"sha256": digest}, "upload-time": "2026-08-27T"}
    files = [site.file(name, b"no zip", text, **told) for name in names]
    site.package("bitsandbytes", *files)
    assert collect(site, data, "bitsandbytes") == 9
    assert capsys.readouterr().out.splitlines()[2:] == ["  ~ 0.50.2: read: range → pep658"]
    assert row(data, "bitsandbytes", "0.50.2")["cuda"][-1] == "13.2"

    for file in files:
        file["core-metadata"]["sha256"] = "0" * 64
    site.package("bitsandbytes", *files)
    assert collect(site, data, "bitsandbytes") == 6
    told = capsys.readouterr()
    assert "nothing differs" in told.out
    assert "another SHA-256 than the index says; its row stays as it is" in told.err


def test_what_a_wheel_holds_names_its_cuda(site, data, capsys):
    names = ["a/libbitsandbytes_cuda118.so", "a/libbitsandbytes_cuda130.so", "a/libbitsandbytes_cpu.so"]
    told = {"bitsandbytes-0.51.0.dist-info/METADATA": metadata("bitsandbytes", "0.51.0")}
    body = wheel({**dict.fromkeys(names, b"x"), **told})
    old = site.file("bitsandbytes-0.50.2-py3-none-manylinux_2_24_x86_64.whl", b"", metadata("bitsandbytes", "0.50.2"))
    site.package("bitsandbytes", old, site.file("bitsandbytes-0.51.0-py3-none-manylinux_2_24_x86_64.whl", body))
    assert collect(site, data, "bitsandbytes", "--write") == 0
    assert row(data, "bitsandbytes", "0.51.0")["cuda"] == ["11.8", "13.0"]
    assert row(data, "bitsandbytes", "0.51.0")["read"] == "range"


@pytest.mark.parametrize(
    ("lines", "requires"),
    [(("Requires-Dist: torch>=2.1",), {"torch": ">=2.1"}), (("Dynamic: requires-dist", "Requires-Dist: torch"), {"torch": "any"}), (("Dynamic: requires-dist",), None)],
    ids=["told", "told, though a build may change it", "left to its build"],
)  # fmt: skip
def test_a_source_archive_says_what_it_says(site, data, lines, requires):
    text = metadata("deepspeed", "0.19.9", *lines)
    old = site.file("deepspeed-0.19.8.tar.gz", sdist("deepspeed", "0.19.8", metadata("deepspeed", "0.19.8")))
    site.package("deepspeed", old, site.file("deepspeed-0.19.9.tar.gz", sdist("deepspeed", "0.19.9", text)))
    assert collect(site, data, "deepspeed", "--write") == 0
    new = row(data, "deepspeed", "0.19.9")
    assert new["kind"] == "source"
    assert new.get("requires") == requires
    assert (new["read"], "note" in new) == (("sdist PKG-INFO", False) if requires else ("file list only", True))


def page(site, kind, body):
    site.bodies["/simple/vllm/"] = (kind, body)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda site: site.cut.add("/simple/vllm/"), "cannot be read"),
        (lambda site: page(site, JSON, site.bodies["/simple/vllm/"][1][:500]), "no whole list of files"),
        (lambda site: page(site, "text/html", b"<html><body>Please log in</body></html>"), "is it a login page?"),
        (lambda site: page(site, "text/html", b"<html><body><a href='vllm-0.33.0.tar.gz'>vllm-0.33.0.tar.gz</a>"), "ends in its middle"),
        (lambda site: page(site, "application/pdf", b"%PDF"), "answered with application/pdf"),
        (lambda site: page(site, JSON, b'{"meta": {"api-version": "2.0"}, "files": []}'), "format 2.0"),
        (lambda site: page(site, JSON, b'{"meta": {"api-version": "1.0"}, "files": ["x"]}'), "'files' holds something else"),
        (lambda site: page(site, JSON, b'{"meta": {"api-version": "1.0"}, "files": []}'), "lists no release"),
        (lambda site: site.package("vllm", *[f for f in captured(site) if "0.33" not in f["filename"]]), "it is a copy that stood still"),
        (lambda site: site.bodies.pop("/simple/vllm/"), "answered 404"),
        (lambda site: site.status.update({"/simple/vllm/": [503] * 9}), "answered 503"),
    ],
    ids=["cut off", "cut off, without a length", "login page", "open page", "wrong type", "next format", "not files", "empty", "stale", "gone", "away"],
)  # fmt: skip
def test_an_index_that_is_wrong_changes_nothing(site, data, capsys, spoil, words):
    captured(site)
    spoil(site)
    before = {path: path.read_bytes() for path in data.iterdir()}
    assert collect(site, data, "vllm", "--write") == 6
    told = capsys.readouterr()
    assert words in told.err
    assert "its file stays as it is" in told.err
    assert {path: path.read_bytes() for path in data.iterdir()} == before


def test_one_bad_release_leaves_the_others(site, data, capsys):
    captured(site)
    site.bodies[f"/files/{VLLM}"] = ("application/zip", b"<html>")
    assert collect(site, data, "vllm", "--write") == 6
    assert f"! 0.33.0: {VLLM} is no wheel" in capsys.readouterr().err
    kept = row(DATA, "vllm", "0.33.0") | {"sources": [f"index-{SEEN}"], "note": NOTE}
    assert row(data, "vllm", "0.33.0") == kept
    assert row(data, "vllm", "0.32.0")["sources"] == ["index"]


def test_files_with_hostile_names_are_left_out(site, data, capsys):
    listed = captured(site)
    bad = [
        {"filename": "../../etc/vllm-0.34.0.tar.gz", "url": "x"},
        {"filename": "torch-9.9.9-py3-none-any.whl", "url": "x"},
        {"filename": "vllm-0.34.0\x1b[2J-py3-none-any.whl", "url": "x"},
        {"filename": "vllm-0.34.0-py3-none-any.whl", "url": "file:///etc/passwd"}, {"filename": None},
    ]  # fmt: skip
    site.package("vllm", *listed, *bad)
    assert collect(site, data, "vllm") == 6
    told = capsys.readouterr()
    assert told.err.count("! left out") == len(bad)
    assert "\x1b" not in told.err
    assert "0.34.0" not in told.out


def test_the_html_form_is_read_where_a_mirror_has_no_other(site, data, capsys):
    listed = captured(site)
    link = '<a href="{url}#sha256=00" data-requires-python="&lt;3.15,&gt;=3.11">{filename}</a>'
    links = "".join(link.format(**item) for item in listed)
    page(site, "text/html", f"<html><body>{links}</body></html>".encode())
    assert collect(site, data, "vllm") == 0
    assert "nothing differs" in capsys.readouterr().out


def test_a_release_that_is_gone_keeps_its_row(site, data, capsys):
    site.package("vllm", *[item for item in captured(site) if "0.32" not in item["filename"]])
    assert collect(site, data, "vllm", "--write") == 0
    assert "? 0.32.0: not on this index any more; its row stays as it is" in capsys.readouterr().out
    assert row(data, "vllm", "0.32.0")["sources"] == [f"index-{SEEN}"]
    assert json.loads((data / "vllm.json").read_text())["sources"][f"index-{SEEN}"]["seen"] == SEEN


@pytest.mark.parametrize(
    ("word", "words"),
    [("vlm", "near: vllm"), ("../vllm", "is no name of a package"), ("nonsense-xyz", "has no rows here")],
)
def test_a_name_that_is_none_of_ours(site, data, capsys, word, words):
    assert collect(site, data, word) == 3
    assert words in capsys.readouterr().err
    assert site.asked == []


def test_logins_are_not_told(site, data, capsys):
    assert main(["vllm", "--index", site.index.replace("//", "//me:secret@")], data) == 6
    told = capsys.readouterr()
    assert "secret" not in told.out + told.err


# --- torch ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def torch(site, tmp_path):
    """torch.json with one release, and an index that says the same of it."""
    document = json.loads((DATA.parent / "torch.json").read_text())
    document["releases"] = [row(DATA.parent, "torch", "2.9.1")]
    (tmp_path / "torch.json").write_text(json.dumps(document))
    (tmp_path / "frameworks").mkdir()
    pythons = document["releases"][0]["pythons"]
    return tmp_path / "frameworks", [torch_wheel(site, python, "2.9.1") for python in pythons]


def torch_wheel(site, python, version, **changed):
    known = row(DATA.parent, "torch", "2.9.1")
    pins = {name: text if text[0] in "<>~=[" else f"=={text}" for name, text in (known["pins"] | changed).items()}
    asked = [f"Requires-Dist: {name}{text}; platform_system == 'Linux'" for name, text in pins.items()]
    tag = "cp" + python.replace(".", "")
    name = f"torch-{version}-{tag.removesuffix('t')}-{tag}-manylinux_2_28_x86_64.whl"
    told = {"requires-python": ">=3.10", "upload-time": known["date"]}
    return site.file(name, b"", metadata("torch", version, *asked), **told)


def beside(site, name, version):
    """Serve a wheel that is released with torch 2.9.1."""
    text = metadata(name, version, "Requires-Dist: torch==2.9.1")
    return site.file(f"{name}-{version}-py3-none-any.whl", b"", text)


def test_torch_and_what_is_released_with_it_are_held_against_their_row(site, torch, capsys):
    data, files = torch
    vision = beside(site, "torchvision", "0.24.1")
    site.package("torch", *files)
    site.package("torchvision", vision)
    site.package("torchaudio", beside(site, "torchaudio", "2.9.1"))
    assert collect(site, data, "torchvision") == 0
    assert "torch: 1 rows, nothing differs" in capsys.readouterr().out

    changed = torch_wheel(site, "3.12", "2.9.1", **{"nvidia-cudnn-cu12": "9.99.0.1"})
    site.package("torch", changed, torch_wheel(site, "3.12", "2.99.0"))
    site.package("torchvision", vision, beside(site, "torchvision", "0.24.9"))
    site.package("torchaudio", beside(site, "torchaudio", "2.9.2"))
    before = (data.parent / "torch.json").read_bytes()
    assert collect(site, data, "torch", "--write") == 9
    told = capsys.readouterr().out
    assert "~ 2.9.1: pins nvidia-cudnn-cu12: 9.10.2.21 → 9.99.0.1" in told
    assert "~ 2.9.1: pythons: 3.10 3.11" in told
    assert "~ 2.9.1: torchaudio: 2.9.1 → 2.9.2" in told
    assert "~ 2.9.1: torchvision" not in told, "another release for the same torch is no contradiction"
    assert "+ 2.99.0: " in told
    assert (data.parent / "torch.json").read_bytes() == before


@pytest.mark.parametrize(("name", "about"), PACKAGES.items(), ids=list(PACKAGES))
def test_a_floor_on_record_is_one_that_the_next_release_gets_too(name, about, shipped):
    for release in shipped.package(name).releases:
        version = Version(release.version)
        rows = [row for row in about.get("cc_min", ()) if Version(row[0]) <= version <= Version(row[1] or "9999")]
        assert release.cc_min == next((row[2] for row in rows), None), release.version
        assert not rows or "documented" not in about or "documented" in release.sources
