"""Run NCCL over several hosts without MPI: the first host serves a mailbox, from which the others fetch the id.

The caller proves that it knows the run's token (by a digest over a nonce, so the token is never sent) and receives the
id as one line. The mailbox listens only during the measurement.
"""

import hashlib
import hmac
import json
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Dict, Optional

if TYPE_CHECKING:
    from measure import Team

CONNECT_DEADLINE = 120


def measure(team: "Team", plan: Dict[str, Any]) -> Dict[str, Any]:
    """Take part as host `number` of `hosts`; plan: address, port, token, number, hosts, local, first, world, sizes."""
    members = [member for member in team.ready() if member.part is None][: plan["local"]]
    if len(members) < plan["local"]:
        return {
            "error": "failed",
            "message": "{} GPUs are ready, the plan counts on {}".format(len(members), plan["local"]),
        }
    if plan["number"] == 0:
        answer = members[0].worker.ask({"do": "nccl_id"}, team.deadlines["nccl_id"])
        if "error" in answer:
            return answer
        identity = answer["id"]
        try:
            box = Mailbox(None, plan["port"], plan["token"], identity, plan["hosts"] - 1)
        except OSError as failure:
            return {"error": "failed", "message": "port {} cannot be opened: {}".format(plan["port"], failure)}
        try:
            return team.collective(members, plan["sizes"], plan["first"], plan["world"], identity)
        finally:
            box.close()
    try:
        identity = fetch(plan["address"], plan["port"], plan["token"], CONNECT_DEADLINE)
    except (OSError, ValueError) as failure:
        return {
            "error": "unreachable",
            "message": "{} port {} did not hand out NCCL's id within {} s: {}".format(
                plan["address"], plan["port"], CONNECT_DEADLINE, failure
            ),
        }
    return team.collective(members, plan["sizes"], plan["first"], plan["world"], identity)


def proof(token: str, nonce: str) -> str:
    return hmac.new(token.encode("utf-8"), nonce.encode("utf-8"), hashlib.sha256).hexdigest()


class Mailbox:
    """Gives a document to callers that prove the token; on every address, since a host may not know its public one."""

    def __init__(self, host: Optional[str], port: int, token: str, document: object, readers: int) -> None:
        self._token, self._document, self._left = token, document, readers
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        self._socket = socket.socket(family)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(place)
        self._socket.listen(64)
        self.port = self._socket.getsockname()[1]
        thread = threading.Thread(target=self._serve)
        thread.daemon = True
        thread.start()

    def _serve(self) -> None:
        while self._left > 0:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            one = threading.Thread(target=self._answer, args=(connection,))
            one.daemon = True
            one.start()

    def _answer(self, connection: socket.socket) -> None:
        """Serve one caller, in its own thread, so that a silent one blocks no other."""
        with connection:
            connection.settimeout(10)
            try:
                nonce = os.urandom(16).hex()
                connection.sendall((nonce + "\n").encode("ascii"))
                line = connection.makefile("r").readline(200).strip()
                if hmac.compare_digest(line.encode("utf-8"), proof(self._token, nonce).encode("ascii")):
                    connection.sendall((json.dumps(self._document) + "\n").encode("ascii"))
                    self._left -= 1
            except (OSError, ValueError):
                return

    def close(self) -> None:
        self._socket.close()


def fetch(address: str, port: int, token: str, deadline: float) -> Any:
    """Ask the mailbox until it answers or the deadline passes."""
    ends = time.monotonic() + deadline
    while True:
        try:
            with socket.create_connection((address, port), timeout=5) as connection:
                stream = connection.makefile("r")
                nonce = stream.readline().strip()
                connection.sendall((proof(token, nonce) + "\n").encode("ascii"))
                line = stream.readline()
                if not line:
                    raise ValueError("it refused the token")
                return json.loads(line)
        except OSError:
            if time.monotonic() + 1 > ends:
                raise
            time.sleep(0.5)
