"""TorchRL: MultiAsyncCollector of two workers with 16 environments each, epsilon-greedy MLP.

`python scripts/bench/peer_programs/collect_torchrl.py ENV SECONDS`
"""

from __future__ import annotations

import json
import signal
import sys
from functools import partial

import torch
from collecting import steps_per_s
from tensordict.nn import TensorDictSequential
from torchrl.collectors import MultiAsyncCollector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import GymEnv, SerialEnv
from torchrl.modules import MLP, EGreedyModule, QValueActor
from torchrl.weight_update import SharedMemWeightSyncScheme

ENVS = 16
WORKERS = 2
FRAMES = 512
STOP_S = 10.0
LIMIT_S = 120


def make_envs(name: str) -> SerialEnv:
    return SerialEnv(ENVS, partial(GymEnv, name, categorical_action_encoding=True))


def main() -> None:
    env = sys.argv[1]
    seconds = float(sys.argv[2])
    signal.alarm(LIMIT_S + int(seconds))  # not all of its waits have a bound
    torch.set_num_threads(1)
    probe = make_envs(env)
    spec = probe.action_spec_unbatched
    net = MLP(probe.observation_spec_unbatched["observation"].shape[-1], spec.n, num_cells=[64, 64])
    actor = QValueActor(net, in_keys=["observation"], spec=spec)
    policy = TensorDictSequential(actor, EGreedyModule(spec, eps_init=0.1, eps_end=0.1))
    weights = SharedMemWeightSyncScheme()
    collector = MultiAsyncCollector(
        [partial(make_envs, env)] * WORKERS,
        policy,
        frames_per_batch=FRAMES,
        total_frames=-1,
        weight_sync_schemes={"policy": weights},
    )
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(100_000), batch_size=256)
    batches = iter(collector)

    def collect() -> int:
        batch = next(batches)
        buffer.extend(batch.reshape(-1))
        return int(batch.numel())

    try:
        print(json.dumps({"per_s": steps_per_s(collect, seconds)}), flush=True)
    finally:
        collector.shutdown(STOP_S)
        weights.shutdown()  # left to the interpreter's end, it starts a thread and waits forever


if __name__ == "__main__":
    main()
