"""What runs: the learner daemon, the actor manager daemon and the commands."""
