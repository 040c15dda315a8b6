"""rpm packages and signed repositories, with module streams, by Debian's rpm and createrepo_c."""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.lab.process import run
from tests.lab.repository.catalog import Package
from tests.lab.repository.contents import content_of
from tests.lab.repository.keys import Keys

LIBDIR = "usr/lib64"


def build(packages: Iterable[Package], folder: Path, scratch: Path, vendor: str) -> None:
    """One rpmbuild for many: each is a subpackage, and a specification may hold a name only once."""
    batches: list[dict[str, Package]] = []
    for package in packages:
        # Packages that conflict have files of the same name, which one build tree cannot hold.
        free = next((batch for batch in batches if not {package.name, *package.conflicts} & set(batch)), None)
        if free is None:
            batches.append(free := {})
        free[package.name] = package
    for batch in batches:
        _build_batch(batch.values(), folder, scratch, vendor)


def _build_batch(packages: Iterable[Package], folder: Path, scratch: Path, vendor: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tree = scratch / "rpm-tree"
    spec = [
        "Name: lab-stand-ins", "Version: 1", "Release: 1", f"Vendor: {vendor}", "Summary: lab stand-ins",
        "License: none", "AutoReqProv: no", "%description", "x", "",
    ]  # fmt: skip
    install, files = ["%install"], []
    for number, package in enumerate(packages):
        content = content_of(package, LIBDIR)
        epoch, _, rest = package.version.rpartition(":")
        version, _, release = rest.rpartition("-")
        spec += [
            f"%package -n {package.name}", f"Version: {version}", f"Release: {release}",
            f"Summary: lab stand-in for {package.name}",
        ]  # fmt: skip
        spec += [f"Epoch: {epoch}"] if epoch else []
        spec += [f"Requires: {one}" for one in package.depends]
        spec += [f"Provides: {one}" for one in package.provides] + [f"Conflicts: {one}" for one in package.conflicts]
        spec += ["AutoReqProv: no", f"%description -n {package.name}", "x", ""]
        if content.after_install:
            spec += [f"%post -n {package.name}", content.after_install]
        if content.before_removal:
            # An upgrade runs this too, with 1: the new package's files are already there then.
            spec += [f"%preun -n {package.name}", 'if [ "$1" = 0 ] || [ "$1" = 1 ]; then', content.before_removal, "fi"]
        own = tree / str(number)
        for path, (mode, data) in content.files.items():
            (own / path).parent.mkdir(parents=True, exist_ok=True)
            (own / path).write_bytes(data)
            (own / path).chmod(mode)
        for path, target in content.links.items():
            (own / path).parent.mkdir(parents=True, exist_ok=True)
            (own / path).symlink_to(target)
        install.append(f"cp -a {own}/. %{{buildroot}}")
        files += [f"%files -n {package.name}", *(f"/{path}" for path in (*content.files, *content.links)), ""]
    (scratch / "lab.spec").write_text("\n".join([*spec, *install, *files]) + "\n")
    defines = {
        "_topdir": scratch / "rpmbuild", "_rpmdir": scratch / "rpms", "_build_id_links": "none", "_binary_payload": "w1.gzdio",
        "__os_install_post": "%{nil}", "_rpmfilename": "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm", "__spec_install_pre": "mkdir -p %{buildroot}",
    }  # fmt: skip
    options = [word for key, value in defines.items() for word in ("--define", f"{key} {value}")]
    run(["rpmbuild", "-bb", "--quiet", "--nodeps", "--target", "x86_64", *options, scratch / "lab.spec"], timeout=300)
    for built in (scratch / "rpms").glob("*.rpm"):
        built.rename(folder / built.name)
    shutil.rmtree(tree, ignore_errors=True)


def sign(folder: Path, keys: Keys) -> None:
    defines = [
        "--define", f"_gpg_name {keys.fingerprint()}", "--define", f"_gpg_path {keys.home}", "--define",
        "__gpg /usr/bin/gpg",
    ]  # fmt: skip
    run(["rpmsign", *defines, "--addsign", *sorted(folder.glob("*.rpm"))], timeout=300)


def index(folder: Path, keys: Keys, streams: Mapping[str, Iterable[Package]] | None = None) -> None:
    run(["createrepo_c", "--quiet", folder])
    if streams:
        (folder / "modules.yaml").write_text(_modules(streams))
        run(["modifyrepo_c", "--mdtype=modules", folder / "modules.yaml", folder / "repodata"])
        (folder / "modules.yaml").unlink()
    metadata = folder / "repodata" / "repomd.xml"
    metadata.with_name("repomd.xml.asc").write_text(keys.detached(metadata))
    metadata.with_name("repomd.xml.asc.wrong-key").write_text(keys.detached(metadata, wrong=True))


def _modules(streams: Mapping[str, Iterable[Package]]) -> str:
    documents = []
    for number, (stream, packages) in enumerate(streams.items()):
        names = [
            f"{package.name}-{package.version if ':' in package.version else '0:' + package.version}.x86_64"
            for package in packages
        ]
        kmod = "nvidia-open" if "open" in stream else "cuda-drivers"
        documents.append(
            "---\ndocument: modulemd\nversion: 2\ndata:\n  name: nvidia-driver\n"
            f"  stream: '{stream}'\n  version: 2026112100{number:02}\n  context: '{number:08x}'\n  arch: x86_64\n"
            "  summary: NVIDIA driver (lab stand-in)\n  description: NVIDIA driver (lab stand-in)\n  license: {module: [MIT]}\n"
            f"  profiles:\n    default: {{rpms: [{kmod}]}}\n    fm: {{rpms: [{kmod}, nvidia-fabricmanager]}}\n    ks: {{rpms: [{kmod}]}}\n"
            "  artifacts:\n    rpms:\n" + "".join(f"    - {name}\n" for name in names) + "...\n"
        )
    documents.append(
        "---\ndocument: modulemd-defaults\nversion: 1\ndata:\n  module: nvidia-driver\n  stream: open-dkms\n"
        "  profiles:\n    open-dkms: [default]\n...\n"
    )
    return "".join(documents)
