"""Whatever Ansible does, every host gets a verdict and nothing is left running."""

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from gpusetup.drive.playbook import run_playbook
from gpusetup.errors import BadInputError


def run(session, deadline=60, **keywords):
    return run_playbook(session, "apply", deadline=deadline, **keywords)


def test_a_good_run_whose_folder_is_its_owners_alone(ansible):
    session = ansible(
        "hosts('a')\ntell('begin', host='a', task='1', name='Install')\nprint('in the log')\n"
        "tell('changed', host='a', task='1', seconds=2, data={'x': 1})\ntell('end', stats={})"
    )
    done = run(session)
    modes = {path.name: path.stat().st_mode & 0o077 for path in [session.run.path, *session.run.path.iterdir()]}
    assert set(modes.values()) == {0}, modes
    assert "in the log" in session.run.log.read_text()
    host = done.track.hosts["a"]
    assert (host.changed, host.failure, host.data, host.seconds) == (
        1, None, {"gpu_packages": {"x": 1}}, {"gpu_packages": 2.0},
    )  # fmt: skip


def test_ansible_that_hangs_is_killed_and_says_where_each_host_was(ansible):
    done = run(
        ansible("hosts('a', 'b')\ntell('begin', host='a', task='1', name='Install')\ntime.sleep(60)"), deadline=6
    )
    assert done.finished.timed_out
    assert done.track.hosts["a"].failure.task == "Install"
    assert "time limit" in done.track.hosts["a"].failure.message
    assert done.track.hosts["b"].failure.task == "between tasks"


@pytest.mark.parametrize(("forks", "waits"), [(1, True), (12, False)])
def test_a_fleet_larger_than_what_ansible_works_on_at_once_has_the_deadline_several_times(ansible, forks, waits):
    program = f"hosts(*'abcdefghijkl', forks={forks})\ntime.sleep(6.5)\ntell('end', stats={{}})"
    assert run(ansible(program), deadline=5).finished.timed_out is not waits


def test_garbage_among_the_events_is_survived(ansible):
    program = (
        'hosts(\'a\')\nevents.write(\'no json\\n{"event": 3}\\n[1]\\n\\n\')\nevents.write(\'{"event": "ok", "host\')\n'
        'events.write(\'": "a", "task": "1"}\\n\')\ntell(\'end\', stats={})\nprint(\'\\x00garbage\')'
    )
    done = run(ansible(program))
    assert done.track.hosts["a"].failure is None
    assert done.track.hosts["a"].ok == 1


def test_a_cut_connection_is_unreachable_the_others_go_on_and_what_a_task_hides_stays_hidden(ansible):
    program = (
        "hosts('a', 'b', 'c')\ntell('unreachable', host='a', task='1', name='Install', message='Connection reset by peer')\n"
        "tell('ok', host='b', task='1')\ntell('failed', host='c', task='1', hidden=True, message='s3cret')\n"
        "tell('end', stats={})\nsys.exit(4)"
    )
    done = run(ansible(program))
    assert done.track.hosts["a"].failure.unreachable
    assert done.track.hosts["b"].failure is None
    assert "s3cret" not in done.track.hosts["c"].failure.message


def test_no_hosts_is_bad_input(ansible):
    with pytest.raises(BadInputError, match="has no hosts") as caught:
        run(ansible("tell('no-hosts')"))
    assert caught.value.exit == 3


@pytest.mark.parametrize("why", ["[ERROR]: Invalid entry", "[WARNING]: Failed to parse with 'script' plugin: exit 1"])
def test_what_ansible_says_of_a_bad_inventory_is_passed_on(ansible, why):
    with pytest.raises(BadInputError) as caught:
        run(ansible(f'for line in ("{why}", *["more"] * 9): print(line, file=sys.stderr)\nsys.exit(1)'))
    assert caught.value.context == why


def test_a_part_of_the_inventory_that_cannot_be_read_is_named_once(ansible):
    warning, told = "[WARNING]: Unable to parse /x/aws.sh as an inventory source", []
    session = ansible(f"hosts('a')\nprint('{warning}', file=sys.stderr)\ntell('end', stats={{}})")
    for _ in range(2):
        run(replace(session, warn=told.append))
    assert [text.partition(" ")[0] for text in told] == ["/x/aws.sh"]


def test_ctrl_c_stops_cleanly_and_tells_who_was_where(ansible):
    session = ansible(
        "hosts('a')\ntell('begin', host='a', task='1', name='Install')\ntry:\n time.sleep(60)\nexcept KeyboardInterrupt:\n sys.exit(99)"
    )

    class Watcher:
        stopped = False

        def event(self, event, track):
            if event["event"] == "begin":
                threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()

        def tick(self, track): ...

        def stopping(self, track):
            self.stopped = True

    watcher = Watcher()
    with pytest.raises(KeyboardInterrupt):
        run(session, observer=Watcher())
    done = run(session, observer=watcher, partial=True)
    assert done.interrupted
    assert watcher.stopped
    assert done.track.hosts["a"].task == "Install"


SECRET = 'pass/w"rd 51ab2e'


def test_what_ansible_knows_to_be_secret_is_not_in_the_log(ansible):
    program = (
        f"sys.path.insert(0, {str(Path(__file__).parents[2])!r})\nfrom gpusetup.drive.secrets import ENVIRONMENT, tell_secrets\n"
        f"hosts('a')\ntell_secrets(os.environ[ENVIRONMENT], [{SECRET!r}])\n"
        f"print('<a> ' + json.dumps({{'proxy': 'http://u:' + {SECRET!r} + '@h:1', 'pw': {SECRET!r}}}), flush=True)\n"
        f"print('proxy=user:PW51ab2e@h:3128 http://me:PW51ab2e@h/', {SECRET!r}, file=sys.stderr)\n"
        "tell('end', stats={})"
    )
    session = ansible(program)
    run(session)
    text = session.run.log.read_text()
    assert "51ab2e" not in text
    assert '"pw": "***"' in text
    assert "proxy=***@h:3128 http://***@h/" in text
    assert not list(session.run.path.glob(".*.pipe"))


def test_the_passwords_of_the_command_line_are_not_in_the_log(ansible):
    session = replace(ansible("hosts('a')\nprint('sudo said: s3cret-51ab2e')\ntell('end', stats={})"), become_password="s3cret-51ab2e")  # fmt: skip
    run(session)
    assert "sudo said: ***" in session.run.log.read_text()
