"""What is inside a stand-in package: files, links and maintainer scripts, the same for apt and dnf."""

import json
from dataclasses import dataclass, field

from tests.lab.places import SOURCE
from tests.lab.repository.catalog import Package
from tests.lab.repository.elf import module

STAND_IN = SOURCE / "repository" / "stand_in"
FAULTS = "/var/lib/gpusetup-lab/faults"
RELOAD = "[ -d /run/systemd/system ] && systemctl daemon-reload || true\n"
CUDA_OF = {
    "535": "12.2", "550": "12.4", "570": "12.8", "580": "13.0", "590": "13.1", "595": "13.2", "610": "13.3", "615": "13.4",
}  # fmt: skip


@dataclass(kw_only=True)
class Content:
    libdir: str
    files: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    after_install: str = ""
    before_removal: str = ""

    def add(self, path: str, text: str | bytes, mode: int = 0o644) -> None:
        self.files[path] = (mode, text.encode() if isinstance(text, str) else text)

    def copy(self, name: str, path: str, mode: int = 0o644, **words: str) -> None:
        text = (STAND_IN / name).read_text()
        for key, value in words.items():
            text = text.replace(f"@{key.upper()}@", value)
        self.add(path, text, mode)

    def library(self, name: str, version: str, folder: str | None = None) -> None:
        """A shared library's file name and links; the probe and people read the name, nobody can load it."""
        place = folder or self.libdir
        self.add(f"{place}/{name}.so.{version}", f"lab stand-in for {name} {version}\n")
        self.links[f"{place}/{name}.so.{version.partition('.')[0]}"] = f"{name}.so.{version}"


def content_of(package: Package, libdir: str) -> Content:
    content = Content(libdir=libdir)
    if package.content:
        globals()[f"_{package.content}"](package, content)
    document = f"usr/share/doc/{package.name}/README.lab"
    content.add(document, f"Stand-in for tests: the name and version are {package.name}'s, nothing else is.\n")
    # Every package can be told to fail or to take long: Host.break_packages.
    hook = (
        f"fault={FAULTS}/{package.name}\n"
        'if [ -f "$fault" ]; then\n  read -r what seconds <"$fault"\n'
        '  case "$what" in\n    sleep) sleep "$seconds" ;;\n'
        f'    fail) echo "{package.name}: the lab asked for this failure" >&2; exit 1 ;;\n  esac\nfi\n'
    )
    content.after_install = hook + content.after_install
    return content


def _libraries(package: Package, content: Content) -> None:
    for name in ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler"):
        content.add(f"{content.libdir}/{name}.so.{package.driver}", f"lab stand-in for {name} {package.driver}\n")
        content.links[f"{content.libdir}/{name}.so.1"] = f"{name}.so.{package.driver}"


def _smi(package: Package, content: Content) -> None:
    cuda = CUDA_OF[package.driver.partition(".")[0]]
    content.copy("nvidia-smi", "usr/bin/nvidia-smi", 0o755, version=package.driver, cuda=cuda)


def _persistenced(package: Package, content: Content) -> None:
    content.copy("nvidia-persistenced", "usr/bin/nvidia-persistenced", 0o755)
    content.copy("nvidia-persistenced.service", "usr/lib/systemd/system/nvidia-persistenced.service")
    content.after_install = RELOAD


def _fabricmanager(package: Package, content: Content) -> None:
    content.copy("nv-fabricmanager", "usr/bin/nv-fabricmanager", 0o755, version=package.driver)
    content.copy("nvidia-fabricmanager.service", "usr/lib/systemd/system/nvidia-fabricmanager.service")
    content.add("usr/share/nvidia/nvswitch/fabricmanager.cfg", "LOG_LEVEL=4\nFABRIC_MODE=0\n")
    content.after_install = RELOAD
    content.before_removal = "[ -d /run/systemd/system ] && systemctl disable --now nvidia-fabricmanager || true\n"


def _dcgm(package: Package, content: Content) -> None:
    content.copy("nv-hostengine", "usr/bin/nv-hostengine", 0o755, version=package.version)
    content.copy("nvidia-dcgm.service", "usr/lib/systemd/system/nvidia-dcgm.service")
    content.after_install = RELOAD
    content.before_removal = "[ -d /run/systemd/system ] && systemctl disable --now nvidia-dcgm || true\n"


