"""TorchRL: MultiAsyncCollector of two workers with eight environments each, epsilon-greedy MLP.

`python scripts/peers/collect_torchrl.py ENV SECONDS`
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial

import torch
from tensordict.nn import TensorDictSequential
from torchrl.collectors import MultiAsyncCollector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import GymEnv, SerialEnv
from torchrl.modules import MLP, EGreedyModule, QValueActor

WARM_S = 3.0
ENVS, WORKERS, FRAMES = 8, 2, 512


def make_envs(name: str) -> SerialEnv:
    return SerialEnv(ENVS, partial(GymEnv, name, categorical_action_encoding=True))


def main() -> None:
    torch.set_num_threads(1)
    env, seconds = sys.argv[1], float(sys.argv[2])
    probe = make_envs(env)
    spec = probe.action_spec_unbatched
    net = MLP(probe.observation_spec_unbatched["observation"].shape[-1], spec.n, num_cells=[64, 64])
    actor = QValueActor(net, in_keys=["observation"], spec=spec)
    policy = TensorDictSequential(actor, EGreedyModule(spec, eps_init=0.1, eps_end=0.1))
    collector = MultiAsyncCollector(
        [partial(make_envs, env)] * WORKERS,
        policy,
        frames_per_batch=FRAMES,
        total_frames=-1,
    )
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(100_000), batch_size=256)
    steps, began = 0, 0.0
    for batch in collector:
        now = time.monotonic()
        began = began or now + WARM_S
        buffer.extend(batch.reshape(-1))
        if now >= began:
            steps += batch.numel()
        if now >= began + seconds:
            print(json.dumps({"per_s": steps / (now - began)}), flush=True)
            break
    collector.shutdown()


if __name__ == "__main__":
    main()
