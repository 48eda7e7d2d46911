"""The ``gdpo`` command. All of it is in ``gdpo_nemo.suite``."""

from __future__ import annotations

from gdpo_nemo.suite import main

if __name__ == "__main__":
    main()
