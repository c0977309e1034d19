"""The typed face of the configuration in Python: its own classes, as keywords."""

import copy
import datetime
import functools
import inspect
import pickle
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import gymnasium as gym
import numpy as np
import pytest
from configurations import configured
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from pydantic import BaseModel

import vedette
from vedette import words_of_others
from vedette.settings import Settings, configuration_table
from vedette_rl.agents.registry import BUILT_IN
from vedette_rl.envs import make_env
from vedette_rl.errors import WrongSettingsError
from vedette_services.config import RunConfig, read_config, write_config
from vedette_services.errors import SettingError, UsageError


def test_the_keywords_are_the_parts_of_the_configuration() -> None:
    assert Settings.__annotations__.keys() == RunConfig.model_fields.keys()
    for name, kinds in get_type_hints(Settings).items():
        wanted = RunConfig.model_fields[name].annotation
        if isinstance(wanted, type) and issubclass(wanted, BaseModel):
            assert wanted in kinds.__args__, name
            assert getattr(vedette, wanted.__name__) is wanted


@pytest.mark.parametrize("function", [vedette.train, vedette.train_seeds])
def test_help_and_notebooks_see_every_keyword(function: Any) -> None:
    names = inspect.signature(function).parameters
    assert {"out", "in_process", *Settings.__annotations__} <= names.keys()


def test_every_agent_is_there_under_its_name() -> None:
    for kind in BUILT_IN.values():
        assert getattr(vedette, kind.name.upper()) is kind.config
        assert kind.name.upper() in vedette.__all__


def test_upstreams_name_is_the_same_function() -> None:
    assert vedette.train_async is vedette.train


def test_what_is_given_replaces_the_preset_and_the_rest_is_the_presets() -> None:
    table = configuration_table(
        {
            "env": "Pendulum-v1",
            "agent": vedette.SAC(learning_rate=0.5),
            "actors": 3,
            "seed": 7,
            "replay": None,
            "stop": vedette.StopConfig(target_return=None, max_opts=9),
        },
        shared=True,
    )
    assert table == {
        "env": {"id": "Pendulum-v1"},
        "agent": {"name": "sac", "learning_rate": 0.5},
        "actors": {"count": 3},
        "seed": 7,
        "stop": {"target_return": None, "max_opts": 9},
    }
    preset = configured(env="Pendulum-v1")
    config = configured(table=table)
    assert (config.agent.learning_rate, config.actors.count, config.seed) == (0.5, 3, 7)
    assert (config.stop.target_return, config.stop.max_opts) == (None, 9)
    assert preset.stop.target_return is not None
    assert config.replay == preset.replay
    assert config.agent.model_copy(update={"learning_rate": 1.0}) == preset.agent.model_copy(
        update={"learning_rate": 1.0}
    )


CART_POLE = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
SHORT = vedette.EnvConfig(id="CartPole-v1", max_episode_steps=9)
BARTO = functools.partial(CartPoleEnv, sutton_barto_reward=True)


@pytest.mark.parametrize(
    ("env", "wanted"),
    [
        (CartPoleEnv, {"id": CART_POLE}),
        (gym.spec("CartPole-v1"), {"id": "CartPole-v1"}),
        (gym.make("CartPole-v1"), {"id": "CartPole-v1"}),
        (SHORT, {"id": "CartPole-v1", "max_episode_steps": 9}),
        (BARTO, {"id": CART_POLE, "kwargs": {"sutton_barto_reward": True}}),
    ],
    ids=["class", "spec", "made", "config", "partial"],
)
def test_an_environment_has_many_forms(env: object, wanted: dict[str, object]) -> None:
    assert configuration_table({"env": env}, shared=True) == {"env": wanted}


def test_an_agent_of_ones_own_keeps_its_name() -> None:
    own = vedette.AgentConfig(name="custom_agent:Linear", n_step=3)
    assert configuration_table({"agent": own}, shared=True) == {
        "agent": {"name": "custom_agent:Linear", "n_step": 3}
    }


