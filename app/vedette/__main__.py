"""``python -m vedette``: the same as the command ``vedette``, where that is not on the path."""

from vedette.cli.process import main

if __name__ == "__main__":
    main()
