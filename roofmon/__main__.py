"""`python -m roofmon` is the `roofmon` command."""

import sys

from roofmon.cli.main import main

sys.exit(main())
