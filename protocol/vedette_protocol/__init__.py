"""What travels between actor managers and the learner: messages, frames, promises; no socket."""
