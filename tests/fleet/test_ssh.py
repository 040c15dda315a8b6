"""The one SSH connection that Ansible would make, as an argument list."""

import base64
import json
import shlex
import subprocess
import sys
import zlib

import pytest

from gpusetup_fleet.ssh import BOOT, local_route, route_of

TOLD = {
    "connection": "ssh",
    "password": False,
    "interpreter": "",
    "options": {
        "host": "10.0.0.9", "port": 2222, "remote_user": "ops", "private_key_file": "/keys/my key", "timeout": 10,
        "ssh_args": "-C -o ControlMaster=auto -o ControlPersist=60s", "ssh_common_args": "-o 'ProxyCommand=ssh -W %h:%p jump'",
        "ssh_extra_args": "", "ssh_executable": "ssh", "host_key_checking": True,
    },
}  # fmt: skip


def changed(**values):
    return {**TOLD, **values, "options": TOLD["options"] | values.get("options", {})}


def test_it_is_ansible_s_connection_but_alone_and_without_questions():
    argv = list(route_of("a", TOLD).argv)
    assert argv[0] == "ssh"
    assert argv[-3:-1] == ["--", "10.0.0.9"]
    options = [argv[place + 1] for place, word in enumerate(argv) if word == "-o"]
    assert options.index("ControlMaster=no") < options.index("ControlMaster=auto"), "ssh takes the first"
    asked = {"BatchMode=yes", 'IdentityFile="/keys/my key"', "ConnectTimeout=10", "ProxyCommand=ssh -W %h:%p jump"}
    assert asked <= set(options)
    assert argv[argv.index("-p") + 1] == "2222"
    assert argv[argv.index("-l") + 1] == "ops"
    assert not any("StrictHostKeyChecking" in option for option in options), "the checking of host keys stays as it is"


def test_a_site_that_turned_host_keys_off_has_them_off():
    assert "StrictHostKeyChecking=no" in route_of("a", changed(options={"host_key_checking": False})).argv


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (changed(password=True), "needs an SSH key"),
        (changed(connection="docker"), "reached by docker"),
        (changed(interpreter="/bin/sh -c 'rm -rf /'; python3"), "not a plain path"),
        (changed(interpreter="{{ python }}"), "not a plain path"),
        (changed(options={"ssh_common_args": "-o 'broken"}), "cannot be read"),
        (changed(options={"port": "x"}), "cannot be read"),
    ],
)
def test_what_cannot_be_watched_says_why(told, why):
    route = route_of("a", told)
    assert route.argv == ()
    assert why in route.problem


@pytest.mark.parametrize("value", ["$(touch /tmp/x)", "`id`", "a;b", "-oProxyCommand=x"])
def test_nothing_of_an_inventory_reaches_a_shell(value):
    """The command on the host is the same whatever the inventory says; the rest are words of their own."""
    plain = route_of("a", TOLD).argv[-1]
    told = changed(options={"host": value, "remote_user": value, "private_key_file": value})
    argv = route_of("a", told).argv
    assert argv[-1] == plain
    assert argv[-3:-1] == ("--", value)


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
@pytest.mark.parametrize("python", ["", sys.executable, "/no/such/python"])
def test_the_command_runs_what_comes_on_its_input(shell, python):
    command = route_of("a", changed(interpreter=python)).argv[-1]
    line = base64.b64encode(zlib.compress(json.dumps(["print(L[1])", "there"]).encode())) + b"\n"
    done = subprocess.run([shell, "-c", command], input=line, capture_output=True, check=True, timeout=30)
    assert done.stdout == b"there\n"


def test_a_host_without_python_says_so():
    command = route_of("a", TOLD).argv[-1]
    without = command.replace("python", "no-such-python")
    done = subprocess.run(["/bin/sh", "-c", without], capture_output=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (127, b"no Python 3 on this host\n")


def test_this_machine_needs_no_connection():
    assert local_route("localhost").argv == (sys.executable, "-I", "-c", BOOT)
    assert route_of("a", {"connection": "local"}).argv[0] == "/usr/bin/python3"
    assert shlex.join(local_route("localhost").argv).count('"') == 0
