"""Evaluations that managers play: whose count, and where nobody's could."""

from __future__ import annotations

from pathlib import Path

from vedette_services.config.run_config import RunConfig
from vedette_services.errors import SettingError
from vedette_services.net.addresses import Address
from vedette_services.net.keys import list_keys

_UNPLAYED = "where none plays any, the returns of their actors count"


def check_trust(config: RunConfig, address: Address, keys: Path | None) -> tuple[str, ...]:
    """Refuse evaluations by managers of which none could count; nothing where the learner plays.

    Args:
        address: where the learner will listen.
        keys: folder of its keys; None: none.

    Returns:
        Lines for the user.

    Raises:
        SettingError: names the key and the fix.
    """
    trusted = config.evaluation.trusted
    key = "evaluation.trusted"
    if trusted and keys is None:
        raise SettingError(key, "names keys, and the learner has none", "start it with --keys DIR")
    if not (config.evaluates_on_actors and config.learner.eval_interval):
        return ()
    if keys is None and address.loopback:
        all_count = "evaluations are played by the managers on this host, which all count"
        return (f"{all_count}; {_UNPLAYED}",)
    if keys is None:
        raise SettingError(
            "evaluation.where",
            f"actors: without keys whoever reaches {address} could claim any return",
            f"start with --keys DIR and name the evaluators' keys in {key}",
        )
    own, admitted = list_keys(keys)
    keyed = {one.public.decode(): one.name for one in (own, *admitted)}
    names = keyed | {name: name for name in keyed.values()}
    known = [names[one] for one in trusted if one in names]
    lines = [f"{key}: no key {one} is admitted" for one in trusted if one not in names]
    stop = config.stop
    if not trusted and stop.target_return is not None:
        others = stop.max_opts or stop.max_env_steps or stop.max_seconds
        if not others:
            fix = f"name the evaluators' keys in {key} (`vedette keys list {keys}`)"
            raise SettingError("stop.target_return", f"is never reached without {key}", fix)
    if not known:
        return (*lines, f"{key} names nobody: evaluations are shown, and decide nothing")
    who = ", ".join(known)
    return (*lines, f"evaluations are played by managers; those of {who} count; {_UNPLAYED}")
