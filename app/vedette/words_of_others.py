"""Commands, options and functions as other programs call them, and what there is here instead.

Words for settings stand beside the settings: `SettingsPart.synonyms`, and
`vedette_rl.settings.words_of_others` for those that no key answers.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from vedette_rl.settings.words_of_others import ON_POLICY_AGENTS

_COMMANDS_BY_OURS = {
    "run": "train fit start learn",
    "runs": "ls ps experiments",
    "list": "presets agents envs environments",
    "init": "new create scaffold",
    "eval": "test play enjoy evaluate predict",
    "collect": "record demonstrate demo",
    "status": "watch monitor top",
    "dashboard": "board ui web tensorboard",
    "actors": "worker workers actor manager",
    "stop": "kill cancel end",
    "sweep": "tune optimize search",
}

_COMMANDS: Mapping[str, str] = {
    word: ours for ours, words in _COMMANDS_BY_OURS.items() for word in words.split()
}
"""Our command by other programs' word for it."""

_RESUME = "the same `vedette run` with the same --out resumes a run"
_OTHER_WEIGHTS = "`vedette run --init-from RUN` starts a run with the weights of another one"

_INSTEAD_OF_COMMANDS: Mapping[str, str] = {
    "bench": "benchmarks are `scripts/bench/run` of a checkout",
    **dict.fromkeys(("resume", "continue", "restart"), _RESUME),
    **dict.fromkeys(("load", "finetune", "fine-tune"), _OTHER_WEIGHTS),
    **{
        name: f"did you mean `vedette run --agent {name}`?"
        for name in ("dqn", "iqn", "sac", "td3", "appo")
    },
}
"""What to do instead of a command that does not exist."""


def instead_of_command(given: str, commands: Sequence[str], *, words: bool = True) -> str:
    """Return what to write instead of a command that does not exist; "" if unknown.

    Args:
        commands: those that exist.
        words: they are those of `vedette` itself, for which other programs have words.
    """
    if words and (instead := _INSTEAD_OF_COMMANDS.get(given)):
        return instead
    others = _COMMANDS if words else {}
    near = difflib.get_close_matches(given, [*commands, *others], n=1, cutoff=0.75)
    # of a word of three letters two that are swapped are a third of it
    near = near or difflib.get_close_matches(given, commands, n=1, cutoff=0.65)
    meant = others.get(near[0], near[0]) if near else ""
    return f"did you mean {meant}?" if meant else ""


_OPTIONS_BY_INSTEAD = {
    "the TOML file is given as it is, without an option": "--config -c --cfg --config-file --file",
    "the run is given as it is, without an option": "--run --run-dir --run-id",
    "--out RUN, which resumes the run that is there": "--resume --continue --restart",
    "--init-from RUN": "--load --load-from --weights --pretrained --model --from",
    "--out DIR": "--log-dir --logdir --output --output-dir --out-dir --save-dir --name --exp-name "
    "--experiment -o",
    "--agent NAME": "--algo --algorithm --policy",
    "--env ID": "--environment --env-id --env-name --game --task",
    "--episodes N": "--n --n-episodes --num-episodes --n-eval-episodes --eval-episodes",
    "--bind HOST:PORT": "--port --host --listen --address",
    "--learner HOST[:PORT]": "--port --host --address --server --connect --learner-host",
    "--count N": "--workers --num-workers --n-workers --n-actors --num-actors --actors",
    "--video FILE": "--render --record --film",
    "--jobs N": "--parallel --n-jobs --processes",
    "--seeds N": "--n-seeds --num-seeds",
}
"""By what to write, beginning with an option of ours where there is one: others' options."""


def instead_of_option(option: str, options: Sequence[str]) -> str:
    """Return what to write instead of an option that a command does not have; "" if unknown.

    Args:
        option: as it was given, such as ``--config``.
        options: those that the command has.
    """
    for instead, words in _OPTIONS_BY_INSTEAD.items():
        ours = instead.partition(" ")[0]
        if option in words.split() and (not ours.startswith("--") or ours in options):
            return instead
    return ""


_FLEET = "actors=vedette.ActorsConfig(count=..., envs_per_actor=...) says how many environments"
_CALLBACKS = (
    "settings stand in its place: learner.eval_interval, learner.save_interval, stop.target_return"
)

_NAMES_BY_INSTEAD = {
    "vedette.APPO, asynchronous PPO, corrected by V-trace as in IMPALA": " ".join(ON_POLICY_AGENTS),
    "vedette.TD3, its successor": "DDPG",
    "vedette.SAC with n_quantiles=25, dropped_quantiles=2 and n_critics=5": "TQC",
    "vedette.SAC, whose critics are CrossQ's by default": "CrossQ",
    "vedette.SAC with n_critics=10 and critics_in_target=2": "REDQ",
    "vedette.IQN": "QRDQN QR_DQN C51 FQF",
    "vedette.DQN, with double, dueling, n_step and replay.prioritized": "Rainbow DDQN DoubleDQN",
    "vedette.train": "learn fit run main Trainer Algorithm",
    "vedette.load_policy": "load load_model",
    "vedette.export_policy": "save export save_model",
    "vedette.evaluate": "eval evaluate_policy test play",
    "vedette.Replay": "ReplayBuffer Buffer",
    "gymnasium.make, or the environment's name: vedette.train(env=...)": "make make_env",
    _FLEET: "make_vec_env VecEnv DummyVecEnv SubprocVecEnv",
    _CALLBACKS: "BaseCallback EvalCallback CheckpointCallback callbacks",
    "vedette.train_seeds": "tune Tuner sweep seeds",
    "vedette.RunConfig, or the parts as arguments of vedette.train": "Config TrainConfig",
}
_INSTEAD_OF_NAMES = {
    name: instead for instead, names in _NAMES_BY_INSTEAD.items() for name in names.split()
}

_RESULT_BY_INSTEAD = {
    "result.load_policy().act({'obs': obs[None]}, explore=False)[0]": "predict act get_action "
    "compute_single_action step",
    "result.load_policy() loads its policy": "policy model agent actor load",
    "vedette.export_policy(result.run, FILE) writes its policy": "save save_model export",
    "vedette.train(out=result.run, ...) with a later stop trains on": "learn train fit resume",
    "result.curves() has them": "history metrics logs",
    "result.best_return, result.last_return": "returns rewards reward mean_reward",
}
_INSTEAD_OF_RESULT = {
    name: instead for instead, names in _RESULT_BY_INSTEAD.items() for name in names.split()
}


def instead_of_name(name: str, names: Sequence[str]) -> str:
    """Return what there is instead of a name that `vedette` does not have; "" if unknown."""
    if instead := _INSTEAD_OF_NAMES.get(name):
        return f"there is {instead}" if instead.startswith("vedette.") else instead
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.75)
    return f"did you mean vedette.{near[0]}?" if near else ""


def instead_of_result(name: str) -> str:
    """Return what there is instead of a name that a result does not have; "" if unknown."""
    return _INSTEAD_OF_RESULT.get(name, "")
