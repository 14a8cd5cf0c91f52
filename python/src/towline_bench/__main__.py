"""``python -m towline_bench``."""

import sys

from towline_bench.cli import main

sys.exit(main())
