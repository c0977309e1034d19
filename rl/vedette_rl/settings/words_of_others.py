"""Words of other libraries' settings for which there is no key here, and what there is instead.

A word that has a key stands in the `synonyms` of that key's class.
"""

from __future__ import annotations

from collections.abc import Mapping

_ENDS = "a run ends by stop.max_env_steps, stop.max_seconds or stop.target_return"
INSTEAD_OF_ON_POLICY = "appo is asynchronous PPO, corrected by V-trace as in IMPALA"
"""Of on-policy agents, which take actors that play no older model."""
ON_POLICY_AGENTS = [
    "PPO",
    "A2C",
    "A3C",
    "TRPO",
    "IMPALA",
    "VPG",
    "REINFORCE",
    "MaskablePPO",
    "RecurrentPPO",
]
_ALWAYS = "leave it out: it is always so"

_WORDS_BY_INSTEAD: Mapping[str, str] = {
    _ENDS: "max_episodes n_episodes total_episodes train_episodes max_eps stop.episodes "
    "stop.num_episodes stop.eval_episodes stop.n_eval_episodes",
    "agent appo does without: the clip of its loss bounds how far a step goes": "target_kl "
    "clip_range_vf use_gae",
    _ALWAYS: "handle_timeout_termination optimize_memory_usage monitor monitor_wrapper",
    "the run's directory has all that a run writes: --out DIR, or out= in Python": "log_dir logdir "
    "log_path tensorboard_log save_dir save_path output_dir out_dir local_dir exp_name "
    "experiment_name run_name",
    "settings and recorders stand in their place: learner.eval_interval, learner.save_interval, "
    "stop.target_return, learner.recorders": "callback callbacks",
    "noise of exploration that is correlated over time is agent.noise_color=pink, of SAC and TD3; "
    "state-dependent exploration (gSDE) is not there": "use_sde sde_sample_freq "
    "use_sde_at_warmup gsde",
    "progress is always shown; Python's progress=False leaves it out": "verbose progress_bar "
    "verbosity",
}

INSTEAD: Mapping[str, str] = {
    word: instead for instead, words in _WORDS_BY_INSTEAD.items() for word in words.split()
}
"""What to do instead, by the word alone or by part and word, as in ``stop.episodes``."""