@pytest.mark.parametrize("kind", [vedette.DQN, vedette.SAC])
def test_an_agents_class_is_that_agent(kind: type[vedette.AgentConfig]) -> None:
    name = kind.model_fields["name"].default
    assert configuration_table({"agent": kind}, shared=True) == {"agent": {"name": name}}
    assert configuration_table({"stop": vedette.StopConfig}, shared=True) == {"stop": {}}
    with pytest.raises(SettingError, match=r"agent: AgentConfig names no agent; make one: Agent"):
        configuration_table({"agent": vedette.AgentConfig}, shared=True)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"stop": 5}, r"stop: 5 are no settings; give vedette\.StopConfig"),
        ({"agent": 5}, r"agent: 5 are no settings; give a name, or vedette\.DQN"),
        ({"agent": vedette.StopConfig()}, r"agent: StopConfig is of another part; give a name, or"),
        ({"replay": vedette.EvaluationConfig()}, "replay: EvaluationConfig is of another part"),
        ({"evaluation": vedette.ReplayConfig}, "evaluation: ReplayConfig is of another part"),
        ({"env": vedette.DQN()}, "env: DqnConfig is of another part; give an env"),
        ({"actors": "4"}, r"actors: '4' are no settings; give their number, or vedette\.Act"),
    ],
)
def test_what_is_no_part_of_the_configuration_is_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        configuration_table(settings, shared=True)


def test_a_dictionary_is_settings_as_keywords_are(tmp_path: Path) -> None:
    result = vedette.train(
        {
            "env": "CartPole-v1",
            "agent": {"name": "dqn", "hidden_sizes": [8]},
            "learner": {"warmup_period": 32, "eval_interval": 0},
            "stop": {"max_opts": 2},
        },
        out=tmp_path / "run",
        in_process=True,
        progress=False,
    )
    assert result.exit_reason == "max_opts"
    with pytest.raises(SettingError, match=r"^envs: unknown setting; did you mean act"):
        vedette.train({"envs": "CartPole-v1"})
    with pytest.raises(SettingError, match="env: it is given to train twice, in the dictionary"):
        vedette.train({"env": "CartPole-v1"}, env="CartPole-v1")


untyped: Any = vedette  # what type checkers refuse is tried
INSTEAD = "write vedette.train(env='Pendulum-v1', agent=vedette.SAC(...), stop="


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: untyped.SAC("MlpPolicy", "Pendulum-v1", verbose=1), INSTEAD),
        (lambda: untyped.SAC(policy="MlpPolicy", env="Pendulum-v1"), INSTEAD),
        (lambda: untyped.DQN("MlpPolicy", gym.make("CartPole-v1")), "train(env='...', agent=ved"),
        (lambda: untyped.StopConfig(1000), "stop: 1000 is given without a key; its keys are max_o"),
    ],
)
def test_the_habits_of_other_libraries_are_answered(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(WrongSettingsError) as wrong:
        make()
    assert said in str(wrong.value)
    assert isinstance(wrong.value, ValueError)
    assert "\n" not in str(wrong.value)


def test_methods_that_an_agent_of_settings_has_not_are_answered() -> None:
    agent: Any = vedette.DQN()
    with pytest.raises(AttributeError, match=r"do not learn: .* vedette\.train\(env='CartPole-v1'"):
        agent.learn(1000)
    with pytest.raises(AttributeError, match=r"do not predict: .*result\.load_policy\(\)"):
        agent.predict([0.0])
    with pytest.raises(AttributeError, match="has no attribute 'nosuch'"):
        _ = agent.nosuch
    assert not hasattr(agent, "learn")


def test_settings_show_what_differs_from_the_defaults() -> None:
    assert repr(vedette.DQN()) == "DqnConfig()"
    assert repr(vedette.DQN(learning_rate=0.5, batch_size=32)) == (
        "DqnConfig(learning_rate=0.5)"
        if vedette.DQN().batch_size == 32
        else "DqnConfig(batch_size=32, learning_rate=0.5)"
    )
    assert repr(vedette.EnvConfig(id="x")) == "EnvConfig(id='x')"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"seeds": 0}, "seeds=0: the number of runs, from 1 on"),
        ({"seeds": [1, 2]}, r"seeds=\[1, 2\]: the number of runs"),
        ({"jobs": 0}, "jobs=0: a number of runs at a time, from 1 on"),
        ({"sweep": {"agent.learning_rate": 1e-3}}, r"learning_rate is 0\.001: .* \[0\.001\]"),
        ({"sweep": {"agent.network": "cnn"}}, r"agent\.network is 'cnn': .* \['cnn'\]"),
        ({"sweep": {"seed": []}}, "sweep: seed has no values"),
        ({"sweep": ["seed=1"]}, "give lists of values by key"),
    ],
)
def test_several_seeds_of_no_number_or_values_are_refused(
    tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        vedette.train_seeds(env="CartPole-v1", out=tmp_path / "runs", **given)
    assert isinstance(refused.value, UsageError)
    assert not (tmp_path / "runs").exists()


def test_settings_of_a_part_are_checked_as_dictionaries_too(tmp_path: Path) -> None:
    """A type checker takes both forms: this file is checked with the others."""
    given: Settings = {"stop": {"max_opts": 5}, "agent": vedette.DQN, "actors": {"count": 1}}
    assert configuration_table(given, shared=True)["stop"] == {"max_opts": 5}
    with pytest.raises(SettingError, match="unknown key; did you mean"):
        vedette.train(env="CartPole-v1", stop={"max_opt": 5}, out=tmp_path / "run")


def test_errors_that_callers_handle_are_in_the_package() -> None:
    for name in ("SettingError", "ArgumentError", "SpaceLayoutError", "WrongSettingsError"):
        assert issubclass(getattr(vedette, name), ValueError)
    assert issubclass(vedette.ReplayWaitError, TimeoutError)
    for name in ("NoModelError", "NotARunError", "RefusedError", "RunOverError"):
        assert issubclass(getattr(vedette, name), vedette.ServicesError)
    assert issubclass(vedette.PolicyFileError, vedette.RlError)


def test_a_wrong_keyword_starts_nothing_and_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="did you mean seed"):
        vedette.train(out=tmp_path / "run", sed=3)  # type: ignore[call-arg]  # it is wrong
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("foo", "foo: unknown argument; there are run, config, bind, .*, env, agent, .*"),
        ("bnd", "bnd: unknown argument; did you mean bind?"),
        ("lr", """lr: unknown argument; did you mean agent={"learning_rate": ...}?"""),
        ("verbose", "verbose: unknown argument; progress is always shown; Python's progress=.*"),
    ],
)
def test_a_wrong_argument_is_named_before_one_that_is_missing(wrong: str, said: str) -> None:
    with pytest.raises(SettingError, match=f"^{said.replace('?', '[?]').replace('{', '[{]')}$"):
        vedette.Replay(**{wrong: 1})  # type: ignore[call-arg, arg-type]  # it is wrong


