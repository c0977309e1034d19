"""A custom recorder: five methods, made with the run's directory."""

import vedette


class Printer:
    def __init__(self, run):
        self.stored = {}

    def write(self, record, step):  # now: curves of returns, by environment steps
        if "eval/mean_reward" in record:
            print(f"after {step} steps: {record['eval/mean_reward']:.1f}")

    def store(self, record):  # until the next flush: losses
        self.stored.update(record)

    def flush(self, step):
        if "train/loss" in self.stored:
            print(f"optimization step {step}: loss {self.stored['train/loss']:.4f}")

    def write_text(self, name, text):
        print(f"{name}: {len(text.splitlines())} lines")

    def close(self):
        print("done")


if __name__ == "__main__":
    # In a terminal: vedette run --set 'learner.recorders=["csv", "custom_recorder:Printer"]'
    result = vedette.train(
        env="CartPole-v1",
        learner=vedette.LearnerConfig(
            recorders=("csv", "custom_recorder:Printer"), flush_record_interval=100
        ),
        stop=vedette.StopConfig(max_opts=200),
        in_process=True,
    )
    print((result.run / "records.csv").read_text().splitlines()[0])
