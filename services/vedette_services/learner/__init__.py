"""The learner daemon: a supervisor over a gateway, a trainer and an evaluator."""
