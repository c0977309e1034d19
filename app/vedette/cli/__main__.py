"""``python -m vedette.cli``: how a daemon starts others."""

from vedette.cli.process import main

if __name__ == "__main__":
    main()
