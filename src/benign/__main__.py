"""`python -m benign` is `benign`."""

import sys

from benign.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
