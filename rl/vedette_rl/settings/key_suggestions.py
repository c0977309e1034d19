"""Suggests the key that a wrong one means ("did you mean"), also by its name in other libraries."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping

from vedette_rl.agents.config import ActorCriticConfig, AgentConfig
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.iqn.config import IqnConfig
from vedette_rl.agents.sac.config import SacConfig
from vedette_rl.errors import WrongSetting

# Names of Stable-Baselines3, CleanRL, Tianshou, RLlib, Reverb, Dopamine, border and Ape-X.
_SYNONYMS: Mapping[str, str] = {
    "seed": "random_seed",
    "env.id": "env environment env_id env_name environment_name env_type game",
    "env.kwargs": "env_kwargs env_args env_config",
    "env.max_episode_steps": "max_episode_length episode_length horizon max_ep_len episode_limit",
    "env.wrappers": "wrapper frame_stack stack_size frame_skip",
    "env.reward_clip": "clip_reward clip_rewards reward_clipping",
    "env.reward_scale": "reward_scaling reward_scale_factor",
    "env.vectorization": "vectorization_mode vector vec_env",
    "agent.name": "agent algo algorithm alg policy_type",
    "agent.learning_rate": "lr alpha_lr step_size learning_rate_start critic_lr q_lr lr_rate",
    "agent.batch_size": "batch train_batch_size minibatch_size mini_batch_size batchsize",
    "agent.discount": "gamma discount_factor discounting",
    "agent.n_step": "n_steps nstep num_steps multi_step n_step_return nsteps",
    "agent.hidden_sizes": "net_arch hidden hidden_size hidden_layers hidden_dim hidden_units "
    "layers units fcnet_hiddens mlp_hidden",
    "agent.network": "model net network_type policy_network q_network architecture",
    "agent.max_grad_norm": "grad_clip gradient_clip clip_grad clip_grad_norm grad_norm max_grad "
    "gradient_clipping max_gradient_norm",
    "agent.loss": "loss_fn critic_loss loss_function",
    "agent.munchausen.alpha": "munchausen m_dqn mdqn munchausen_alpha",
    "agent.munchausen.temperature": "entropy_temperature tau_munchausen",
    "agent.double": "double_q double_dqn ddqn use_double is_double",
    "agent.dueling": "dueling_dqn use_dueling is_dueling dueling_network",
    "agent.target_update_interval": "target_network_frequency target_update_freq target_update "
    "target_network_update_freq target_update_period target_update_frequency soft_update_interval",
    "agent.tau": "polyak soft_update_tau target_tau",
    "agent.alpha": "ent_coef temperature entropy_coef entropy_coefficient",
    "agent.initial_alpha": "temperature_init init_temperature initial_temperature",
    "agent.normalize_observations": "normalize_obs norm_obs obs_normalization observation_filter",
    "agent.policy_delay": "policy_frequency actor_update_interval policy_freq delayed_update",
    "agent.target_noise": "target_policy_noise policy_noise",
    "agent.target_noise_clip": "noise_clip",
    "agent.exploration_noise": "action_noise expl_noise",
    "agent.dropped_quantiles": "top_quantiles_to_drop_per_net drop",
    "agent.critics_in_target": "num_min_qs target_critics in_target_minimization",
    "agent.schedule.kind": "lr_schedule learning_rate_schedule lr_scheduler",
    "agent.n_quantiles": "num_quantiles num_tau_samples sample_size",
    "agent.exploration.epsilon_final": "exploration_final_eps end_e eps_end final_epsilon eps "
    "epsilon eps_final epsilon_end min_epsilon",
    "agent.exploration.epsilon_start": "exploration_initial_eps start_e eps_start initial_epsilon",
    "agent.exploration.epsilon_steps": "exploration_fraction exploration_steps epsilon_decay "
    "eps_decay epsilon_timesteps",
    "agent.exploration.epsilon_base": "eps_base",
    "agent.exploration.epsilon_alpha": "eps_alpha",
    "agent.exploration.kind": "exploration explorer exploration_type",
    "actors.count": "n_actors num_actors workers num_workers n_workers actor_count "
    "num_env_runners num_rollout_workers actors",
    "actors.envs_per_actor": "n_envs num_envs envs num_envs_per_env_runner num_envs_per_worker "
    "vector_envs",
    "actors.n_buffer": "rollout_fragment_length unroll_length rollout_length buffer send_interval",
    "actors.window_batches": "max_inflight maxinflight max_outstanding queue_size max_queue",
    "replay.capacity": "buffer_size replay_size replay_buffer_size memory_size replay_capacity "
    "buffer_capacity max_size size",
    "replay.directory": "replay_dir buffer_dir",
    "replay.prioritized": "per use_per prioritized_replay priority prioritised",
    "replay.alpha": "per_alpha prioritized_replay_alpha priority_exponent",
    "replay.beta_0": "per_beta beta prioritized_replay_beta importance_sampling_exponent",
    "replay.samples_per_insert": "replay_ratio utd utd_ratio train_freq train_frequency "
    "gradient_steps training_intensity update_per_step spi",
    "learner.warmup_period": "learning_starts warmup warm_up warmup_steps min_size start_steps "
    "min_size_to_sample min_replay_size num_steps_sampled_before_learning_starts min_buffer_size "
    "random_steps",
    "learner.sync_interval": "publish_interval sync_freq policy_update_interval update_interval "
    "weight_sync_interval steps_per_update variable_update_period",
    "learner.eval_interval": "eval_freq eval_frequency evaluation_interval eval_every",
    "learner.save_interval": "save_freq checkpoint_interval checkpoint_freq save_every "
    "checkpoint_frequency",
    "learner.keep_checkpoints": "max_checkpoints keep_last save_total_limit checkpoints",
    "learner.recorders": "logger loggers log logging track tensorboard wandb csv",
    "learner.flush_record_interval": "log_interval log_freq log_every",
    "learner.device": "cuda gpu accelerator",
    "learner.precision": "amp mixed_precision use_amp bf16 tf32 autocast",
    "learner.compile": "torch_compile compile_model",
    "learner.captured_step": "cudagraphs cuda_graphs cudagraph capture",
    "learner.copy_replay": "buffer_device replay_device storage_device device_replay",
    "learner.torch_threads": "num_threads threads n_threads",
    "evaluation.episodes": "n_eval_episodes eval_episodes num_eval_episodes num_episodes",
    "evaluation.seed": "eval_seed",
    "evaluation.max_episode_steps": "eval_max_steps max_eval_steps eval_max_episode_steps",
    "stop.max_env_steps": "steps total_timesteps timesteps total_steps max_steps num_timesteps "
    "num_steps_total max_frames frames max_timesteps",
    "stop.max_opts": "max_updates total_updates max_iterations opt_steps epochs",
    "stop.max_seconds": "max_time time_limit timeout time_total_s",
    "stop.target_return": "target_reward reward_threshold solved_return max_reward",
}

OUR_KEY: Mapping[str, str] = {
    word: key for key, words in _SYNONYMS.items() for word in words.split()
}
"""Our key by another's word. A key may be one that only some agents have."""


