"""The command `vedette`. A command imports what it needs when it runs, so that each starts fast."""

from vedette.cli.process import main

__all__ = ["main"]
