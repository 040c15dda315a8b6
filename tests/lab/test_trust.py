"""Real SSH servers whose host key a CA signed, and keys that were gathered beforehand: reached by that alone."""

from tests.lab.applying import gpusetup
from tests.lab.places import SSH_KEY
from tests.lab.process import run


def test_a_host_is_reached_by_its_gathered_key_and_by_its_ca_and_by_nothing_else(lab_hosts, lab_inventory, tmp_path):
    (host,) = lab_hosts(flavour="debian12", machine="t4")
    alone = f"-o IdentitiesOnly=yes -o BatchMode=yes -o UserKnownHostsFile={tmp_path}/none"
    inventory = lab_inventory([host], {"ansible_ssh_common_args": alone, "ansible_ssh_private_key_file": str(SSH_KEY)})
    unshared = {"ANSIBLE_SSH_ARGS": "-C"}  # each connection sees the key anew
    before = gpusetup(tmp_path, "facts", inventory, "--format", "json", **unshared)
    assert before.code == 6
    assert "Host key verification failed" in before.out

    console = run(["ssh-keygen", "-l", "-f", host.path("/etc/ssh/ssh_host_ed25519_key.pub")]).stdout
    (tmp_path / "consoles").mkdir()
    (tmp_path / "consoles" / f"{host.name}.log").write_text(console)
    gathered = gpusetup(
        tmp_path, "fleet", "known-hosts", inventory, "--trusted", tmp_path / "consoles", "--format", "json"
    )
    assert gathered.code == 0, gathered.out + gathered.err
    assert gathered.hosts[host.name]["state"] == "confirmed"
    gpusetup(tmp_path, "facts", inventory, "--format", "json", **unshared).well()

    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "ca"])
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "new"])
    run(["ssh-keygen", "-q", "-s", tmp_path / "ca", "-h", "-I", host.name, "-n", host.address, tmp_path / "new.pub"])
    for suffix, target in (("", "ssh_host_new"), ("-cert.pub", "ssh_host_new-cert.pub")):
        placed = host.path(f"/etc/ssh/{target}")
        placed.write_text((tmp_path / f"new{suffix}").read_text())
        placed.chmod(0o600)
    host.path("/etc/ssh/sshd_config.d/ca.conf").write_text(
        "HostKey /etc/ssh/ssh_host_new\nHostCertificate /etc/ssh/ssh_host_new-cert.pub\n"
    )
    host.ssh("systemctl", "restart", "ssh")
    run(["ssh-keygen", "-q", "-R", host.address, "-f", gathered.document["path"]])
    assert gpusetup(tmp_path, "facts", inventory, "--format", "json", **unshared).code == 6
    gpusetup(tmp_path, "fleet", "known-hosts", "--ca", tmp_path / "ca.pub", "--for", host.address).well()
    gpusetup(tmp_path, "facts", inventory, "--format", "json", **unshared).well()
