"""The command `vedette`. What a command needs is imported when it runs, so that each starts fast."""

from vedette_services.cli.app import main

__all__ = ["main"]
