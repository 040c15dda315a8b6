"""The kernel module cannot be built."""

from tests.lab.faults.row import Lab, Row, completes, judged
from tests.lab.plays import packages

# As the driver of Debian 13's first days calls it: kernel 6.12.107 of its security updates takes one more argument.
OLD_CALL = """
#include <linux/pci.h>
int lab_old_call(struct pci_dev *device);
int lab_old_call(struct pci_dev *device) { return pci_resize_resource(device, 0, 1); }
"""


def build_fails(row: Row) -> None:
    with Lab("build") as lab:
        lab.host.break_packages("dkms-build", "fail")
        judged(row, lab, lab.apply(), 7, "could not be built", unchanged=True)
        lab.host.break_packages("dkms-build", "")
        completes(row, lab)


def no_headers(row: Row) -> None:
    with Lab("headers") as lab:
        lab.host.ssh("sh", "-c", "dpkg --purge --force-depends $(dpkg-query -W -f '${Package}\\n' 'linux-headers-*')")
        lab.before = packages(lab.host)
        judged(row, lab, lab.apply(), 5, "GS-466", unchanged=True)
        completes(row, lab, (5,))


def kernel_too_new(row: Row) -> None:
    """The stand-in's source calls a kernel function as an older kernel had it; the compiler itself says no."""
    with Lab("too-new", flavour="debian13") as lab:
        lab.host.path("/root/old-call.c").write_text(OLD_CALL)
        override = lab.host.path("/etc/dkms/nvidia.conf")
        override.write_text(
            'MAKE[0]="cat /root/old-call.c >>nvidia.c; make -C ${kernel_source_dir} '
            'M=${dkms_tree}/${PACKAGE_NAME}/${PACKAGE_VERSION}/build modules"\n'
        )
        judged(row, lab, lab.apply(), 7, "too few arguments", unchanged=True)
        override.unlink()
        completes(row, lab)
