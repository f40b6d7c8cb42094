"""``python -m lockquack``."""

import sys

from lockquack.cli import main

if __name__ == "__main__":
    sys.exit(main())
