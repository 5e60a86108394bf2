"""``python -m k25trace``."""

from k25trace.cli import main

if __name__ == "__main__":
    main()
