"""Sample Factory's APPO, that ours is measured beside.

Run by `scripts/curves` in an environment of its own, with the arguments of `train_sb3.py`; those in
`--kwargs` are its own, by the names of its command line. Prints one JSON line with every
evaluation.

It learns in processes of its own, or with `serial_mode` in this one. It tells after each iteration,
of `batch_size` times `num_batches_per_epoch` environment steps; at the first one behind each
multiple of `--every` the policy is copied, and the copies are evaluated when it has ended, so that
training does not go on unwatched meanwhile. In processes of its own it may have begun its next
iteration when the copy is taken: `opt_steps` is the version of the copy. Evaluations are greedy, on
the same episodes each time, with the seeds that our evaluations have.
"""

import argparse
import json
import logging
import os
import tempfile
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import gymnasium
import numpy as np
import torch
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.algo.utils.action_distributions import argmax_actions
from sample_factory.algo.utils.misc import ExperimentStatus
from sample_factory.algo.utils.rl_utils import prepare_and_normalize_obs
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.model.actor_critic import ActorCritic, create_actor_critic
from sample_factory.model.model_utils import get_rnn_size
from sample_factory.train import make_runner
from sample_factory.utils.typing import Config
from sample_factory.utils.utils import log
from signal_slot.signal_slot import EventLoop, EventLoopObject

EVALUATION_SEED = 10_000


@dataclass(frozen=True)
class MakeEnv:
    """Makes an environment as Sample Factory asks for it; it travels to its processes."""

    limit: int

    def __call__(
        self, name: str, cfg: Any = None, env_config: Any = None, render_mode: str | None = None
    ) -> gymnasium.Env:
        limit = {"max_episode_steps": self.limit} if self.limit else {}
        return gymnasium.make(name, render_mode=render_mode, **limit)


class SharedWeights(EventLoopObject):
    """The arrays of the policy that learns, which its processes share.

    Attributes:
        arrays: None before the learner has sent them, and where it learns in this process.
    """

    def __init__(self, event_loop: EventLoop) -> None:
        super().__init__(event_loop, "shared_weights")
        self.arrays: dict[str, torch.Tensor] | None = None

    def take(self, model: tuple[int, dict[str, torch.Tensor] | None, torch.device, int]) -> None:
        self.arrays = model[1]


@dataclass
class Copies(AlgoObserver):
    """Copies the policy at an interval.

    Args:
        every: environment steps between two copies.
        steps_per_iteration: environment steps of an iteration.

    Attributes:
        taken: the environment steps, optimization steps and seconds of each copy, and the policy.
    """

    every: int
    steps_per_iteration: int
    began: float = field(default_factory=time.perf_counter)
    taken: list[tuple[dict[str, float], dict[str, torch.Tensor]]] = field(default_factory=list)

    def on_connect_components(self, runner: Runner) -> None:
        self.shared = SharedWeights(runner.event_loop)
        runner.learners[0].model_initialized.connect(self.shared.take)

    def on_training_step(self, runner: Runner, training_iteration_since_resume: int) -> None:
        env_steps = training_iteration_since_resume * self.steps_per_iteration
        if env_steps < (len(self.taken) + 1) * self.every:
            return
        worker = runner.learners[0]
        arrays = self.shared.arrays
        if runner.cfg.serial_mode:
            arrays = worker.learner.actor_critic.state_dict()
        assert arrays is not None, "the learner has sent its arrays before it learns"
        with worker.param_server.policy_lock:
            copy = {name: array.clone() for name, array in arrays.items()}
            opt_steps = int(runner.buffer_mgr.policy_versions[0])
            if runner.cfg.serial_mode:
                opt_steps = worker.learner.train_step
        wall_s = time.perf_counter() - self.began
        self.taken.append(
            ({"env_steps": env_steps, "opt_steps": opt_steps, "wall_s": wall_s}, copy)
        )


