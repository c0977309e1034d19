"""Errors of `vedette_rl` where a start meets them."""

import errno
import socket

import pytest

from vedette_rl.errors import DataSetError, NoImageError, RlError, UnknownNameError
from vedette_services.errors import (
    ConfigError,
    SettingError,
    config_errors,
    custom_part_errors,
    error_message,
)


def line_of(error: RlError, key: str = "", fix: str = "") -> ConfigError:
    with pytest.raises(ConfigError) as raised, config_errors(key, fix):
        raise error
    assert raised.value.__cause__ is error
    return raised.value


def test_an_error_that_carries_its_key_begins_with_it_and_ends_with_its_fix() -> None:
    line = line_of(NoImageError("Discrete(2)", "auto"), key="env.id", fix="choose another")
    assert isinstance(line, SettingError)
    assert line.key == "agent.network"
    assert str(line).startswith("agent.network: 'cnn' takes uint8 images")
    assert str(line).endswith(
        "not Discrete(2); set agent.network=auto, or make it one by env.wrappers"
    )


def test_an_error_without_a_key_takes_the_callers_key_and_fix() -> None:
    line = line_of(RlError("nothing is there"), key="learner.init_from", fix="name another")
    assert isinstance(line, SettingError)
    assert str(line) == "learner.init_from: nothing is there; name another"


def test_an_error_has_its_own_fix_with_the_callers_key() -> None:
    line = line_of(DataSetError("demos", "it is torn", "repair it"), "replay.sources.a.data", "-")
    assert str(line) == "replay.sources.a.data: demos: it is torn; repair it"


def test_a_sentence_that_names_its_key_stays_as_it_is() -> None:
    line = line_of(UnknownNameError("agent.network", "mine:Net", "there is no module 'mine'"))
    assert not isinstance(line, SettingError)
    assert str(line) == "agent.network is 'mine:Net': there is no module 'mine'"


def test_a_custom_part_that_fails_is_named_by_its_key_with_where_it_did() -> None:
    with pytest.raises(SettingError) as raised, custom_part_errors("replay.name", "mine:Replay"):
        raise ValueError("no rows")
    assert str(raised.value).startswith(
        "replay.name: mine:Replay fails when it is made: ValueError: no rows"
    )
    assert str(raised.value).endswith("; fix it; VEDETTE_TRACEBACK=1 shows where")


def test_a_part_of_ours_that_fails_is_no_fault_of_the_configuration() -> None:
    with pytest.raises(ValueError, match="no rows"), custom_part_errors("replay.name", "auto"):
        raise ValueError("no rows")


def test_an_error_that_a_custom_part_meets_in_ours_says_enough() -> None:
    error = UnknownNameError("agent.network", "mine:Net", "there is no module 'mine'")
    with pytest.raises(UnknownNameError) as raised, custom_part_errors("agent.network", "mine:Net"):
        raise error
    assert raised.value is error


@pytest.mark.parametrize("chained", [False, True])
def test_an_environment_whose_address_is_in_use_is_told_how_each_gets_its_own(
    chained: bool,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as first:
        try:
            try:
                socket.create_server(first.getsockname()).close()
            except OSError as error:
                if not chained:
                    raise
                raise RuntimeError("no simulator") from error
        except (OSError, RuntimeError) as error:
            said = error_message(error)
    assert "address of its own, such as a free port (env.kwargs)" in said
    assert "actors.count=1 actors.envs_per_actor=1 learner.eval_interval=0" in said


def test_another_error_of_the_system_says_nothing_of_addresses() -> None:
    assert "address" not in error_message(OSError(errno.ECONNREFUSED, "Connection refused"))