_OPTIONS = ("bind", "keys", "insecure", "out", "fresh", "force", "new_replay", "in_process")
"""Options of commands that are taken for settings."""


def unknown_key(key: str, keys: Iterable[str]) -> WrongSetting:
    """What to say of a key that does not exist: the one that is probably meant."""
    known = set(keys)
    if (name := key.rpartition(".")[2].replace("-", "_")) in _OPTIONS:
        option = f"--{name.replace('_', '-')}"
        return WrongSetting(key, "unknown key", f"it is the option {option} of a command")
    near = nearest(key, known)
    if near:
        return WrongSetting(key, "unknown key", f"did you mean {near}?")
    last = key.removeprefix("agent.")
    meant = OUR_KEY.get(last, f"agent.{last}").removeprefix("agent.")
    others = sorted(_agents_with(meant))
    if key.startswith("agent.") and others:
        return WrongSetting(key, "unknown key", f"agents that have {meant}: {', '.join(others)}")
    return WrongSetting(key, "unknown key", f"`vedette config` lists all {len(known)} keys")


def _agents_with(key: str) -> Iterator[str]:
    """Our own agents that have a key; TD3 once it was loaded, whose module names torch."""
    kinds: set[type[AgentConfig]] = {DqnConfig, IqnConfig, SacConfig}
    for kind in kinds.union(ActorCriticConfig.__subclasses__()):
        if kind.__module__.startswith("vedette_rl.agents.") and key in kind.model_fields:
            yield str(kind.model_fields["name"].default)


def nearest(key: str, keys: Iterable[str]) -> str:
    """The key that `key` probably means; "" for none.

    In this order: one of the same last name in another part, one that others call so, one that is
    spelled alike.
    """
    known = sorted(keys)
    last = key.rpartition(".")[2]
    part = key.partition(".")[0]
    namesakes = [candidate for candidate in known if candidate.rpartition(".")[2] == last]
    if namesakes and part != "agent":
        return namesakes[0]
    if OUR_KEY.get(last.lower()) in known:
        return OUR_KEY[last.lower()]
    if namesakes:
        return namesakes[0]
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    if close and _alike(last, close[0].rpartition(".")[2]):
        return close[0]
    by_last = {candidate.rpartition(".")[2]: candidate for candidate in known}
    by_word = {word: ours for word, ours in OUR_KEY.items() if ours in known}
    spelled = by_word | by_last
    close = difflib.get_close_matches(last, list(spelled), n=1, cutoff=0.75)
    return spelled[close[0]] if close else ""


def _alike(one: str, other: str) -> bool:
    """Return whether two last names are alike: the part's name alone is not enough."""
    return difflib.SequenceMatcher(None, one, other).ratio() >= 0.6
