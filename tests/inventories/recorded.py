"""Clouds as their plugins meet them: by their own names, over TLS, behind a proxy, with answers in the documented form.

The plugins and their libraries are the real ones and are configured as for the real cloud. What answers is here: it asks
for the credentials, hands lists out page by page, and remembers what it was asked.
"""

import http.server
import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.certificates import Authority
from tests.flaky import listening
from tests.inventories import answers

SECRETS = {
    "aws": "aws-secret-3f5a", "gcp": "gcp-token-77b2", "azure": "azure-secret-c04d", "netbox": "netbox-token-9e1b",
}  # fmt: skip
NETBOX = "netbox.example"


@dataclass
class Cloud:
    environment: dict[str, str]
    asked: list[str] = field(default_factory=list)
    """`METHOD host/path`, in the order in which they came."""


@contextmanager
def clouds(folder: Path, hosts: int = 4, page: int = 2) -> Iterator[Cloud]:
    """Answer until the end of the block, with so many machines in each cloud."""
    authority = Authority(folder)
    names = ("ec2.eu-west-1.amazonaws.com", "www.googleapis.com", "login.microsoftonline.com", "management.azure.com")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.pair(*names, NETBOX))
    cloud = Cloud({})
    with listening(_handler(cloud, context, hosts, page)) as server:
        trust = str(authority.certificate)
        cloud.environment = {
            "HTTPS_PROXY": server.url, "https_proxy": server.url,
            "REQUESTS_CA_BUNDLE": trust, "AWS_CA_BUNDLE": trust, "SSL_CERT_FILE": trust, "NO_PROXY": "", "no_proxy": "",
            "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": SECRETS["aws"], "AWS_EC2_METADATA_DISABLED": "true",
            "GCP_ACCESS_TOKEN": SECRETS["gcp"],
            "AZURE_SUBSCRIPTION_ID": answers.SUBSCRIPTION, "AZURE_TENANT": answers.TENANT, "AZURE_CLIENT_ID": "client",
            "AZURE_SECRET": SECRETS["azure"],
            "NETBOX_API": f"https://{NETBOX}", "NETBOX_TOKEN": SECRETS["netbox"],
        }  # fmt: skip
        yield cloud


def _handler(cloud: Cloud, context: ssl.SSLContext, hosts: int, page: int) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1
        host = ""

        def do_CONNECT(self) -> None:
            """Become the host that is asked for."""
            self.host = self.path.partition(":")[0]
            self.send_response(200)
            self.end_headers()
            self.wfile.flush()
            self.connection = context.wrap_socket(self.connection, server_side=True)
            self.rfile = self.connection.makefile("rb", self.rbufsize)
            self.wfile = self.connection.makefile("wb")
            self.close_connection = False

        def do_GET(self) -> None:
            address = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            cloud.asked.append(f"{self.command} {self.host}{address.path}")
            asked = Asked(self.host, address.path, _flat(address.query), body, self.headers.get("Authorization", ""))
            status, kind, text = _answered(asked, hosts, page)
            content = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            self.wfile.flush()

        do_POST = do_GET  # noqa: N815 - the name that http.server calls

    return Handler


@dataclass(frozen=True)
class Asked:
    host: str
    path: str
    query: dict[str, str]
    body: str
    authorization: str


def _flat(text: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(text).items()}


def _answered(asked: Asked, hosts: int, page: int) -> tuple[int, str, str]:
    answer = _ANSWERS.get(asked.host)
    return answer(asked, hosts, page) if answer is not None else (404, "text/plain", asked.host)


def _json(document: Any, status: int = 200) -> tuple[int, str, str]:
    return status, "application/json", json.dumps(document)


def _aws(asked: Asked, hosts: int, page: int) -> tuple[int, str, str]:
    if not asked.authorization.startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"):
        return 401, "text/xml", "<Response><Errors><Error><Code>AuthFailure</Code></Error></Errors></Response>"
    form = _flat(asked.body)
    assert form["Action"] == "DescribeInstances", form
    start = int(form.get("NextToken", 0))
    more = str(start + page) if start + page < hosts else ""
    return 200, "text/xml;charset=UTF-8", answers.aws(range(start, min(hosts, start + page)), more)


def _gcp(asked: Asked, hosts: int, page: int) -> tuple[int, str, str]:
    if asked.authorization != f"Bearer {SECRETS['gcp']}":
        return _json({"error": {"code": 401, "errors": [{"reason": "authError"}]}}, 401)
    assert asked.path == "/compute/v1/projects/example-project/aggregated/instances", asked.path
    assert asked.query["filter"] == "status = RUNNING"
    start = int(asked.query.get("pageToken", 0))
    more = str(start + page) if start + page < hosts else ""
    return _json(answers.gcp(range(start, min(hosts, start + page)), more))


def _azure_login(asked: Asked, _hosts: int, _page: int) -> tuple[int, str, str]:
    if asked.path.endswith("/token"):
        right = _flat(asked.body).get("client_secret") == SECRETS["azure"]
        return _json(answers.AZURE_TOKEN) if right else _json({"error": "invalid_client"}, 401)
    return _json(answers.azure_discovery(asked.path))


def _azure(asked: Asked, hosts: int, page: int) -> tuple[int, str, str]:
    if asked.authorization != f"Bearer {answers.AZURE_TOKEN['access_token']}":
        return _json({"error": {"code": "AuthenticationFailed"}}, 401)
    if asked.path == "/batch":
        found = []
        for one in json.loads(asked.body)["requests"]:
            address = urlsplit(one["url"])
            content = answers.azure(address.path, _flat(address.query), hosts, page)
            found.append({"httpStatusCode": 200, "name": one["name"], "content": content})
        return _json({"responses": found})
    return _json(answers.azure(asked.path, asked.query, hosts, page))


def _netbox(asked: Asked, hosts: int, page: int) -> tuple[int, str, str]:
    if asked.authorization != f"Token {SECRETS['netbox']}":
        return _json({"detail": "Invalid token"}, 401)
    return _json(answers.netbox(asked.path, asked.query, f"https://{NETBOX}", hosts, page))


_ANSWERS: dict[str, Callable[[Asked, int, int], tuple[int, str, str]]] = {
    "ec2.eu-west-1.amazonaws.com": _aws, "www.googleapis.com": _gcp, "login.microsoftonline.com": _azure_login,
    "management.azure.com": _azure, NETBOX: _netbox,
}  # fmt: skip
