"""What a host gets before its first boot: identity, keys, another system's name, package sources, its simulated machine."""

import shutil
from pathlib import Path

from tests.lab import captures, mirror, network
from tests.lab.flavours import FLAVOURS
from tests.lab.places import SIMULATED_ROOT, SOURCE, SSH_KEY, locked
from tests.lab.process import run
from tests.lab.repository import build, catalog_rpm, catalog_suse
from tests.lab.roots import ROOTS
from tests.lab.spec import HostSpec

USERS = {"root": "root", "admin": "home/admin", "ops": "home/ops", "guest": "home/guest"}
BOOT_TOOLS = {"rocky": "grubby", "suse": "pbl"}
CA_BUNDLE = "etc/ssl/certs/ca-certificates.crt"


def dress(root: Path, spec: HostSpec) -> None:
    flavour = FLAVOURS[spec.flavour]
    (root / "etc/hostname").write_text(spec.name + "\n")
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {spec.name}\n")
    _keys(root)
    if flavour.os_release:
        text = "".join(f'{key}="{value}"\n' for key, value in flavour.os_release.items())
        (root / "etc/os-release").unlink(missing_ok=True)  # a link into usr/lib
        (root / "etc/os-release").write_text(text)
        (root / "usr/lib/os-release").write_text(text)
    for path, text in flavour.files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for path in flavour.absent:
        (root / path).unlink(missing_ok=True)
    if flavour.kernel:
        _rename_kernel(root, flavour.kernel)
    _debian_sources(root, spec)
    if flavour.archive == "ubuntu":
        _ubuntu_sources(root, flavour.suite)
    elif flavour.archive == "rocky":
        _rocky_sources(root)
    elif flavour.archive == "suse":
        _suse_sources(root)
    _boot_tools(root, BOOT_TOOLS.get(flavour.archive, "update-grub"))
    machine = captures.MACHINES[spec.machine]
    captures.write(machine, root / SIMULATED_ROOT.lstrip("/"))
    if machine.secure_boot:
        run(["install", SOURCE / "dressing" / "mokutil", root / "usr/bin"])


def ssh_key() -> None:
    """The key that opens every lab host, made once."""
    with locked("ssh-key"):
        if not SSH_KEY.exists():
            SSH_KEY.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gpusetup-lab", "-f", SSH_KEY])


def _keys(root: Path) -> None:
    ssh_key()
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab-host", "-f", root / "etc/ssh/ssh_host_ed25519_key"])
    for user, home in USERS.items():
        folder = root / home / ".ssh"
        folder.mkdir(mode=0o700, exist_ok=True)
        shutil.copy(SSH_KEY.with_suffix(".pub"), folder / "authorized_keys")
        if user != "root":
            owner = (root / home).stat()
            for path in (folder, folder / "authorized_keys"):
                shutil.chown(path, owner.st_uid, owner.st_gid)


def _boot_tools(root: Path, tool: str) -> None:
    """GRUB's own tools cannot run in a container; and somebody must do what the simulated kernel would at boot."""
    files = {
        "simulated-boot": ("usr/local/lib/gpusetup-lab/simulated-boot", 0o755),
        "simulated-boot.service": ("etc/systemd/system/gpusetup-lab-simulated-boot.service", 0o644),
        "default-grub": ("etc/default/grub", 0o644), tool: (f"usr/sbin/{tool}", 0o755),
    }  # fmt: skip
    for name, (place, mode) in files.items():
        # By a process of its own: a program that this one writes is "busy" while a process that another thread starts has it open.
        run(["install", "-D", f"--mode={mode:o}", SOURCE / "dressing" / name, root / place])
    wanted = root / "etc/systemd/system/sysinit.target.wants"
    wanted.mkdir(exist_ok=True)
    (wanted / "gpusetup-lab-simulated-boot.service").symlink_to("../gpusetup-lab-simulated-boot.service")
    if tool == "update-grub":
        (root / "boot/grub").mkdir(parents=True, exist_ok=True)
        run(["chroot", root, "update-grub"])
        (root / "etc/initramfs-tools/conf.d/lab").write_text("COMPRESSLEVEL=1\n")  # a third of what an initramfs costs


def _rename_kernel(root: Path, name: str) -> None:
    """Debian's kernel under another system's kernel name: what is built for it is built against Debian's headers."""
    tree = next(path for path in (root / "usr/lib/modules").iterdir() if path.is_dir())
    old = tree.name
    shutil.copytree(tree, tree.with_name(name), symlinks=True)
    shutil.rmtree(tree)
    for file in ("vmlinuz", "initrd.img", "config", "System.map"):
        shutil.move(root / f"boot/{file}-{old}", root / f"boot/{file}-{name}")
    known = root / "var/lib/initramfs-tools"
    if (known / old).exists():
        shutil.move(known / old, known / name)