@pytest.mark.parametrize("function", ["train", "train_seeds"])
def test_a_script_that_is_imported_for_its_environment_does_not_train(
    function: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / f"calls_{function}.py").write_text(
        f"import vedette\nvedette.{function}(out='run', in_process=True)"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=rf"calls_{function} calls vedette.{function} when") as no:
        make_env(vedette.EnvConfig(id=f"calls_{function}:Mine"))
    assert str(no.value).endswith('put the call under `if __name__ == "__main__":`')
    assert not (tmp_path / "run").exists()


def test_importing_loads_nothing_and_its_names_no_torch() -> None:
    code = """
        import sys, vedette
        print([name for name in ("torch", "numpy", "pydantic") if name in sys.modules])
        vedette.SAC(learning_rate=1e-3), vedette.train, vedette.Result
        print("torch" in sys.modules)
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "[]\nFalse\n"


USER = """
import gymnasium as gym
import vedette

result = vedette.train(
    env="Pendulum-v1",
    agent=vedette.SAC(learning_rate=3e-4, hidden_sizes=(64, 64)),
    actors=vedette.ActorsConfig(count=2),
    replay=vedette.ReplayConfig(capacity=10_000),
    learner=vedette.LearnerConfig(eval_interval=100),
    evaluation=vedette.EvaluationConfig(episodes=3),
    stop=vedette.StopConfig(max_env_steps=1000),
    out="runs/x",
    seed=1,
)
reveal_type(result)
reveal_type(result.best_return)
reveal_type(result.summary.eval.return_mean)
reveal_type(result.evaluate())
reveal_type(result.load_policy())
reveal_type(vedette.train_seeds(2, out="runs/y", agent=vedette.DQN()).results)

class Mine(gym.Env[int, int]):
    pass

def make(length: int = 3) -> Mine:
    return Mine()

vedette.train_async(env=Mine)
vedette.train(env=make, agent="dqn", actors=4)
vedette.train(env=gym.spec("CartPole-v1"))
vedette.train(env=gym.make("CartPole-v1"))

