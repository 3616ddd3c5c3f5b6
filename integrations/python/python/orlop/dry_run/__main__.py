"""The command: ``python -m orlop.dry_run`` is ``orlop dry-run``."""

import sys

from orlop.__main__ import main

if __name__ == "__main__":
    sys.exit(main("dry-run"))
