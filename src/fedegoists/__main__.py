"""Lets ``python -m fedegoists`` do what the command ``fedegoists`` does."""

from fedegoists.cli import main

if __name__ == "__main__":
    main()