def _dcgm_exporter(package: Package, content: Content) -> None:
    """It starts by itself, as packages on Debian do: the careful case."""
    content.copy("dcgm-exporter", "usr/bin/dcgm-exporter", 0o755)
    content.copy("nvidia-dcgm-exporter.service", "usr/lib/systemd/system/nvidia-dcgm-exporter.service")
    content.add("etc/dcgm-exporter/default-counters.csv", "DCGM_FI_DEV_GPU_TEMP, gauge, of the GPU\n")
    content.after_install = (
        "if [ -d /run/systemd/system ]; then\n  systemctl daemon-reload\n"
        "  systemctl enable --now nvidia-dcgm-exporter || true\nfi\n"
    )
    content.before_removal = "[ -d /run/systemd/system ] && systemctl disable --now nvidia-dcgm-exporter || true\n"


def _modprobe_conf(package: Package, content: Content) -> None:
    content.add(
        "usr/lib/modprobe.d/nvidia-graphics-drivers.conf",
        "blacklist nouveau\nblacklist lbm-nouveau\nalias nouveau off\nalias lbm-nouveau off\n",
    )


def _suse_common(package: Package, content: Content) -> None:
    _modprobe_conf(package, content)
    content.after_install = "/usr/sbin/pbl --add-option rd.driver.blacklist=nouveau --config\n"
    content.before_removal = '[ "$1" = 1 ] || /usr/sbin/pbl --del-option rd.driver.blacklist=nouveau --config\n'


def _dkms(package: Package, content: Content) -> None:
    name = package.extra["dkms_name"]
    folder = f"usr/src/{name}-{package.driver}"
    licence = "Dual MIT/GPL" if package.extra["open"] else "NVIDIA"
    for source in ("nvidia", "nvidia-uvm"):
        content.copy("nvidia.c", f"{folder}/{source}.c", version=package.driver, license=licence)
    content.add(f"{folder}/Makefile", "obj-m := nvidia.o nvidia-uvm.o\n")
    content.copy("dkms.conf", f"{folder}/dkms.conf", dkms_name=name, version=package.driver)
    content.copy("pre-build", f"{folder}/pre-build", 0o755)
    if package.extra.get("rpm"):
        # As the packages for EL and SUSE: for the kernel whose development files are there.
        content.after_install = (
            f"dkms add -m {name} -v {package.driver} -q --rpm_safe_upgrade || :\n"
            'for tree in /lib/modules/*; do\n  [ -e "$tree/build/Makefile" ] || continue\n'
            f'  dkms build -m {name} -v {package.driver} -k "$(basename "$tree")" -q || :\n'
            f'  dkms install -m {name} -v {package.driver} -k "$(basename "$tree")" -q --force || :\ndone\n'
        )  # fmt: skip
        content.before_removal = f"dkms remove -m {name} -v {package.driver} -q --all --rpm_safe_upgrade || :\n"
    else:
        content.after_install = f"/usr/lib/dkms/common.postinst {name} {package.driver} '' {package.arch} \"$2\"\n"
        content.before_removal = f"dkms remove -m {name} -v {package.driver} --all || true\n"


def _prebuilt_module(package: Package, content: Content) -> None:
    """Signed modules that come without a compiler; here a module's description alone, which is what tools read."""
    kernel = package.extra["kernel"]
    licence = "Dual MIT/GPL" if package.extra["open"] else "NVIDIA"
    branch = package.extra.get("branch")
    place = f"kernel/nvidia-{branch}srv{package.extra['open']}" if branch else package.extra["place"]
    folder = f"usr/lib/modules/{kernel}/{place}"
    for name in ("nvidia", "nvidia-uvm"):
        told = {"version": package.driver, "license": licence, "vermagic": f"{kernel} SMP mod_unload", "name": name}
        signer = package.extra.get("signer", "Lab stand-in for Canonical")
        content.add(f"{folder}/{name}.ko", module({**told, "signer": signer}))
    content.after_install = f"depmod {kernel}\n"


def _headers(package: Package, content: Content) -> None:
    place = f"usr/share/gpusetup-lab/headers-{package.extra['kernel']}"
    content.add(place, "the tree itself is part of the host's root\n")


def _kernel_devel(package: Package, content: Content) -> None:
    kernel = package.extra["kernel"]
    content.after_install = (
        "mkdir -p /usr/src/kernels\n"
        f'for tree in /usr/src/linux-headers-*-amd64; do ln -sfn "$tree" /usr/src/kernels/{kernel}; done\n'
        f"ln -sfn /usr/src/kernels/{kernel} /lib/modules/{kernel}/build\n"
    )  # fmt: skip
    content.before_removal = f"rm -f /usr/src/kernels/{kernel} /lib/modules/{kernel}/build\n"


