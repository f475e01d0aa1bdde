"""``python -m pcpmodel``: the command line, by the interpreter that has the package."""

# SPDX-License-Identifier: GPL-2.0-only

from pcpmodel.cli import main

if __name__ == "__main__":
    main()
