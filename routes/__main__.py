"""`python -m routes`: the same as the `dragoman` command."""

import sys

from routes.cli import main

sys.exit(main())
