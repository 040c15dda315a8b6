"""Inside the fork server: a process that has imported Ansible, and makes a child of itself for each playbook.

A child is what a process of its own would be: its session, channels, environment, temporary folder and end. The server
reads nothing of a host or an inventory and knows no password. When whoever started it goes, so do it and its children.
"""

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpusetup.drive.inventory_memory import TYPED, take_from_plugin
from gpusetup.drive.module_cache import reading_once
from gpusetup.drive.parent import ENVIRONMENT as PARENT
from gpusetup.drive.parent import die_with_parent

_CHANNELS = 3
"""What comes with each request: the socket for request, pid and code; then standard output and error."""
_ALWAYS_USED = (
    "ansible.executor.playbook_executor", "ansible.executor.module_common", "ansible.executor.task_queue_manager",
    "ansible.inventory.manager", "gpusetup.drive.callback",
)  # fmt: skip
"""What Ansible would import later in each process; what one of its versions lacks is imported when it is needed."""
_ALL_OF = ("connection", "shell", "become", "callback")
"""Kinds of plugins of which Ansible loads all before each playbook; those for variables it keeps in the order in which
they were asked for, so that order stays its own."""
_ONE_OF = {
    "strategy": ("linear",),
    "action": ("normal", "include_role", "validate_argument_spec", "gpusetup.stack.gpu_facts"),
    "inventory": ("host_list", "script", "auto", "yaml", "ini", "toml"),
}


def main() -> None:
    """Import Ansible, then make children until nobody can ask for more."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()  # nothing of what an import makes is garbage: looking for it takes a fifth of the time
    importlib.import_module("ansible.cli.playbook")
    with suppress(ImportError, AttributeError):
        finder: Any = importlib.import_module("ansible.utils.collection_loader._collection_finder")
        finder._meta_yml_to_dict = reading_once(finder._meta_yml_to_dict, os.environ)  # noqa: SLF001 - made to be replaced
    for name in _ALWAYS_USED:
        with suppress(ImportError):
            importlib.import_module(name)
    _load_plugins()
    with suppress(ImportError):  # Ansible copies all of a role whenever it loads one: what never changes need not be
        for name, kind in vars(importlib.import_module("ansible.module_utils._internal._datatag")).items():
            if name in {"_AnsibleTaggedStr", "_AnsibleTaggedInt", "_AnsibleTaggedFloat"}:
                kind.__deepcopy__ = lambda value, _memo: value
    gc.freeze()
    gc.enable()
    channels = _serve(control)
    if channels is None:
        _end(0)
        return
    control.close()
    _as_asked(*channels)


def _load_plugins() -> None:
    """Load plugins by Ansible's own loaders: a site's own in the place of one of Ansible's is taken here too."""
    from ansible.plugins import loader

    with suppress(Exception):  # it is only done earlier here; what is wrong with a plugin is told where it is used
        loader.init_plugin_loader()
        warnings.filterwarnings("ignore", "AnsibleCollectionFinder has already been configured")
        for name in ("ansible.builtin", "gpusetup.stack"):
            importlib.import_module(f"ansible_collections.{name}")  # it reads where their plugins have moved
        for kind in _ALL_OF:
            list(getattr(loader, f"{kind}_loader").all(class_only=True))
        for kind, names in _ONE_OF.items():
            for name in names:
                getattr(loader, f"{kind}_loader").get(name, class_only=True)


def _serve(control: socket.socket) -> tuple[int, ...] | None:
    """Make a child for each request; return its channels in the child, None when all is over."""
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    children: dict[int, int] = {}
    while True:
        watched: list[Any] = [control, ended]
        ready, _, _ = select.select(watched, [], [])
        if ended in ready:
            os.read(ended, 4096)
            _reap(children)
        if control in ready:
            asked, channels, _, _ = socket.recv_fds(control, 1, _CHANNELS)
            if not asked:
                for pid in children:
                    os.kill(pid, signal.SIGINT)
                return None
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                for descriptor in (ended, wake, *children.values()):
                    os.close(descriptor)
                return tuple(channels)
            children[pid] = channels[0]
            _tell(channels[0], pid)
            for descriptor in channels[1:]:
                os.close(descriptor)


def _reap(children: dict[int, int]) -> None:
    """Tell of each child that has ended how it did."""
    with suppress(ChildProcessError):
        while children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            if (channel := children.pop(pid, -1)) >= 0:
                _tell(channel, os.waitstatus_to_exitcode(status))
                os.close(channel)


def _tell(channel: int, number: int) -> None:
    with suppress(OSError):  # whoever asked has gone
        os.write(channel, b"%d\n" % number)


# --- in the child -----------------------------------------------------------------------------------------------------


def _as_asked(channel: int, out: int, err: int) -> None:
    """Become the process that was asked for, and run the playbook."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for descriptor, number in ((out, 1), (err, 2)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    with socket.socket(fileno=channel) as asked:
        request = _received(asked)
    os.environ.clear()
    os.environ.update(request["env"])
    if PARENT in os.environ:
        os.environ[PARENT] = str(os.getppid())
    if not die_with_parent():
        return
    sys.argv = request["argv"]
    _of_its_own()
    from ansible.cli.playbook import main as playbook

    try:
        playbook(request["argv"])
    except SystemExit as over:
        _end(over.code)


def _end(code: object) -> None:
    """End as Python does, without taking apart all that was imported: that takes longer than a small playbook."""
    atexit._run_exitfuncs()  # noqa: SLF001 - Ansible's temporary folder goes by it, and Python has no other way to it
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code if isinstance(code, int) else bool(code))


def _received(asked: socket.socket) -> dict[str, Any]:
    """Return a request: its length on a line, then JSON."""
    with asked.makefile("rb") as stream:
        request: dict[str, Any] = json.loads(stream.read(int(stream.readline())))
    return request


def _of_its_own() -> None:
    """Have what Ansible makes or reads once in a process: its temporary folder, and which inventory plugins it asks."""
    from ansible import constants
    from ansible.utils.path import cleanup_tmp_file

    atexit.unregister(cleanup_tmp_file)  # the server's own folder is the server's to remove
    base = Path(constants.DEFAULT_LOCAL_TMP).parent
    constants.DEFAULT_LOCAL_TMP = tempfile.mkdtemp(prefix=f"ansible-local-{os.getpid()}", dir=base)
    atexit.register(cleanup_tmp_file, constants.DEFAULT_LOCAL_TMP)
    take_from_plugin(os.environ)
    if os.environ.get(TYPED) == "1":
        from ansible.playbook.role import Role

        # Else each role reads what it has to check, and is a task more.
        Role._get_role_argspecs = lambda _role: {}  # noqa: SLF001 - Ansible can be told so of an include alone


if __name__ == "__main__":
    main()
