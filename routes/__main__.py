"""`python -m routes`: the same as the `dragoman` command."""

import sys

from routes.cli.main import main

sys.exit(main())
