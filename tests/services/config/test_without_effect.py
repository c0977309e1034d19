"""Settings that change nothing are said, with the reason; those that do are not."""

import gymnasium as gym
import numpy as np
import pytest
from every_agent import AGENTS, takes_discrete  # of tests/support

from vedette_rl.networks.config import NetworkConfig
from vedette_services.config import load_config
from vedette_services.config.presets import preset_names
from vedette_services.config.without_effect import settings_without_effect

FLAT = gym.spaces.Box(-1, 1, (3,), np.float32)
IMAGE = gym.spaces.Box(0, 255, (64, 64, 3), np.uint8)
CAMERAS = gym.spaces.Dict({"left": IMAGE, "right": IMAGE})
CAMERA = gym.spaces.Dict({"camera": IMAGE, "state": FLAT})


def unused(
    *settings: str, agent: str = "dqn", space: gym.Space = FLAT, in_process: bool = False
) -> list[str]:
    env = "CartPole-v1" if takes_discrete(agent) else "Pendulum-v1"
    given = ["preset=none", *settings]
    config = load_config(env=env, agent=agent, settings=given, environment={}).config
    assert isinstance(config.agent, NetworkConfig)
    return [*settings_without_effect(config, space, in_process=in_process)]


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("space", [FLAT, IMAGE, CAMERAS, CAMERA])
def test_defaults_are_not_said(agent: str, space: gym.Space) -> None:
    assert unused(agent=agent, space=space) == []


def test_a_default_that_follows_another_key_is_not_said() -> None:
    changed = ("agent.critic_architecture=layer_norm", "agent.alpha=0.1")
    assert unused(*changed, agent="sac") == []
    (line,) = unused(*changed, "agent.alpha_learning_rate=0.001", agent="sac")
    assert "agent.alpha_learning_rate=0.001, because agent.alpha is a number" in line


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_sets_nothing_in_vain(name: str) -> None:
    agent, _, env = name.partition("-")
    env = "ALE/Pong-v5" if env == "ALE" else env
    config = load_config(env=env, agent=agent, environment={}).config
    space = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8) if "ALE" in env else FLAT
    assert isinstance(config.agent, NetworkConfig)
    assert [*settings_without_effect(config, space)] == []


