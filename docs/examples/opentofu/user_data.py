"""Answer OpenTofu's data source "external": JSON with a question in, JSON with the user-data out."""

import json
import shlex
import subprocess
import sys

asked = json.load(sys.stdin)
words = [*shlex.split(asked["command"]), "cloud-init", *asked["requirements"].split()]
for name in ("gpu", "os", "source", "manifest", "stage"):
    if asked[name]:
        words += [f"--{name}", asked[name]]
made = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)  # its errors go to OpenTofu as they are
if made.returncode:
    sys.exit(made.returncode)
json.dump({"user_data": made.stdout}, sys.stdout)
