"""Ten mixed hosts at once, stand-in packages: right flavour, right names, fabric manager only where switches are."""

import pytest

from tests.lab.applying import apply

HOSTS = {
    "u24-t4": {"flavour": "ubuntu2404-like", "machine": "t4"},
    "u22-v100": {"flavour": "ubuntu2204-like", "machine": "v100"},
    "u24-switch": {"flavour": "ubuntu2404-like", "machine": "h200-x8-nvswitch"},
    "u24-guest": {"flavour": "ubuntu2404-like", "machine": "h200-x8"},
    "d12-t4": {"flavour": "debian12", "machine": "t4-x4"}, "d12-v100": {"flavour": "debian12", "machine": "v100"},
    "d12-none": {"flavour": "debian12", "machine": "none"},
    "r9-v100": {"flavour": "rocky9-like", "machine": "v100-x8"},
    "r9-switch": {"flavour": "rocky9-like", "machine": "h200-x8-nvswitch"},
    "r9-none": {"flavour": "rocky9-like", "machine": "none"},
}  # fmt: skip
PROPRIETARY = {"u22-v100", "d12-v100", "r9-v100"}
SWITCHES = {"u24-switch", "r9-switch"}
WITHOUT = {"d12-none", "r9-none"}


@pytest.fixture
def fleet(lab_hosts, lab_inventory, lab_repositories, wishes):
    hosts = dict(zip(HOSTS, lab_hosts(**HOSTS), strict=True))
    epel = lab_repositories.beside("epel", f"{lab_repositories.rocky}/epel")
    enterprise = {host: epel for name, host in hosts.items() if name.startswith("r9")}
    return hosts, lab_inventory(list(hosts.values()), wishes, enterprise)


@pytest.mark.slow
def test_ten_mixed_hosts_at_once(fleet, tmp_path):
    hosts, inventory = fleet
    names = {host.name: word for word, host in hosts.items()}
    first = apply(tmp_path, inventory).well()
    outcomes = {names[name]: outcome for name, outcome in first.hosts.items()}
    assert {word for word, outcome in outcomes.items() if outcome["state"] == "nothing-to-do"} == WITHOUT
    assert {word for word, outcome in outcomes.items() if outcome["state"] == "done"} == set(HOSTS) - WITHOUT
    for word, outcome in outcomes.items():
        assert outcome["simulated"], word
        if word in WITHOUT:
            assert outcome["actions"] == []
            continue
        assert outcome["stack"]["driver"]["module"] == ("proprietary" if word in PROPRIETARY else "open"), word
        assert outcome["reboot"], word
        _look(word, hosts[word])

    second = apply(tmp_path, inventory).well()
    states = {names[name]: outcome["state"] for name, outcome in second.hosts.items()}
    assert states == {word: "nothing-to-do" if word in WITHOUT else "unchanged" for word in HOSTS}
    assert sum(outcome["changed"] for outcome in second.hosts.values()) == 0
    assert not any(outcome["actions"] for outcome in second.hosts.values())
    assert second.operations <= 2 * len(hosts), second.operations  # one look each, and room for a connection made anew


def _look(word, host):
    if word.startswith("r9"):
        installed = host.ssh("rpm", "-qa").stdout
        assert ("kmod-nvidia-latest-dkms" in installed) is (word in PROPRIETARY)
        assert ("nvidia-fabricmanager" in installed) is (word in SWITCHES)
        return
    installed = host.ssh("dpkg-query", "-W").stdout
    assert ("nvidia-fabricmanager" in installed) is (word in SWITCHES), installed
    ubuntu, debian = ("nvidia-dkms-580-open", "nvidia-dkms-580\t"), ("nvidia-kernel-open-dkms", "nvidia-kernel-dkms\t")
    flavoured = ubuntu if word.startswith("u") else debian
    assert flavoured[word in PROPRIETARY] in installed
    assert flavoured[word not in PROPRIETARY] not in installed
    held = host.ssh("apt-mark", "showhold").stdout
    assert "nvidia" in held
    assert "blacklist nouveau" in host.ssh("grep", "-rhs", "blacklist nouveau", "/etc/modprobe.d").stdout
    if word in SWITCHES:
        assert host.ssh("systemctl", "is-enabled", "nvidia-fabricmanager").stdout.strip() == "enabled"
