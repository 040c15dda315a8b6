"""The stand-in repositories: what apt and dnf take from them, what they must refuse, and faults on demand."""

import pytest

from tests.lab.repository import build

MODULES = "modinfo -k $(ls /lib/modules) -F"


@pytest.fixture(scope="module")
def ubuntu(lab_hosts_module, lab_repositories):
    (host,) = lab_hosts_module(flavour="ubuntu2404-like", machine="h200-x8-nvswitch")
    return host


@pytest.fixture(scope="module")
def rocky(lab_hosts_module, lab_repositories):
    (host,) = lab_hosts_module(flavour="rocky9-like", machine="v100")
    return host


def shell(host, script, *, check=True):
    done = host.ssh("sh", "-c", script, check=check, timeout=300)
    return done.stdout + done.stderr


def install(host, *words, check=True):
    return shell(host, f"DEBIAN_FRONTEND=noninteractive apt-get install -y {' '.join(words)}", check=check)


def test_driver_is_built_by_dkms_and_speaks_after_the_reboot(ubuntu, lab_repositories):
    ubuntu.use(lab_repositories)
    shell(ubuntu, "apt-get update")
    version = "=580.159.04-0ubuntu1"
    names = ["nvidia-driver-580-open", "nvidia-dkms-580-open", "nvidia-utils-580", "libnvidia-compute-580", "libnvidia-gl-580",
             "nvidia-compute-utils-580", "nvidia-kernel-common-580", "nvidia-fabricmanager"]  # fmt: skip
    install(ubuntu, *(name + version for name in names))
    assert "6.8.0-60-generic, x86_64: installed" in shell(ubuntu, "dkms status")
    assert shell(ubuntu, f"{MODULES} version nvidia").strip() == "580.159.04"
    assert shell(ubuntu, f"{MODULES} license nvidia").strip() == "Dual MIT/GPL"
    assert ubuntu.ssh("nvidia-smi", check=False).returncode == 9, "no module is loaded yet"
    shell(ubuntu, "update-initramfs -u")
    ubuntu.reboot()
    assert shell(ubuntu, "nvidia-smi -L").count("NVIDIA H200") == 8
    asked = shell(
        ubuntu, "nvidia-smi --query-gpu=driver_version,memory.total --format=csv,noheader,nounits"
    ).splitlines()
    assert asked == ["580.159.04, 143771"] * 8
    wrong = ubuntu.ssh("nvidia-smi", "--query-gpu=colour", "--format=csv", check=False)
    assert (wrong.returncode, "not a valid field" in wrong.stdout) == (2, True)
    shell(ubuntu, "systemctl start nvidia-fabricmanager; sleep 0.3; systemctl is-active nvidia-fabricmanager")


@pytest.mark.parametrize(
    ("what", "where", "says"),
    [
        ("wrong-key", "index", "NO_PUBKEY"), ("expired", "index", "is expired"), ("404", "index", "404"), ("503", "all", "503"),
        ("corrupt", "index", "invalid|doesn't match|mismatch|BADSIG|NODATA|Clearsigned"),
        ("truncated", "index", "closed|unexpected|size|error"),
    ],
)  # fmt: skip
def test_apt_does_not_take_a_bad_index(what, where, says, ubuntu, lab_repositories):
    import re

    ubuntu.use(lab_repositories.with_fault(f"index{what.replace('-', '')}", what, where))
    shell(ubuntu, "rm -rf /var/lib/apt/lists/*")
    told = shell(
        ubuntu,
        "apt-get update -o Acquire::Retries=0 -o Acquire::Check-Valid-Until=true; apt-cache policy nvidia-open-580",
        check=False,
    )
    assert re.search(says, told, re.IGNORECASE), told
    assert "Candidate: 580" not in told


@pytest.mark.parametrize(
    ("what", "says"),
    [("corrupt", "Hash Sum mismatch|doesn't match"), ("truncated", "closed|unexpected|size"), ("404", "404")],
)
def test_apt_does_not_take_a_bad_package(what, says, ubuntu, lab_repositories):
    import re

    ubuntu.use(lab_repositories.with_fault(f"package{what}", what, "packages"))
    shell(ubuntu, "rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb; apt-get update")
    told = install(ubuntu, "-o", "Acquire::Retries=0", "cuda-compat-13-3", check=False)
    assert re.search(says, told, re.IGNORECASE), told
    assert "not-installed" in shell(
        ubuntu, "dpkg-query -W -f '${db:Status-Status}' cuda-compat-13-3 2>/dev/null || echo not-installed", check=False
    )
    build.set_fault(f"package{what}", "")
    install(ubuntu, "cuda-compat-13-3")
    shell(ubuntu, "dpkg --purge cuda-compat-13-3")


def test_dnf_streams_choose_flavour_and_branch(rocky, lab_repositories):
    key = f"{lab_repositories.base}/lab-key.asc"
    for name, url in (("cuda", lab_repositories.url("rhel9")), ("epel", f"{lab_repositories.rocky}/epel")):
        rocky.path(f"/etc/yum.repos.d/{name}.repo").write_text(
            f"[{name}]\nname={name}\nbaseurl={url}\ngpgcheck=1\nrepo_gpgcheck=1\ngpgkey={key}\n"
        )
    listed = shell(rocky, "dnf -y module list nvidia-driver")
    assert {"open-dkms [d]", "580-dkms", "590-open"} <= {
        word for line in listed.splitlines() for word in (line[14:28].strip(),)
    }
    shell(rocky, "dnf -y module enable nvidia-driver:580-dkms")
    assert "nvidia-open" not in shell(rocky, "dnf -q repoquery --available 'nvidia-open*'", check=False)
    shell(rocky, "dnf -y install cuda-drivers libnccl-2.27.7-1+cuda13.0")
    assert shell(rocky, f"{MODULES} license nvidia").strip() == "NVIDIA"
    assert "cuda-drivers-580.178.04-1.el9" in shell(rocky, "rpm -q cuda-drivers")
    assert "No such command: versionlock" in rocky.ssh("dnf", "versionlock", "list", check=False).stderr
    shell(rocky, "dnf -y install python3-dnf-plugin-versionlock")
    shell(rocky, "dnf versionlock add 'cuda-drivers-580.178.04*'; dnf versionlock list")
    shell(rocky, "dracut --force --kver $(ls /lib/modules)")
    rocky.reboot()
    assert "Tesla V100" in shell(rocky, "nvidia-smi -L")


@pytest.mark.parametrize(("what", "where"), [("wrong-key", "index"), ("corrupt", "packages"), ("404", "index")])
def test_dnf_does_not_take_what_is_wrong(what, where, rocky, lab_repositories):
    base = lab_repositories.with_fault(f"dnf{what.replace('-', '')}", what, where)
    rocky.path("/etc/yum.repos.d/bad.repo").write_text(
        f"[bad]\nname=bad\nbaseurl={base.url('rhel9')}\nmodule_hotfixes=1\ngpgcheck=1\nrepo_gpgcheck=1\ngpgkey={lab_repositories.base}/lab-key.asc\n"
    )
    done = rocky.ssh(
        "sh", "-c", "dnf -y --disablerepo='*' --enablerepo=bad --setopt=retries=1 install libcudnn9-cuda-12",
        check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode != 0, done.stdout
    assert rocky.ssh("rpm", "-q", "libcudnn9-cuda-12", check=False).returncode == 1
    rocky.path("/etc/yum.repos.d/bad.repo").unlink()
