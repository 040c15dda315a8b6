"""The lab's signing keys, made anew on each machine: one that is trusted, one that never is."""

import os
from pathlib import Path

from tests.lab.process import run

TRUSTED, WRONG = "gpusetup lab repository", "gpusetup lab wrong key"


class Keys:
    def __init__(self, home: Path) -> None:
        self.home = home
        if not (home / "pubring.kbx").exists():
            home.mkdir(parents=True, mode=0o700, exist_ok=True)
            for name in (TRUSTED, WRONG):
                self._gpg("--quick-gen-key", "--passphrase", "", name, "rsa3072", "sign", "never")

    def fingerprint(self, *, wrong: bool = False) -> str:
        listed = self._gpg("--list-keys", "--with-colons", WRONG if wrong else TRUSTED)
        return next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))

    def armored(self, *, wrong: bool = False) -> str:
        return self._gpg("--armor", "--export", WRONG if wrong else TRUSTED)

    def clearsign(self, text: str, target: Path, *, wrong: bool = False) -> None:
        signed = self._gpg(
            "--local-user", WRONG if wrong else TRUSTED, "--digest-algo", "SHA512", "--clearsign", text=text
        )
        target.write_text(signed)

    def detached(self, path: Path, *, wrong: bool = False) -> str:
        return self._gpg("--local-user", WRONG if wrong else TRUSTED, "--armor", "--detach-sign", "--output", "-", path)

    def _gpg(self, *argv: str | Path, text: str | None = None) -> str:
        environment = {**os.environ, "GNUPGHOME": str(self.home)}
        return run(["gpg", "--batch", "--quiet", "--no-tty", *argv], text=text, env=environment).stdout

    def close(self) -> None:
        """gpg leaves an agent behind."""
        run(["gpgconf", "--homedir", self.home, "--kill", "all"], check=False)
