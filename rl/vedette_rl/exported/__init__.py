"""Policies in files, and acting from one without torch.

::

    from vedette_rl.exported import load_policy

    policy = load_policy("policy.npz")                 # as `vedette export --format numpy` wrote it
    action = policy.act({"obs": obs[np.newaxis]}, explore=False)[0]

An observation is given in columns, ``obs`` or ``obs/KEY`` for the parts of a dictionary. Actions
are the environment's own, ready for its `step`. `GreedyEvaluator` plays policies whose discrete
actions count from 0 whatever the environment's `start` is, as all within Vedette do:
``read_policy(path).make_policy()`` is one.
"""

from vedette_rl.exported.policy_file import (
    PolicyFile,
    load_policy,
    read_policy,
    write_numpy,
    write_safetensors,
)

__all__ = ["PolicyFile", "load_policy", "read_policy", "write_numpy", "write_safetensors"]
