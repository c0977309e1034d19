"""Errors of a manager and its actors. Each writes its own sentence."""

from __future__ import annotations

from vedette_services.errors import RefusedError, ServicesError


class ActorError(ServicesError):
    """Everything that `vedette_services.actors` raises on its own account."""


class HandoverError(ActorError):
    """An actor's shared memory holds what no actor of ours writes."""


class SpecMismatchError(ActorError, RefusedError):
    """This host would build something else than the learner's run describes: never acted on."""

    def __init__(self, what: str, difference: str) -> None:
        super().__init__(
            f"this host's {what} differs from the run's: {difference}; "
            "install the learner's versions of vedette and of the environment here"
        )
        self.what = what


class RunImportRefusedError(ActorError, RefusedError):
    """The run names code to import that the operator of this host has not allowed."""

    def __init__(self, name: str, package: str) -> None:
        super().__init__(
            f"the learner's run imports {name!r}, which this host does not allow; "
            f"if you trust it, start with --allow-import {package}"
        )
        self.package = package


class RunNotUnderstoodError(ActorError, RefusedError):
    """The run's settings are not those that this version of Vedette knows."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the learner's run cannot be played here: {why}; "
            "fix the learner's configuration, or install its version of vedette here"
        )
