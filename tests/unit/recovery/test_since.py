"""What a reset of ours came after does not count, whatever form the kernel log has."""

import pytest

from gpusetup.recovery.since import Reset, settled

RESETS = {"0000:17:00.0": Reset(200.0, 1_763_900_000.0)}
XID = "NVRM: Xid (PCI:0000:17:00): 62, pid=1"


@pytest.mark.parametrize(
    ("line", "done"),
    [
        (f"[  199.900000] {XID}", True),
        (f"[  200.100000] {XID}", False),
        (f"2025-11-23T12:13:20+0000 host kernel: {XID}", True),
        (f"2025-11-23T13:13:20+01:00 host kernel: {XID}", True),
        (f"2025-11-23T12:13:21,5Z host kernel: {XID}", False),
        (XID, False),
        ("[  100.000000] NVRM: Xid (PCI:0000:18:00): 62", False),
        ("[  100.000000] NVRM: GPU 0000:17:00.0: RmInitAdapter failed!", False),
        ("[  100.000000] NVRM: Xid: 62", False),
    ],
)
def test_only_xids_of_that_gpu_before_that_moment_are_settled(line, done):
    assert settled(line, RESETS) is done
    assert settled(line, {}) is False
