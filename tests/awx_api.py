"""A stand-in of AWX's REST API: what its own collection of modules asks for is kept and given back, as they expect it.

What is real are those modules (awx.awx, from the package `ansible`) and what they make of a playbook. That a field exists
is judged by their argument specs; the rules for surveys and for the graph of a workflow are AWX's, kept here.
"""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.flaky import listening

PACKAGE = "ansible==11.13.0"
"""The last major version of the package that holds awx.awx 24.6.1, the newest release of it."""
_WAYS = ("success_nodes", "failure_nodes", "always_nodes")
_TYPES = {"text": str, "textarea": str, "password": str, "integer": int, "float": (int, float), "multiplechoice": str, "multiselect": str}  # fmt: skip


def awx_collection() -> Path | None:
    """Return a collections path with awx.awx, fetched once with pip; None where the package index cannot be had."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpusetup-tests" / PACKAGE
    if not (cache / "ansible_collections/awx/awx/MANIFEST.json").exists():
        cache.mkdir(parents=True, exist_ok=True)
        argv = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", str(cache), PACKAGE]
        if subprocess.run(argv, check=False, capture_output=True, timeout=300).returncode:
            return None
        (wheel,) = cache.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            wanted = [name for name in archive.namelist() if name.startswith("ansible_collections/awx/awx/")]
            archive.extractall(cache, sorted(wanted, key=lambda name: name.endswith("MANIFEST.json")))
        wheel.unlink()
    return cache


class StandInAwx:
    """The server: a context manager with its address; `items` are what it keeps, by endpoint and number."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.items: dict[str, dict[int, dict[str, Any]]] = {}
        self.surveys: dict[str, dict[str, Any]] = {}
        self.ties: dict[str, list[int]] = {}
        self.changes: list[str] = []
        self.unauthorised = 0

    def __enter__(self) -> Any:
        self.served = ExitStack()
        self.address: str = self.served.enter_context(listening(_handler(self))).url
        return self

    def __exit__(self, *_: object) -> None:
        self.served.close()

    def add(self, endpoint: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Keep an item as AWX shows it."""
        number = sum(len(kept) for kept in self.items.values()) + 1
        url = f"/api/v2/{endpoint}/{number}/"
        related = {"survey_spec": f"{url}survey_spec/"}
        item = {
            "id": number, "type": endpoint.rstrip("s"), "url": url, "related": related, "summary_fields": {},
            **fields,
        }  # fmt: skip
        if endpoint == "projects":
            item |= {"status": "successful", "scm_revision": "0" * 40}
        self.items.setdefault(endpoint, {})[number] = item
        return item

    def named(self, endpoint: str) -> dict[str, dict[str, Any]]:
        """Return items by name."""
        return {item.get("name") or item["identifier"]: item for item in self.items.get(endpoint, {}).values()}

    def ways(self) -> dict[str, dict[str, list[str]]]:
        """Return the workflow's graph: by node and way the nodes that follow."""
        nodes = self.items["workflow_job_template_nodes"]
        return {
            node["identifier"]: {
                way: [nodes[other]["identifier"] for other in self.ties.get(f"{node['url']}{way}/", [])]
                for way in _WAYS
            }
            for node in nodes.values()
        }

    def found(self, endpoint: str, query: dict[str, str]) -> Iterator[dict[str, Any]]:
        kept = dict(self.items.get(endpoint, {}))
        if endpoint == "unified_job_templates":
            kept = {**self.items.get("job_templates", {}), **self.items.get("projects", {})}
        for item in kept.values():
            if all(
                str(item.get(name)) == value for name, value in query.items() if not name.startswith(("or__", "page"))
            ):
                yield item


def survey_problem(spec: dict[str, Any]) -> str:
    """Return what AWX would have against a survey."""
    if {"name", "description", "spec"} - set(spec) or not spec["spec"]:
        return "name, description and spec, of which the last has questions"
    seen: set[str] = set()
    for number, question in enumerate(spec["spec"]):
        missing = {"type", "question_name", "variable", "required"} - set(question)
        if missing or not isinstance(question["required"], bool) or question["variable"] in seen:
            return f"question {number}: {sorted(missing)} missing, or not what they have to be"
        seen.add(question["variable"])
        kind, default = question["type"], question.get("default", "")
        if kind not in _TYPES or (default != "" and not isinstance(default, _TYPES[kind])):
            return f"question {number}: its type or its default"
        if kind.startswith("multi") and not question.get("choices"):
            return f"question {number}: choices"
    return ""


def _handler(awx: StandInAwx) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self, document: object, status: int = 200) -> None:
            body = b"" if status == 204 else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-API-Product-Name", "AWX")
            self.send_header("X-API-Product-Version", "24.6.1")
            self.end_headers()
            self.wfile.write(body)

        def handle_one_request(self) -> None:
            self.data: Any = None
            super().handle_one_request()

        def read(self) -> list[str] | None:
            length = int(self.headers.get("Content-Length") or 0)
            self.data = json.loads(self.rfile.read(length) or b"{}")
            if self.headers.get("Authorization") != f"Bearer {awx.token}":
                awx.unauthorised += 1
                self.answer({"detail": "Authentication credentials were not provided."}, 401)
                return None
            return [part for part in urlsplit(self.path).path.removeprefix("/api/v2/").split("/") if part]

        def do_GET(self) -> None:
            parts = self.read()
            if parts is None:
                return
            if len(parts) == 1:
                found = list(awx.found(parts[0], dict(parse_qsl(urlsplit(self.path).query))))
                self.answer({"count": len(found), "next": None, "previous": None, "results": found})
            elif len(parts) == 2:
                item = awx.items.get(parts[0], {}).get(int(parts[1]))
                self.answer(item or {}, 200 if item else 404)
            elif parts[2] == "survey_spec":
                self.answer(awx.surveys.get("/".join(parts[:2]), {}))
            else:
                tied = awx.ties.get(urlsplit(self.path).path, [])
                self.answer({"count": len(tied), "next": None, "results": [{"id": number} for number in tied]})

        def do_POST(self) -> None:
            parts = self.read()
            if parts is None:
                return
            awx.changes.append(f"POST {self.path}")
            if len(parts) == 1:
                self.answer(awx.add(parts[0], self.data), 201)
            elif parts[2] == "survey_spec":
                problem = survey_problem(self.data)
                if not problem:
                    awx.surveys["/".join(parts[:2])] = self.data
                self.answer({"error": problem}, 400 if problem else 200)
            elif parts[2] == "create_approval_template":
                node = awx.items[parts[0]][int(parts[1])]
                made = awx.add("workflow_approval_templates", self.data)
                node["related"]["unified_job_template"], node["unified_job_template"] = made["url"], made["id"]
                self.answer(made, 201)
            else:
                tied = awx.ties.setdefault(urlsplit(self.path).path, [])
                (tied.remove if self.data.get("disassociate") else tied.append)(self.data["id"])
                self.answer(None, 204)

        def do_PATCH(self) -> None:
            parts = self.read()
            if parts is None:
                return
            awx.changes.append(f"PATCH {self.path} {sorted(self.data)}")
            item = awx.items[parts[0]][int(parts[1])]
            item.update(self.data)
            self.answer(item)

    return Handler