@pytest.mark.parametrize(
    ("setting", "why", "agent"),
    [
        ("learner.init_checkpoint=best", "learner.init_from (--init-from) names no run", "dqn"),
        ("agent.random_shift=2", "no part of the observation is an image", "sac"),
        ("agent.shared_cnn=true", "no part of the observation is an image", "iqn"),
        ("replay.alpha=0.5", "replay.prioritized is false", "dqn"),
        ("replay.error_buffer=5000.0", "replay.samples_per_insert is 0", "dqn"),
        ("actors.her_goals=2", "actors.step_processor is not her", "dqn"),
        ("agent.schedule.final=0.5", "agent.schedule.kind is constant", "td3"),
        ("agent.exploration.temperature=2.0", "agent.exploration.kind is linear", "dqn"),
        ("agent.target_entropy=-2.0", "agent.alpha is a number", "sac"),
        ("agent.loss=huber", "critics of several quantiles have their own loss", "sac"),
        ("agent.imitation.weight=2.0", "agent.imitation.loss is none", "dqn"),
        ("agent.imitation.margin=2.0", "agent.imitation.loss is cross_entropy", "dqn"),
        ("agent.double=false", "agent.munchausen.alpha is above 0", "iqn"),
        ("agent.munchausen.lowest=-2.0", "agent.munchausen.alpha is 0", "dqn"),
        ("agent.normalizer_kl=0.5", "agent.normalize_observations is false", "appo"),
        ("agent.noise_steps=50", "agent.noise_color is white", "sac"),
        ("agent.noise_color=pink", "agent.exploration_noise is 0", "td3"),
        ("evaluation.end_timeout_s=5.0", "learner.eval_interval is 0", "iqn"),
        ("evaluation.confirm=2", "there is no stop.target_return", "dqn"),
        ("evaluation.episode_timeout_s=5.0", "learner.eval_interval is 0", "dqn"),
        ('evaluation.trusted=["one"]', "the learner plays the evaluations", "dqn"),
        ("actors.explore_from=5", "agent.exploration.kind is softmax: exploration is", "dqn"),
        ("actors.explore_from=6", "agent.uniform_warmup is false: exploration is", "sac"),
        ("actors.explore_from=7", "its policy is drawn from: exploration is", "appo"),
        ("actors.run_length=5", "replay.kind is queue, whose runs are of", "appo"),
        ("agent.imitation.schedule.warmup_opts=9", "agent.imitation.loss is none", "sac"),
        ("agent.imitation.schedule.final=0.5", "agent.imitation.schedule.kind is const", "dqn"),
        ("agent.clip_schedule.final=0.5", "agent.clip_schedule.kind is constant", "appo"),
        ("agent.rho_max=2.0", "agent.correction is none", "appo"),
        ("agent.target_noise_clip=0.3", "agent.target_noise is 0", "td3"),
        ("replay.beta_steps=5", "replay.beta_final is replay.beta_0", "dqn"),
        ("replay.sources.demos.capacity=5", "a data set is kept whole", "dqn"),
        ("replay.sources.demos.schedule.final=0.5", "replay.sources.demos.schedule.kind is", "dqn"),
        ("replay.keep=5", "--in-process starts no daemons", "dqn"),
        ("replay.error_buffer=6.0", "--in-process draws in lock step", "dqn"),
        ("replay.burn_in=20", "replay.sequence is 0: single samples are drawn", "dqn"),
        ("replay.sync_interval_s=1.0", "--in-process starts no daemons", "dqn"),
    ],
)
def test_a_setting_without_effect_is_said_with_the_reason(
    setting: str, why: str, agent: str
) -> None:
    keyed = {
        "replay.error_buffer": ["replay.samples_per_insert=0.0"],
        "agent.target_entropy": ["agent.alpha=0.2"],
        "agent.loss": ["agent.n_quantiles=5"],
        "agent.imitation.margin": ["agent.imitation.loss=cross_entropy"],
        "agent.noise_color": ["agent.exploration_noise=0.0"],
        "agent.normalizer_kl": ["agent.normalize_observations=false"],
        "agent.double": ["agent.munchausen.alpha=0.9"],
        "evaluation.end_timeout_s": ["learner.eval_interval=0"],
        "evaluation.episode_timeout_s": ["learner.eval_interval=0"],
        "actors.explore_from=5": ["agent.exploration.kind=softmax"],
        "actors.explore_from=6": ["agent.uniform_warmup=false"],
        "agent.imitation.schedule.final": ["agent.imitation.loss=cross_entropy"],
        "agent.rho_max": ["agent.correction=none"],
        "agent.target_noise_clip": ["agent.target_noise=0.0"],
        "replay.beta_steps": ["replay.prioritized=true", "replay.beta_0=1.0"],
        "replay.sources.demos.capacity": ["replay.sources.demos.data=demos.npz"],
        "replay.sources.demos.schedule.final": ["replay.sources.demos.data=demos.npz"],
        "replay.error_buffer=6.0": [],
    }
    beside = keyed.get(setting, keyed.get(setting.partition("=")[0], []))
    (line,) = unused(setting, *beside, agent=agent, in_process="--in-process" in why)
    assert line.startswith(f"without effect: {setting}, because {why}")