vedette.train(envv="CartPole-v1")
vedette.train(seed="x")
vedette.SAC(lerning_rate=3e-4)
vedette.DQN(batch_size="many")
vedette.StopConfig(max_steps=3)
vedette.train(agent=vedette.StopConfig())
result.sumary
"""

WRONG = {
    'vedette.train(envv="CartPole-v1")': "envv",
    'vedette.train(seed="x")': "seed",
    "vedette.SAC(lerning_rate=3e-4)": "lerning_rate",
    'vedette.DQN(batch_size="many")': "batch_size",
    "vedette.StopConfig(max_steps=3)": "max_steps",
    "vedette.train(agent=vedette.StopConfig())": "agent",
    "result.sumary": "sumary",
}
REVEALED = [
    "Result",
    "float | None",
    "float | None",
    "Evaluation",
    "Policy",
    "dict[str, ",
    "Result]",
]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_type_checker_knows_the_settings_and_the_results(tmp_path: Path) -> None:
    """As a user runs it: without the plugin for pydantic."""
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = true\n")
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "user.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = USER.splitlines()
    said: dict[str, list[str]] = {}
    for line in ran.stdout.splitlines():
        if line.startswith("user.py:"):
            _, number, text = line.split(":", 2)
            said.setdefault(lines[int(number) - 1], []).append(text)
    revealed = [text for line, texts in said.items() if "reveal_type" in line for text in texts]
    assert all(kind in " ".join(revealed) for kind in REVEALED), revealed
    assert "Any" not in " ".join(revealed)
    errors = {
        line: " ".join(texts) for line, texts in said.items() if any("error:" in t for t in texts)
    }
    assert errors.keys() == WRONG.keys(), errors
    assert all(WRONG[line] in text for line, text in errors.items()), errors


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: vedette.DQN(lr=1), "lr: unknown key; did you mean learning_rate?"),
        *[
            (
                functools.partial(vedette.DQN, **{word: 1}),
                f"{word}: unknown key; did you mean {ours}?",
            )
            for word, ours in {
                "gamma": "discount",
                "buffer_size": 'vedette.train(replay={"capacity": ...})',
                "learning_starts": 'vedette.train(learner={"warmup_period": ...})',
                "train_freq": 'vedette.train(replay={"samples_per_insert": ...})',
                "device": 'vedette.train(learner={"device": ...})',
                "seed": "vedette.train(seed=...)",
                "exploration_fraction": 'exploration={"epsilon_steps": ...}',
            }.items()
        ],
        (lambda: vedette.DQN(ent_coef=1), "ent_coef: unknown key; agents that have alpha: sac"),
        (
            lambda: vedette.LearnerConfig(gamma=1),
            'gamma: unknown key; did you mean vedette.train(agent={"discount": ...})?',
        ),
        (
            lambda: vedette.StopConfig(max_episodes=1),
            "max_episodes: unknown key; a run ends by max_env_steps, max_seconds or target_return",
        ),
        (lambda: vedette.SAC(learning_rate=-1), "learning_rate: must be more than 0, not -1"),
        (lambda: vedette.StopConfig(max_opts="x"), "max_opts: must be a whole number, not 'x'"),
        (lambda: vedette.EnvConfig(), "id: is missing"),
        (lambda: vedette.StopConfig(max_opts=10**30), "max_opts: must be below 2**63, not 1e+30"),
    ],
)
def test_a_wrong_setting_of_a_part_is_a_line_that_names_it(make: Any, said: str) -> None:
    with pytest.raises(WrongSettingsError, match=f"^{re.escape(said)}$") as wrong:
        make()
    assert wrong.value.__context__ is None  # nothing of pydantic's above it


def of_kwargs(form: str, value: object) -> RunConfig:
    """A configuration with an argument of the environment, given in one of three forms."""
    kwargs = {"given": value}
    forms: dict[str, Callable[[], object]] = {
        "table": lambda: {"id": "CartPole-v1", "kwargs": kwargs},
        "class": lambda: vedette.EnvConfig(id="CartPole-v1", kwargs=kwargs),  # type: ignore[arg-type]  # any value
        "partial": lambda: functools.partial(CartPoleEnv, **kwargs),
    }
    settings = {"env": forms[form](), "agent": "dqn"}
    return configured(table=configuration_table(settings, shared=True))


FORMS = pytest.mark.parametrize("form", ["table", "class", "partial"])


@FORMS
@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("ice"), "ice"),
        ((1, [np.int8(2)]), [1, [2]]),
        ({"deep": {"far": np.float64(0.1)}}, {"deep": {"far": 0.1}}),
        (Path("maps/ice"), "maps/ice"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
    ],
    ids=repr,
)
def test_an_argument_of_an_environment_is_what_a_file_says(
    form: str, given: object, wanted: object, tmp_path: Path
) -> None:
    config = of_kwargs(form, given)
    assert config.env.kwargs == {"given": wanted}
    assert type(config.env.kwargs["given"]) is type(wanted)
    write_config(config, tmp_path / "config.toml")
    assert read_config(tmp_path / "config.toml").env == config.env


@FORMS
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (1j, r"given\W+is 1j, of type complex"),
        ({1}, r"given\W+is \{1\}, of type set"),
        (b"x", r"given\W+is b'x', of type bytes"),
        (np.arange(3), r"given\W+is an array of int64, \(3,\)\W+give its \.tolist\(\)"),
        ({"deep": [{2: 1}]}, r"given\.deep\.0\W+has the key 2\W+write it as '2'"),
        ({"deep": [None]}, r"given\.deep\.0'? is None"),
        ([float("nan")], r"'given\.0' is read as the number nan"),
    ],
    ids=repr,
)
def test_an_argument_that_no_file_can_say_is_refused_by_name(
    form: str, given: object, said: str
) -> None:
    with pytest.raises((ValueError, vedette.RlError), match=said):
        of_kwargs(form, given)


def test_settings_of_numpy_are_those_of_python() -> None:
    seed = np.int64(3)
    table = {"agent": {"name": "dqn", "hidden_sizes": (np.int64(8),)}, "seed": seed}
    config = configured(table={**table, "stop": {"max_opts": np.int32(5)}})
    assert isinstance(config.agent, vedette.DQN)
    assert (config.seed, config.agent.hidden_sizes, config.stop.max_opts) == (3, (8,), 5)
    with pytest.raises(SettingError, match=r"agent\.hidden_sizes: is an array of int64, \(1,\)"):
        configured(table={"agent": {"name": "dqn", "hidden_sizes": np.array([8])}})
    with pytest.raises(SettingError, match="seed: is 1j, of type complex"):
        configured(table={"seed": 1j})
    assert vedette.ReplayConfig(name="my:Own", kwargs={"x": np.int64(3)}).kwargs == {"x": 3}
    with pytest.raises(WrongSettingsError, match="kwargs: x is 1j, of type complex"):
        vedette.ReplayConfig(name="my:Own", kwargs={"x": 1j})
    parts = {"exploration": vedette.ExplorationConfig(kind="softmax")}
    nested = configured(table={"agent": {"name": "dqn", **parts}}).agent
    assert isinstance(nested, vedette.DQN)
    assert nested.exploration.kind == "softmax"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "PPO",
            "there is vedette.APPO, asynchronous PPO, corrected by V-trace as in IMPALA",
        ),
        ("load", "there is vedette.load_policy"),
        ("trian", "did you mean vedette.train?"),
    ],
)
def test_a_name_of_another_library_is_answered_with_ours(name: str, said: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}': {re.escape(said)}$"):
        getattr(vedette, name)


def test_a_name_that_nobody_knows_has_no_hint() -> None:
    for name in ("__path_of_nothing__", "zzzz"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'$"):
            getattr(vedette, name)


def test_names_of_models_are_answered_by_a_result(tmp_path: Path) -> None:
    result: Any = vedette.Result(vedette.Status(), tmp_path)
    with pytest.raises(AttributeError, match=r"no 'predict': result\.load_policy\(\)\.act"):
        result.predict(None)
    assert not hasattr(result, "zzzz")
    assert pickle.loads(pickle.dumps(result)) == result == copy.deepcopy(result)  # noqa: S301


def test_the_names_in_the_answers_exist() -> None:
    text = inspect.getsource(words_of_others)
    names = set(re.findall(r"vedette\.([A-Za-z]\w+)", text)) - {"settings"}
    assert names <= set(vedette.__all__)
    assert all(
        hasattr(vedette.Result, name)
        for name in re.findall(r"result\.(\w+)", text)
        if name != "run"
    )


def test_an_environment_in_the_place_of_a_file_is_told() -> None:
    with pytest.raises(SettingError, match='no such file; an environment is env="CartPole-v1"'):
        vedette.train("CartPole-v1")
