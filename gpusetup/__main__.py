"""`python -m gpusetup`: the same as the `gpusetup` command."""

import sys

from gpusetup.cli.main import main

sys.exit(main())