def _suse_kernel_devel(package: Package, content: Content) -> None:
    kernel = package.extra["kernel"]
    place = f"/usr/src/linux-{kernel.removesuffix('-default')}-obj/x86_64"
    content.after_install = (
        f"mkdir -p {place}\n"
        f'for tree in /usr/src/linux-headers-*-amd64; do ln -sfn "$tree" {place}/default; done\n'
        f"ln -sfn {place}/default /lib/modules/{kernel}/build\n"
    )
    content.before_removal = f"rm -rf {place.rpartition('/')[0]} /lib/modules/{kernel}/build\n"


def _pinning(package: Package, content: Content) -> None:
    pin = package.extra["pin"]
    version = f"{pin}.*" if pin.isdigit() else f"{pin}-*"
    names = "nvidia-open nvidia-driver* nvidia-dkms* nvidia-headless* nvidia-kernel* libnvidia-* nvidia-utils nvidia-compute-utils cuda-drivers nvidia-fabricmanager nvidia-imex libnvsdm libcuda1 nvidia-smi nvidia-persistenced"
    content.add(
        f"etc/apt/preferences.d/{package.name}", f"Package: {names}\nPin: version {version}\nPin-Priority: 1001\n"
    )


def _cudart(package: Package, content: Content) -> None:
    release, number = package.extra["cuda"], package.extra["full"].rpartition("-")[0]
    root = f"usr/local/cuda-{release}"
    content.library("libcudart", number, f"{root}/lib64")
    whole = {"name": "CUDA SDK", "version": package.extra["toolkit"].rpartition("-")[0]}
    content.add(f"{root}/version.json", json.dumps({"cuda": whole, "cuda_cudart": {"version": number}}) + "\n")
    content.after_install = f"update-alternatives --install /usr/local/cuda cuda /{root} {release.replace('.', '')}\n"
    content.before_removal = f"update-alternatives --remove cuda /{root}\n"


def _cublas(package: Package, content: Content) -> None:
    content.library("libcublas", package.version.rpartition("-")[0], f"usr/local/cuda-{package.extra['cuda']}/lib64")


def _nvcc(package: Package, content: Content) -> None:
    release, number = package.extra["cuda"], package.extra["full"].rpartition("-")[0]
    content.add(
        f"usr/local/cuda-{release}/bin/nvcc",
        f'#!/bin/sh\necho "nvcc: NVIDIA (R) Cuda compiler driver (lab stand-in)"\necho "Cuda compilation tools, release {release}, V{number}"\n',
        0o755,
    )


def _nccl(package: Package, content: Content) -> None:
    content.library("libnccl", package.extra["nccl"])


def _cudnn(package: Package, content: Content) -> None:
    content.library("libcudnn", package.extra["cudnn"].rpartition(".")[0])


def _container_toolkit(package: Package, content: Content) -> None:
    content.copy("nvidia-ctk", "usr/bin/nvidia-ctk", 0o755, version=package.version.rpartition("-")[0])
    content.add("usr/bin/nvidia-container-runtime", '#!/bin/sh\nexec runc "$@"\n', 0o755)
    units = ("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service")
    for unit in units:
        content.copy(unit, f"usr/lib/systemd/system/{unit}")
    running = "[ -d /run/systemd/system ] || exit 0\n"
    content.after_install = f"{running}systemctl daemon-reload\nsystemctl enable --now {' '.join(units)} || true\n"
    content.before_removal = f"{running}systemctl disable --now {' '.join(units)} || true\n"


def _virtualgl(_package: Package, content: Content) -> None:
    content.copy("vglrun", "opt/VirtualGL/bin/vglrun", 0o755)
    content.links["usr/bin/vglrun"] = "/opt/VirtualGL/bin/vglrun"


def _versionlock(_package: Package, content: Content) -> None:
    """dnf 4's plugin that holds packages: an EL-like host has its files laid aside (dressing/enterprise-linux.sh)."""
    plugin = "/usr/lib/python3/dist-packages/dnf-plugins/versionlock.py"
    content.after_install = "cp -a /usr/share/gpusetup-lab/versionlock/. /\n"
    content.before_removal = f"rm -f {plugin} /etc/dnf/plugins/versionlock.conf /etc/dnf/plugins/versionlock.list\n"


def _python(package: Package, content: Content) -> None:
    """The root has one Python, Debian's: under another package's name it stands in for a newer one."""
    content.links[f"usr/bin/{package.name}"] = "python3.11"


def _dkms_tool(package: Package, content: Content) -> None:
    """DKMS itself, as EPEL carries it: the program is the one of Debian's package."""
    from tests.lab.roots import ROOTS

    root = ROOTS["debian12"].ready()
    content.add("usr/sbin/dkms", (root / "usr/sbin/dkms").read_text(), 0o755)
    content.add("etc/dkms/framework.conf", (root / "etc/dkms/framework.conf").read_text())
    content.after_install = "mkdir -p /var/lib/dkms\n"
