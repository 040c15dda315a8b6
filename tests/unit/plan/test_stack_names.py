"""What is held, pinned and allowed to go is the driver's own, in every family, and nothing else."""

import pytest

from gpusetup.components.judge import versions
from gpusetup.matrix.load import matrix
from tests.unit.plan.conftest import debian12_archive, host, nvidia_ubuntu, planner

NVIDIA_UBUNTU = """
cuda-drivers-580 libnvidia-cfg1-580 libnvidia-common-580 libnvidia-compute-580 libnvidia-decode-580 libnvidia-encode-580
libnvidia-extra-580 libnvidia-fbc1-580 libnvidia-gl-580 libnvidia-gpucomp-580 libnvidia-nscq libnvsdm nvidia-compute-utils-580
nvidia-dkms-580-open nvidia-driver-580-open nvidia-driver-pinning-580 nvidia-fabricmanager nvidia-firmware-580-580.95.05
nvidia-headless-580-open nvidia-headless-no-dkms-580-open nvidia-imex nvidia-kernel-common-580 nvidia-kernel-source-580-open
nvidia-modprobe nvidia-open-580 nvidia-persistenced nvidia-settings nvidia-utils-580 nvidia-xconfig
xserver-xorg-video-nvidia-580 libnvidia-compute nvidia-dkms-open nvidia-utils nvidia-open
"""
NVIDIA_DEBIAN = """
cuda-drivers firmware-nvidia-gsp libcuda1 libcudadebugger1 libegl-nvidia0 libgl1-nvidia-glvnd-glx libgles-nvidia2 libglx-nvidia0
libnvcuvid1 libnvidia-allocator1 libnvidia-cfg1 libnvidia-egl-gbm1 libnvidia-eglcore libnvidia-encode1 libnvidia-fbc1
libnvidia-glcore libnvidia-ml1 libnvidia-nvvm4 libnvidia-opticalflow1 libnvidia-pkcs11-openssl3 libnvidia-ptxjitcompiler1
libnvidia-rtcore libnvoptix1 nvidia-alternative nvidia-cuda-mps nvidia-driver nvidia-driver-bin nvidia-driver-cuda nvidia-driver-libs
nvidia-egl-icd nvidia-kernel-open-dkms nvidia-kernel-support nvidia-legacy-check nvidia-libopencl1 nvidia-modprobe
nvidia-opencl-icd nvidia-persistenced nvidia-settings nvidia-smi nvidia-suspend-common nvidia-vdpau-driver nvidia-vulkan-icd
nvidia-xconfig xserver-xorg-video-nvidia
"""
DEBIAN = """
firmware-nvidia-gsp firmware-nvidia-tesla-535-gsp libcuda1 libnvcuvid1 libnvidia-cfg1 libnvidia-ml1 libnvidia-ptxjitcompiler1
libnvidia-tesla-535-cuda1 libnvoptix1 nvidia-alternative nvidia-driver nvidia-driver-bin nvidia-kernel-dkms
nvidia-kernel-support nvidia-open-kernel-dkms nvidia-open-kernel-support nvidia-persistenced nvidia-smi
nvidia-tesla-535-kernel-dkms nvidia-tesla-535-smi xserver-xorg-video-nvidia
"""
UBUNTU = """
libnvidia-cfg1-580-server libnvidia-common-580-server libnvidia-compute-580-server libnvidia-decode-580-server
linux-modules-nvidia-580-server-open-6.8.0-50-generic linux-modules-nvidia-580-server-open-generic-hwe-24.04
linux-objects-nvidia-580-server-6.8.0-50-generic linux-signatures-nvidia-6.8.0-50-generic nvidia-compute-utils-580-server
nvidia-dkms-580-server-open nvidia-driver-580-server nvidia-fabricmanager-580 nvidia-firmware-580-server-580.95.05
nvidia-headless-no-dkms-580-server-open nvidia-kernel-common-580-server nvidia-kernel-source-580-server nvidia-utils-580-server
"""
EL = """
cuda-drivers kmod-nvidia-open-dkms kmod-nvidia-latest-dkms libnvidia-cfg libnvidia-fbc libnvidia-gpucomp libnvidia-ml libnvidia-nscq
libnvsdm nvidia-driver nvidia-driver-cuda nvidia-driver-cuda-libs nvidia-driver-libs nvidia-fabricmanager nvidia-fabric-manager
nvidia-fabric-manager-devel nvidia-imex nvidia-kmod-common nvidia-libXNVCtrl nvidia-modprobe nvidia-open nvidia-persistenced
nvidia-settings nvidia-xconfig
"""
SUSE = "nvidia-open-driver-G06 nvidia-compute-utils-G07 nvidia-common-G06 libnvidia-ml nvidia-persistenced"
OTHERS = """
nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools libnvidia-container1 nvidia-container-runtime
nvidia-docker2 libnvpair3linux libnvme1 libnvme1t64 libnvme-dev libnvtt2 libnvtt-bin libnvpair1linux nvidia-vaapi-driver
nvidia-texture-tools nvidia-cg-toolkit nvidia-mig-manager nvidia-driver-assistant nvidia-prime cuda-toolkit-13-0 cuda-keyring
libnvjpeg-13-0 libnvjitlink-13-0 libnvfatbin-13-0 libnvptxcompiler-13-0 datacenter-gpu-manager-4-core libcudnn9-cuda-13 libnccl2 libnccl
linux-image-6.8.0-50-generic linux-headers-generic libnvvm-13-0 libnvidia-containers kernel-default zfs-dkms nvme-cli python3-libnvme libnvme libnvpair3
"""
ROWS = [
    ("nvidia", "ubuntu", NVIDIA_UBUNTU),
    ("nvidia", "debian", NVIDIA_DEBIAN),
    ("nvidia", "el-modular", EL),
    ("nvidia", "el-plain", EL),
    ("nvidia", "suse", SUSE),
    ("distro", "ubuntu", UBUNTU),
    ("distro", "debian", DEBIAN),
]


def _names(source, family):
    rows = [row.names for row in matrix().repos.stack_names if row.source == source and family in row.families]
    assert len(rows) == 1
    return rows[0]


@pytest.mark.parametrize(("source", "family", "driver"), ROWS)
def test_the_whole_driver_is_named_and_nothing_of_others(source, family, driver):
    named = {name for name in (driver + OTHERS).split() if versions.matches(name, _names(source, family))}
    assert named == set(driver.split())


def test_every_plan_takes_its_names_from_there():
    """Held, removed or pinned: one list, and a container toolkit that is there already stays free."""
    from gpusetup.model.settings import Settings

    plans = [
        planner.second(host("ubuntu24.04-rtx4090-open"), Settings(), nvidia_ubuntu).plan,
        planner.second(host("debian12-t4-open"), Settings(source="distro"), debian12_archive).plan,
    ]
    for plan, row in zip(plans, (_names("nvidia", "ubuntu"), _names("distro", "debian")), strict=True):
        assert plan.refusals == ()
        assert plan.variables.gpu_packages_hold == tuple(row)
        assert plan.variables.gpu_packages_may_remove == tuple(row)
        assert plan.variables.gpu_repo_pins[0].packages == tuple(row)