@pytest.mark.parametrize(
    "given",
    [
        ("actors.explore_from=5", "agent.exploration.kind=linear"),
        ("actors.explore_from=5", "agent.exploration.kind=my:Own"),
        ("evaluation.confirm=2", "stop.target_return=9"),
        ("evaluation.trusted=['one']", "evaluation.where=actors"),
        ("actors.run_length=5",),  # actors act on one model for a run, also where all is drawn
        ("actors.window_s=5.0",),  # managers may have another on_full: vedette.Actor(on_full=...)
        ("replay.beta_steps=5", "replay.prioritized=true"),
        ("replay.alpha=0.5", "replay.name=my:Own"),
        ("replay.prioritized=true", "replay.name=my:Own"),
        ("agent.imitation.schedule.warmup_opts=9", "agent.imitation.loss=margin"),
        ("agent.imitation.schedule.warmup_opts=9", "agent.imitation.loss=cross_entropy"),
    ],
)
def test_a_setting_that_may_have_an_effect_is_not_said(given: tuple[str, ...]) -> None:
    assert unused(*given) == []


def test_the_deviation_of_a_policy_is_for_actions_of_a_box() -> None:
    config = load_config(
        env="CartPole-v1", agent="appo", settings=["agent.log_std_min=-5"], environment={}
    ).config
    box, two = gym.spaces.Box(-1, 1, (1,)), gym.spaces.Discrete(2)
    assert [*settings_without_effect(config, FLAT)] == []
    assert [*settings_without_effect(config, FLAT, action=box)] == []
    assert [*settings_without_effect(config, FLAT, action=two)] == [
        "without effect: agent.log_std_min=-5.0, because the actions are discrete"
    ]


def test_what_an_image_takes_depends_on_what_is_beside_it() -> None:
    cnn = "agent.cnn_hidden_sizes=[8]"
    assert unused("agent.random_shift=2", cnn, space=IMAGE) == []
    for agent in ("sac", "td3"):  # an image alone becomes features there
        assert (
            unused("agent.image_features=9", "agent.random_shift=2", agent=agent, space=IMAGE) == []
        )
    assert unused("agent.hidden_sizes=[8]", "agent.image_features=9", space=IMAGE) == [
        "without effect: agent.image_features=9, because the observation is one image",
        "without effect: agent.hidden_sizes=[8], because agent.cnn_hidden_sizes are behind the "
        "image",
    ]
    assert unused(cnn, "agent.vector_features=9", space=CAMERA) == [
        "without effect: agent.cnn_hidden_sizes=[8], because agent.hidden_sizes are behind the "
        "features of images",
    ]
    assert unused("agent.vector_features=9", "agent.shared_cnn=true", space=CAMERAS) == [
        "without effect: agent.vector_features=9, because the observation has nothing but images",
    ]


def test_a_policy_shares_a_core_without_images_too() -> None:
    own = "agent.shared_encoder=false"
    (line,) = unused(own, agent="sac")
    assert "no part of the observation is an image" in line
    assert unused(own, "agent.memory=gru", agent="sac") == []
    assert unused(own, "agent.memory=gru", "agent.network=my_networks:Mine", agent="td3") == []


def test_an_own_network_takes_the_place_of_the_settings_of_ours() -> None:
    own = "agent.network=my_networks:Mine"
    (line,) = unused(own, "agent.hidden_sizes=[8]")
    assert line.endswith("agent.hidden_sizes=[8], because my_networks:Mine is the whole network")
    assert unused(own, "agent.hidden_sizes=[8, 8]", agent="iqn") == []  # behind its encoder
    (line,) = unused(own, "agent.random_shift=2", agent="sac")
    assert line.endswith("agent.random_shift=2, because agent.network is my_networks:Mine")


BITS = gym.spaces.MultiBinary(4)


@pytest.mark.parametrize("space", [IMAGE, CAMERAS, BITS, gym.spaces.Discrete(3)])
def test_normalization_is_said_where_there_is_nothing_to_normalize(space: gym.Space) -> None:
    (line,) = unused("agent.normalize_observations=true", space=space)
    assert line == (
        "without effect: agent.normalize_observations=true, because the observation has no part "
        "of floating-point numbers"
    )
    (line,) = unused("agent.normalize_observations=false", agent="sac", space=space)
    assert "agent.normalize_observations=false" in line
    for mixed in (FLAT, CAMERA):
        assert unused("agent.normalize_observations=true", space=mixed) == []
