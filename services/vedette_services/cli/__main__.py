"""``python -m vedette_services.cli``: how a daemon starts others."""

from vedette_services.cli.app import main

if __name__ == "__main__":
    main()
