"""A real Slurm of Debian's packages on lab hosts: one controller, nodes with a GPU that is only a device file."""

from tests.lab.host import Host
from tests.lab.process import until
from tests.stored import stored

_CONFIGURATION = stored("slurm_configuration.txt")


class Slurm:
    """The cluster; commands run on its head."""

    def __init__(self, head: Host, nodes: list[Host]) -> None:
        self.head, self.nodes = head, nodes
        for host, what in ((head, "slurmctld"), *((node, "slurmd") for node in nodes)):
            host.ssh("apt-get", "-q", "update", timeout=300)
            install = ["apt-get", "-q", "-y", "--no-install-recommends", "install", what, "slurm-client", "munge"]
            host.ssh("env", "DEBIAN_FRONTEND=noninteractive", *install, timeout=600)
        key = head.path("/etc/munge/munge.key").read_bytes()
        names = "".join(f"{host.address} {host.name}\n" for host in (head, *nodes))
        described = "\n".join(f"NodeName={node.name} CPUs=1 RealMemory=100 Gres=gpu:1 State=UNKNOWN" for node in nodes)
        for host in (head, *nodes):
            host.path("/etc/munge/munge.key").write_bytes(key)
            with host.path("/etc/hosts").open("a") as hosts:
                hosts.write(names)
            host.path("/etc/slurm").mkdir(exist_ok=True)
            host.path("/etc/slurm/slurm.conf").write_text(_CONFIGURATION.format(head=head.name, nodes=described))
            host.path("/etc/slurm/gres.conf").write_text("Name=gpu File=/dev/zero\n")
            host.ssh("mkdir", "-p", "/var/lib/slurm/state", "/var/lib/slurm/slurmd", "/var/log/slurm")
            host.ssh("systemctl", "restart", "munge")
        head.ssh("systemctl", "restart", "slurmctld")
        for node in nodes:
            node.path("/etc/default/slurmd").write_text('SLURMD_OPTIONS=""\n')
            node.ssh("systemctl", "restart", "slurmd")
        for node in nodes:
            self.wait(node, "IDLE")

    def node(self, node: Host) -> str:
        return self.head.ssh("scontrol", "--oneliner", "show", "node", node.name).stdout

    def state(self, node: Host) -> str:
        """Its state; that it is slow to answer, as on a busy machine, is none."""
        return self.node(node).partition("State=")[2].split()[0].replace("+NOT_RESPONDING", "")

    def wait(self, node: Host, state: str, seconds: float = 90) -> None:
        until(lambda: self.state(node) == state, f"{node.name} is {state}", seconds, 0.5)

    def job(self, node: Host, seconds: int) -> str:
        argv = ["sbatch", "--parsable", "--gres=gpu:1", "--chdir=/tmp", f"--nodelist={node.name}"]
        number = self.head.ssh(*argv, f"--wrap=sleep {seconds}; echo ended >/var/tmp/job-ended").stdout.strip()
        self.wait(node, "ALLOCATED")
        return number
