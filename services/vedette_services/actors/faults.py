"""The border at which a fault of what plays becomes the refusal of a run.

Agents, step processors, models and environments come from elsewhere. What one of them does against
the run's description would happen again at the next try, so that it ends the actor for good.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from vedette_rl.errors import (
    CustomPartError,
    DeclaredSpaceError,
    HindsightError,
    ModelMismatchError,
    RowColumnError,
)
from vedette_services.errors import RefusedError, SpecMismatchError

P = ParamSpec("P")
T = TypeVar("T")


def refuses_faults(function: Callable[P, T]) -> Callable[P, T]:
    """Refuse the run where a call meets a model, an environment or rows that are not as it says.

    Raises:
        SpecMismatchError: the policy or the environment of this host is another than the run's.
        RefusedError: rows have columns or actions that are not declared, or cannot be relabelled.
    """

    @functools.wraps(function)
    def refusing(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except ModelMismatchError as error:
            raise SpecMismatchError("policy", str(error)) from error
        except DeclaredSpaceError as error:
            raise SpecMismatchError("environment", str(error)) from error
        except (CustomPartError, RowColumnError) as error:
            raise RefusedError(f"the rows that actors make: {error}") from error
        except HindsightError as error:
            raise RefusedError(str(error)) from error

    return refusing
