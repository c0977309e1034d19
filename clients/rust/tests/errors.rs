//! What is wrong is an error with its reason, and a client without a learner ends at once.

use std::time::Duration;

use vedette::{Actor, Options, Patience, State};

#[test]
fn a_bad_id_is_named() {
    let mut actor = Actor::open(&Options::new("127.0.0.1", "two words")).unwrap();
    let error = actor.wait(Some(Duration::from_millis(10))).unwrap_err();
    assert_eq!(error.to_string(), "the id is not 1 to 64 of A-Z a-z 0-9 . _ -");
}

#[test]
fn missing_keys_are_named() {
    let mut options = Options::new("127.0.0.1", "robot-1");
    options.keys = Some("nowhere".into());
    let error = Actor::open(&options).unwrap().wait(None).unwrap_err();
    assert!(error.0.starts_with("nowhere: no key.secret.toml"), "{error}");
}

#[test]
fn an_action_without_a_run_is_refused() {
    let mut actor = Actor::open(&Options::new("127.0.0.1", "robot-1")).unwrap();
    assert_eq!(actor.set_action(0, &[1i64]).unwrap_err().0, "an action of 8 bytes, but the run's have 0");
}

#[test]
fn a_client_without_a_learner_waits_no_longer_than_it_is_told() {
    let mut options = Options::new("127.0.0.1", "robot-1");
    options.port = 9; // nobody listens there
    options.patience = Patience::None;
    let mut actor = Actor::open(&options).unwrap();
    assert_eq!(actor.wait(Some(Duration::from_millis(20))).unwrap(), State::Wait);
    assert_eq!(actor.stats().env_steps, 0);
    assert!(actor.close(Duration::ZERO), "there was nothing to settle");
}
