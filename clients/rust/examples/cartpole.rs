//! CartPole with physics of its own, played for a learner until its run is over.
//!
//!     cargo run --release --example cartpole -- HOST PORT ID [KEYS]

use std::time::Duration;

use vedette::{Actor, Error, Options, State};

const ENVS: usize = 8;
const EPISODE_STEPS: u32 = 500;

#[derive(Default, Clone, Copy)]
struct Cart {
    x: f64,
    x_dot: f64,
    theta: f64,
    theta_dot: f64,
    steps: u32,
}

impl Cart {
    /// Near the middle; `random`: the state of xorshift64.
    fn reset(random: &mut u64) -> Cart {
        let mut small = || {
            *random ^= *random << 13;
            *random ^= *random >> 7;
            *random ^= *random << 17;
            0.1 * (*random >> 11) as f64 / (1u64 << 53) as f64 - 0.05
        };
        Cart { x: small(), x_dot: small(), theta: small(), theta_dot: small(), steps: 0 }
    }

    fn observe(&self) -> [f32; 4] {
        [self.x as f32, self.x_dot as f32, self.theta as f32, self.theta_dot as f32]
    }

    /// One step of 0.02 s. True: the pole fell, or the cart left the track.
    fn step(&mut self, action: i64) -> bool {
        let force = if action == 1 { 10.0 } else { -10.0 };
        let (sine, cosine) = self.theta.sin_cos();
        let pull = (force + 0.05 * self.theta_dot * self.theta_dot * sine) / 1.1;
        let turn = (9.8 * sine - cosine * pull) / (0.5 * (4.0 / 3.0 - 0.1 * cosine * cosine / 1.1));
        let push = pull - 0.05 * turn * cosine / 1.1;
        self.x += 0.02 * self.x_dot;
        self.x_dot += 0.02 * push;
        self.theta += 0.02 * self.theta_dot;
        self.theta_dot += 0.02 * turn;
        self.steps += 1;
        self.x.abs() > 2.4 || self.theta.abs() > 12.0f64.to_radians()
    }
}

/// Step one environment.
fn play(actor: &mut Actor, env: usize, cart: &mut Cart, random: &mut u64) -> Result<State, Error> {
    let mut action = [0i64];
    let state = actor.act(env as u32, &mut action)?;
    if state == State::Ready {
        let fell = cart.step(action[0]);
        let late = cart.steps >= EPISODE_STEPS;
        let state = actor.observe(env as u32, 1.0, &cart.observe(), fell, late)?;
        if state != State::Ready || !(fell || late) {
            return Ok(state);
        }
    } else if state != State::Begin {
        return Ok(state);
    }
    *cart = Cart::reset(random);
    actor.begin(env as u32, &cart.observe())
}

fn run(actor: &mut Actor, learner: &str) -> Result<(), Error> {
    let mut patience = Duration::from_secs(3);
    while actor.wait(Some(patience))? == State::Wait {
        eprintln!("waiting for the learner at {learner}");
        patience = Duration::from_secs(30);
    }
    let mut random = 0x9e37_79b9_7f4a_7c15;
    let mut carts = [Cart::default(); ENVS];
    for (env, cart) in carts.iter_mut().enumerate() {
        *cart = Cart::reset(&mut random);
        if actor.begin(env as u32, &cart.observe())? == State::End {
            return Ok(());
        }
    }
    loop {
        for (env, cart) in carts.iter_mut().enumerate() {
            if play(actor, env, cart, &mut random)? == State::End {
                return Ok(());
            }
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().collect();
    if !(4..=5).contains(&words.len()) {
        eprintln!("usage: cartpole HOST PORT ID [KEYS]");
        std::process::exit(2);
    }
    let mut options = Options::new(&words[1], &words[3]);
    options.port = words[2].parse()?;
    options.keys = words.get(4).map(Into::into);
    options.envs = ENVS as u32;
    let mut actor = Actor::open(&options)?;
    let played = run(&mut actor, &words[1..3].join(":"));
    let stats = actor.stats();
    let settled = actor.close(Duration::from_secs(10));
    if let Err(error) = &played {
        eprintln!("cartpole: {error}");
    }
    println!(
        "{} steps, {} episodes, the last ones {:.1}; {} rows, {} sent again, {} reconnects; {}",
        stats.env_steps,
        stats.episodes,
        stats.return_mean,
        stats.produced,
        stats.resent,
        stats.reconnects,
        if settled { "all settled" } else { "not all settled" }
    );
    std::process::exit(if played.is_err() { 3 } else { i32::from(!settled) })
}
