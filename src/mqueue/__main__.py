"""`python -m mqueue` is `mqueue`."""

import sys

from mqueue.cli.main import main

sys.exit(main())
