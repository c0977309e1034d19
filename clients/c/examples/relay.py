"""Plays for a learner in place of a program in C, and keeps its samples in an outbox.

    python relay.py HOST[:PORT] OUTBOX PROGRAM [ARGUMENT ...]

The program, such as relayed.c, writes each of its steps to its standard output, and reads what to
do next from its standard input.
"""

import struct
import subprocess
import sys

import numpy as np

import vedette

STEP = struct.Struct("<4ffI")  # observation, reward, flags: `step_message` of relayed.c
BEGINS, TERMINATED, TRUNCATED = 1, 2, 4


def main() -> None:
    """Relay until the run, or the program, is over."""
    learner, outbox, *program = sys.argv[1:]
    pipe = subprocess.PIPE
    with (
        vedette.Actor(learner, outbox=outbox) as actor,
        subprocess.Popen(program, stdin=pipe, stdout=pipe) as robot,
    ):
        assert robot.stdin is not None
        assert robot.stdout is not None
        while actor.running and (message := robot.stdout.read(STEP.size)):
            *values, reward, flags = STEP.unpack(message)
            obs = np.array(values, np.float32)
            if flags & BEGINS:
                actor.begin(obs)
            else:
                actor.observe(reward, obs, bool(flags & TERMINATED), bool(flags & TRUNCATED))
            if not flags & (TERMINATED | TRUNCATED):
                robot.stdin.write(struct.pack("<q", actor.act()))
                robot.stdin.flush()


if __name__ == "__main__":
    main()
