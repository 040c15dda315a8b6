"""The stand-in repositories: what apt and dnf take from them, what they must refuse, and faults on demand."""

import time

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


def use(host, repositories, distro="ubuntu2404"):
    host.path("/usr/share/keyrings/cuda.asc").write_text(repositories.armored)
    host.path("/etc/apt/sources.list.d/cuda.list").write_text(
        f"deb [signed-by=/usr/share/keyrings/cuda.asc] {repositories.url(distro)} /\n"
    )


def shell(host, script, *, check=True):
    done = host.ssh("sh", "-c", script, check=check, timeout=300)
    return done.stdout + done.stderr


def install(host, *words, check=True):
    return shell(host, f"DEBIAN_FRONTEND=noninteractive apt-get install -y {' '.join(words)}", check=check)


def test_driver_is_built_by_dkms_and_speaks_after_the_reboot(ubuntu, lab_repositories):
    use(ubuntu, lab_repositories)
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


def test_user_space_that_moved_under_the_module_is_a_mismatch(ubuntu):
    install(ubuntu, "--allow-change-held-packages", "nvidia-utils-580=580.178.04-0ubuntu1", "libnvidia-compute-580=580.178.04-0ubuntu1",
            "nvidia-driver-580-open=580.178.04-0ubuntu1", "nvidia-dkms-580-open=580.178.04-0ubuntu1", "libnvidia-gl-580=580.178.04-0ubuntu1",
            "nvidia-compute-utils-580=580.178.04-0ubuntu1", "nvidia-kernel-common-580=580.178.04-0ubuntu1")  # fmt: skip
    answer = ubuntu.ssh("nvidia-smi", check=False)
    assert (answer.returncode, "Driver/library version mismatch" in answer.stdout) == (18, True)
    ubuntu.reboot()
    assert ubuntu.ssh("nvidia-smi", check=False).returncode == 0
    started = shell(
        ubuntu, "systemctl restart nvidia-fabricmanager; sleep 0.3; systemctl is-active nvidia-fabricmanager",
        check=False,
    )  # fmt: skip
    assert "failed" in started, "Fabric Manager stayed at 580.159.04"


def test_the_archives_570_is_a_stub_that_gives_580(lab_hosts, lab_repositories):
    (host,) = lab_hosts(flavour="ubuntu2404-like", machine="t4")
    use(host, lab_repositories)
    shell(host, "apt-get update")
    simulated = install(host, "--simulate", "nvidia-driver-570")
    assert "Inst nvidia-driver-580 (580" in simulated
    simulated = install(host, "--simulate", "nvidia-driver-570=570.211.01-0ubuntu1 nvidia-dkms-570=570.211.01-0ubuntu1",
                        "nvidia-utils-570=570.211.01-0ubuntu1 libnvidia-compute-570=570.211.01-0ubuntu1")  # fmt: skip
    assert "580" not in simulated


def test_a_pinning_package_chooses_the_branch(lab_hosts, lab_repositories):
    (host,) = lab_hosts(flavour="debian12", machine="t4")
    use(host, lab_repositories, "debian12")
    shell(host, "apt-get update")
    assert "Inst nvidia-open (615" in install(host, "--simulate", "nvidia-open")
    install(host, "nvidia-driver-pinning-590")
    assert "Inst nvidia-open (590.48.01" in install(host, "--simulate", "nvidia-open")


@pytest.mark.parametrize(
    ("what", "where", "says"),
    [
        ("wrong-key", "index", "NO_PUBKEY"),
        ("expired", "index", "is expired"),
        ("404", "index", "404"),
        ("503", "all", "503"),
        ("corrupt", "index", "invalid|doesn't match|mismatch|BADSIG|NODATA|Clearsigned"),
        ("truncated", "index", "closed|unexpected|size|error"),
    ],
)
def test_apt_does_not_take_a_bad_index(what, where, says, ubuntu, lab_repositories):
    import re

    use(ubuntu, lab_repositories.with_fault(f"index{what.replace('-', '')}", what, where))
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

    use(ubuntu, lab_repositories.with_fault(f"package{what}", what, "packages"))
    shell(ubuntu, "rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb; apt-get update")
    told = install(ubuntu, "-o", "Acquire::Retries=0", "cuda-compat-13-3", check=False)
    assert re.search(says, told, re.IGNORECASE), told
    assert "not-installed" in shell(
        ubuntu, "dpkg-query -W -f '${db:Status-Status}' cuda-compat-13-3 2>/dev/null || echo not-installed", check=False
    )
    build.set_fault(f"package{what}", "")
    install(ubuntu, "cuda-compat-13-3")
    shell(ubuntu, "dpkg --purge cuda-compat-13-3")


def test_packages_fail_or_take_long_when_told(ubuntu, lab_repositories):
    use(ubuntu, lab_repositories)
    shell(ubuntu, "apt-get update")
    ubuntu.break_packages("libnvsdm", "fail")
    assert "the lab asked for this failure" in install(ubuntu, "libnvsdm", check=False)
    ubuntu.break_packages("libnvsdm", "")
    shell(ubuntu, "dpkg --configure -a")
    ubuntu.break_packages("nvidia-imex", "sleep 2")
    started = time.monotonic()
    install(ubuntu, "nvidia-imex")
    assert time.monotonic() - started > 2


def test_a_dkms_build_can_be_told_to_fail(ubuntu):
    ubuntu.break_packages("dkms-build", "fail")
    told = shell(
        ubuntu,
        "dkms build -m nvidia -v 580.178.04 -k 6.8.0-60-generic --force; tail -n 30 /var/lib/dkms/nvidia/580.178.04/build/make.log",
        check=False,
    )
    ubuntu.break_packages("dkms-build", "")
    assert "pci_resize_resource" in told
    assert "rror" in told


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