class Evaluation:
    """Plays episodes with the most likely actions.

    Args:
        policy: of Sample Factory's; its arrays are those of the copy that is evaluated.
        episodes: each in an environment of its own, as those of Stable-Baselines3 are.
    """

    def __init__(self, policy: ActorCritic, cfg: Config, make: MakeEnv, episodes: int) -> None:
        self._policy = policy.eval()
        self._state_size = get_rnn_size(cfg)
        self._envs = [make(cfg.env) for _ in range(episodes)]

    @torch.no_grad()
    def mean_return(self, arrays: dict[str, torch.Tensor]) -> float:
        self._policy.load_state_dict(arrays)
        count = len(self._envs)
        seen = np.stack(
            [env.reset(seed=EVALUATION_SEED + i)[0] for i, env in enumerate(self._envs)]
        )
        states = torch.zeros(count, self._state_size)
        returns = np.zeros(count)
        playing = list(range(count))
        while playing:
            obs = prepare_and_normalize_obs(self._policy, {"obs": torch.from_numpy(seen)})
            states = self._policy(obs, states)["new_rnn_states"]
            actions = argmax_actions(self._policy.action_distribution()).numpy()
            for i in list(playing):
                seen[i], reward, terminated, truncated, _ = self._envs[i].step(actions[i])
                returns[i] += float(reward)
                if terminated or truncated:
                    playing.remove(i)
        return float(returns.mean())


def settings(args: argparse.Namespace, folder: str) -> Config:
    """Its settings: its defaults, but for those of `--kwargs`.

    Raises:
        ValueError: one is not known.
    """
    words = ["--env", args.env, "--train_dir", folder, "--device", "cpu", "--seed", str(args.seed)]
    parser, _ = parse_sf_args(words)
    cfg = parse_full_cfg(parser, words)
    cfg.train_for_env_steps = args.steps
    cfg.default_niceness = os.nice(0)  # else its learner has a priority that this process has not
    for name, value in json.loads(args.kwargs).items():
        if not hasattr(cfg, name):
            raise ValueError(f"Sample Factory has no setting {name}")
        setattr(cfg, name, value)  # its command line does not know its linear schedule
    return cfg


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", required=True)
    parser.add_argument("--algorithm", choices=["appo"], required=True)
    parser.add_argument("--kwargs", default="{}", help="settings of Sample Factory, as JSON")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, required=True, help="environment steps at most")
    parser.add_argument("--every", type=int, required=True, help="steps between evaluations")
    parser.add_argument("--episodes", type=int, default=20, help="of an evaluation")
    parser.add_argument("--max-episode-steps", type=int, default=0, help="0: its own limit")
    args = parser.parse_args()
    torch.set_num_threads(1)
    log.setLevel(logging.WARNING)
    make = MakeEnv(args.max_episode_steps)
    register_env(args.env, make)
    with tempfile.TemporaryDirectory() as folder:
        cfg, runner = make_runner(settings(args, folder))
        copies = Copies(args.every, cfg.batch_size * cfg.num_batches_per_epoch)
        runner.register_observer(copies)
        status = runner.init()
        if status == ExperimentStatus.SUCCESS:
            status = runner.run()
        wall_s = time.perf_counter() - copies.began
    if status != ExperimentStatus.SUCCESS:
        raise SystemExit(f"Sample Factory ended with status {status}")
    policy = create_actor_critic(cfg, runner.env_info.obs_space, runner.env_info.action_space)
    evaluation = Evaluation(policy, cfg, make, args.episodes)
    evaluations = [
        {**when, "return_mean": evaluation.mean_return(arrays)} for when, arrays in copies.taken
    ]
    print(
        json.dumps(
            {
                "what": "sample-factory",
                "program": f"sample-factory {version('sample-factory')}",
                "seed": args.seed,
                "wall_without_evaluation_s": round(wall_s, 1),
                "evaluations": evaluations,
            }
        )
    )


if __name__ == "__main__":
    main()
