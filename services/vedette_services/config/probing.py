"""Finds an environment's spaces by making one, or the reason why that fails here."""

from __future__ import annotations

import logging
import re
import warnings

from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.make import probe_environment
from vedette_rl.envs.spaces import Spaces
from vedette_rl.errors import RlError
from vedette_services.errors import SettingError, UsageError, foreign_error_message

log = logging.getLogger("vedette.config")


def probe_spaces(env: EnvConfig) -> Spaces:
    """The spaces of an environment, by making one, resetting it and stepping it once.

    Raises:
        SettingError: it cannot be made here, or fails at once.
    """
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            return probe_environment(env)
        except RlError as e:
            raise SettingError("env.id", str(e)) from e
        except UsageError:  # of a module that must not be imported: it says what to do
            raise
        except Exception as e:
            raise SettingError(
                "env.id",
                f"{env.id} fails when it is made, reset and stepped: {foreign_error_message(e)}",
                "fix the environment; VEDETTE_TRACEBACK=1 shows where",
            ) from e
        finally:
            for text in dict.fromkeys(_plain(str(warning.message)) for warning in warned):
                log.warning("environment %s: %s", env.id, text)


def _plain(warning: str) -> str:
    """Gymnasium's warning without its colours."""
    return re.sub(r"\x1b\[\d*m", "", warning).removeprefix("WARN: ").strip()


def environment_errors(env: EnvConfig) -> tuple[SettingError, ...]:
    """Why an environment cannot be made here; nothing if it can."""
    try:
        probe_spaces(env)
    except SettingError as error:
        return error.errors
    return ()
