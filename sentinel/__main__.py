# SPDX-License-Identifier: Apache-2.0
"""`python -m sentinel` is the command line."""

import sys

from sentinel.cli import main

if __name__ == "__main__":
    sys.exit(main())
