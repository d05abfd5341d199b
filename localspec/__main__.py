"""`python -m localspec` is the command `localspec`."""

from __future__ import annotations

from localspec.cli.main import main

if __name__ == "__main__":
    main()
