"""Scrape an exporter of this host, as Prometheus would."""

from typing import Any, Dict

_EVERYBODY = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - the address to connect to
_MOST = 8 << 20


def scrape(listen: str, secured: bool, seconds: float) -> Dict[str, Any]:
    """Return {"status", "text", "error"}; no password is sent, so a protected exporter answers 401."""
    import http.client
    import ssl  # imported late: most probes do not need these
    import urllib.error
    import urllib.request

    address, _, port = listen.rpartition(":")
    url = "{}://{}:{}/metrics".format("https" if secured else "http", _EVERYBODY.get(address, address), port)
    handlers: Any = [urllib.request.ProxyHandler({})]  # never through a proxy
    if secured:
        # No verification: this is the host's own port, and the certificate is issued for another name.
        nobody = ssl.create_default_context()
        nobody.check_hostname, nobody.verify_mode = False, ssl.CERT_NONE
        handlers.append(urllib.request.HTTPSHandler(context=nobody))
    try:
        with urllib.request.build_opener(*handlers).open(url, timeout=seconds) as answer:
            return {"status": answer.status, "text": answer.read(_MOST).decode("utf-8", "replace"), "error": ""}
    except urllib.error.HTTPError as error:
        return {"status": error.code, "text": "", "error": str(error)}
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        return {"status": None, "text": "", "error": str(reason) or type(error).__name__}
