"""What travels between actor managers and the learner: messages, frames and promises, and no socket."""
