"""The wire between actor managers and the learner: messages, frames, delivery; no socket."""