def _ubuntu_sources(root: Path, suite: str) -> None:
    repositories = build.ready()
    (root / "usr/share/keyrings/ubuntu-archive-keyring.asc").write_text(repositories.armored)
    (root / "etc/apt/sources.list.d").mkdir(exist_ok=True)
    (root / "etc/apt/sources.list.d/ubuntu.sources").write_text(
        f"Types: deb\nURIs: {repositories.ubuntu}\nSuites: {suite}\nComponents: restricted\n"
        "Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.asc\n"
    )


def _rocky_sources(root: Path) -> None:
    repositories = build.ready()
    key = "etc/pki/rpm-gpg/RPM-GPG-KEY-Rocky-9"
    (root / key).parent.mkdir(parents=True, exist_ok=True)
    (root / key).write_text(repositories.armored)
    (root / "etc/yum.repos.d").mkdir(exist_ok=True)
    for name, enabled in (("baseos", 1), ("appstream", 1), ("crb", 0)):
        (root / f"etc/yum.repos.d/rocky-{name}.repo").write_text(
            f"[{name}]\nname=Rocky Linux 9 - {name} (lab stand-in)\nbaseurl={repositories.rocky}/{name}\n"
            f"gpgcheck=1\nenabled={enabled}\ngpgkey=file:///{key}\n"
        )
    (root / "etc/dnf/dnf.conf").write_text(
        "[main]\ngpgcheck=1\ninstallonly_limit=3\nclean_requirements_on_remove=True\nbest=True\nskip_if_unavailable=False\n"
    )
    for generation in ("plugins", "libdnf5-plugins"):
        plugin = root / "etc/dnf" / generation / "local.conf"
        if plugin.parent.is_dir():
            plugin.write_text("[main]\nenabled = false\n")
    _present(root, key, repositories.folder / "rocky/9/baseos", catalog_rpm.PRESENT)


def _suse_sources(root: Path) -> None:
    repositories = build.ready()
    key = "usr/lib/rpm/gnupg/keys/gpg-pubkey-lab.asc"
    (root / key).parent.mkdir(parents=True, exist_ok=True)
    (root / key).write_text(repositories.armored)
    (root / "etc/zypp/repos.d/repo-oss.repo").write_text(
        f"[repo-oss]\nname=Main Repository (lab stand-in)\nenabled=1\nautorefresh=1\nbaseurl={repositories.leap}/oss\n"
        f"type=rpm-md\ngpgcheck=1\ngpgkey=file:///{key}\n"
    )
    _present(root, key, repositories.folder / "leap/15.6/oss", catalog_suse.PRESENT)


def _present(root: Path, key: str, folder: Path, names: tuple[str, ...]) -> None:
    """The kernel and the shell that are there belong to packages, in rpm's database as on a real host."""
    run(["chroot", root, "rpm", "--import", f"/{key}"])
    inside = []
    for name in names:
        package = next(folder.glob(f"{name}-[0-9]*.rpm"))
        shutil.copy(package, root / "root")
        inside.append(f"/root/{package.name}")
    run(["chroot", root, "rpm", "-i", "--justdb", "--nodeps", "--noscripts", *inside])
    for path in inside:
        (root / path.lstrip("/")).unlink()


def _debian_sources(root: Path, spec: HostSpec) -> None:
    if spec.network != "mirror":
        (root / "etc/apt/sources.list").write_text(f"# No network but the lab's: {network.REPOSITORY_URL}\n")
        return
    persistence = root / "etc/systemd/system/nvidia-persistenced.service.d/lab.conf"
    run(["install", "-D", "--mode=644", SOURCE / "dressing" / "persistenced.conf", persistence])
    lines = mirror.sources(suite := ROOTS[FLAVOURS[spec.flavour].root].suite)
    if lines and suite == "bookworm":
        (root / "etc/apt/sources.list").write_text("\n".join(lines) + "\n")
    elif lines:
        (root / "etc/apt/sources.list").unlink(missing_ok=True)
        (root / "etc/apt/sources.list.d").mkdir(exist_ok=True)
        (root / "etc/apt/sources.list.d/debian.sources").write_text(mirror.deb822(suite))
    (root / "etc/apt/apt.conf.d/80lab-proxy").write_text(
        f'Acquire::http::Proxy "{network.PROXY}";\nAcquire::https::Proxy "{network.PROXY}";\n'
        f'Acquire::http::Proxy::{network.GATEWAY} "DIRECT";\n'
    )
    settings = {**mirror.pip_settings(), "proxy": network.PROXY, "cert": f"/{CA_BUNDLE}"}
    (root / "etc/pip.conf").write_text("[global]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items()))
    shutil.copy(f"/{CA_BUNDLE}", root / CA_BUNDLE)  # this machine may sit behind a proxy with its own authority
    network.MIRROR_CLIENTS.mkdir(parents=True, exist_ok=True)
    (network.MIRROR_CLIENTS / spec.address).touch()
