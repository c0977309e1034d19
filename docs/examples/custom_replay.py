"""A custom replay: it draws newer samples more often."""

import vedette
from vedette_rl.core import Sample
from vedette_rl.errors import EmptyReplayError
from vedette_rl.replay.uniform import UniformReplay


class Recent(UniformReplay):
    """Draws `draws` samples uniformly, and keeps the newest of them."""

    def __init__(self, rows, rng, config, draws=2):
        super().__init__(rows, rng, config)
        self.draws = draws

    def sample(self, batch_size):
        oldest, inserted = self.rows.live()  # a writer keeps inserting meanwhile
        if oldest == inserted:
            raise EmptyReplayError
        numbers = self.rng.integers(oldest, inserted, (self.draws, batch_size)).max(axis=0)
        columns = self.gather(numbers)
        self.redraw_stale(numbers, columns)
        return Sample(columns, numbers)


if __name__ == "__main__":
    result = vedette.train(
        env="CartPole-v1",
        replay=vedette.ReplayConfig(name="custom_replay:Recent", kwargs={"draws": 3}),
        stop=vedette.StopConfig(max_opts=100),
        in_process=True,
    )
    print(result.summary["exit_reason"], result.summary["samples"]["inserted"])
