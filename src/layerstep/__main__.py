"""`python -m layerstep` is `layerstep`."""

import sys

from layerstep.cli import main

sys.exit(main())
