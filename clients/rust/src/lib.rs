//! Actors for Vedette learners, for simulators, games and robots in Rust.
//!
//! ```no_run
//! # fn step(_: i64) -> (f64, [f32; 4], bool, bool) { (0.0, [0.0; 4], false, false) }
//! use vedette::{Actor, Options, State};
//!
//! let mut actor = Actor::open(&Options::new("127.0.0.1", "simulator-1"))?;
//! actor.begin(0, &[0.0f32; 4])?;
//! let mut action = [0i64];
//! while actor.act(0, &mut action)? == State::Ready {
//!     let (reward, obs, terminated, truncated) = step(action[0]);
//!     actor.observe(0, reward, &obs, terminated, truncated)?;
//!     if terminated || truncated {
//!         actor.begin(0, &[0.0f32; 4])?;
//!     }
//! }
//! actor.close(std::time::Duration::from_secs(10));
//! # Ok::<(), vedette::Error>(())
//! ```
//!
//! Observations and actions are the numbers of one row of the run's columns. `clients/c/vedette.h` describes each
//! function.

use std::ffi::{CStr, CString};
use std::fmt;
use std::mem::{size_of, size_of_val};
use std::path::PathBuf;
use std::time::Duration;

mod ffi;

/// A client of a learner. It may move to another thread; a thread of its own does the network's work.
pub struct Actor {
    client: *mut ffi::Client,
}

// SAFETY: the client's functions are for one thread at a time, which `&mut` ensures.
unsafe impl Send for Actor {}

/// Why a client cannot go on. Close it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(pub String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// What a call led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum State {
    /// It is done.
    Ready,
    /// The run is over: close the client.
    End,
    /// Nothing came within the time given; of `observe`: a batch was dropped and counted.
    Wait,
    /// Another run began, or an evaluation was given up: reset this environment and call `begin`.
    Begin,
}

/// How long `act` waits for a first model, and `observe` for room in the window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Patience {
    Unlimited,
    AtMost(Duration),
    /// As a control loop needs it.
    None,
}

/// How a client connects.
#[derive(Debug, Clone)]
pub struct Options {
    pub host: String,
    /// The learner's first port.
    pub port: u16,
    /// No other manager may have it.
    pub id: String,
    /// The host's folder of `vedette keys`.
    pub keys: Option<PathBuf>,
    pub envs: u32,
    /// Batches held until they are settled; 0: 1024.
    pub window: u32,
    pub patience: Patience,
    /// Play evaluations where the learner asks: some episodes are greedy, and send nothing.
    pub evaluates: bool,
}

impl Options {
    /// One environment, port 5555, no keys, unlimited patience.
    pub fn new(host: &str, id: &str) -> Self {
        let (host, id) = (host.to_owned(), id.to_owned());
        Options {
            host,
            port: 5555,
            id,
            keys: None,
            envs: 1,
            window: 0,
            patience: Patience::Unlimited,
            evaluates: true,
        }
    }
}

pub use ffi::Stats;

/// A number of an observation or an action: it has no padding, and every pattern of bits is one.
///
/// # Safety
/// Implemented for the types of the wire only.
pub unsafe trait Number: Copy {}

macro_rules! numbers {
    ($($kind:ty),*) => { $(unsafe impl Number for $kind {})* };
}
numbers!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

impl Actor {
    /// Start a client. What is wrong with the options, or later with the connection, is an error of the next call.
    pub fn open(options: &Options) -> Result<Actor, Error> {
        let text = |value: &str| CString::new(value).map_err(|_| Error("a text with a zero byte".into()));
        let (host, id) = (text(&options.host)?, text(&options.id)?);
        let keys = options.keys.as_ref().map(|path| text(&path.to_string_lossy())).transpose()?;
        let wait_s = match options.patience {
            Patience::Unlimited => 0.0,
            Patience::AtMost(time) => time.as_secs_f64().max(1e-9),
            Patience::None => -1.0,
        };
        let given = ffi::Options {
            host: host.as_ptr(),
            port: options.port.into(),
            id: id.as_ptr(),
            keys: keys.as_ref().map_or(std::ptr::null(), |path| path.as_ptr()),
            envs: options.envs,
            obs_bytes: 0,
            action_bytes: 0,
            evaluates: options.evaluates,
            window: options.window,
            wait_s,
        };
        // SAFETY: the texts live until it returns, and it copies them.
        let client = unsafe { ffi::vedette_open_sized(&given, size_of::<ffi::Options>()) };
        if client.is_null() {
            return Err(Error("no memory or no random numbers".into()));
        }
        Ok(Actor { client })
    }

    /// Wait until there are a run and a model to act on; `None`: without a limit.
    pub fn wait(&mut self, at_most: Option<Duration>) -> Result<State, Error> {
        let seconds = at_most.map_or(0.0, |time| time.as_secs_f64().max(1e-9));
        // SAFETY: `client` is open.
        let code = unsafe { ffi::vedette_wait(self.client, seconds) };
        self.state(code)
    }

    /// Bytes of an observation; 0 before there is a run.
    pub fn obs_bytes(&self) -> usize {
        // SAFETY: `client` is open.
        unsafe { ffi::vedette_obs_bytes(self.client) }
    }

    /// Bytes of an action; 0 before there is a run.
    pub fn action_bytes(&self) -> usize {
        // SAFETY: `client` is open.
        unsafe { ffi::vedette_action_bytes(self.client) }
    }

    /// Where a part of a composed observation begins, and its bytes.
    pub fn obs_part(&self, key: &str) -> Option<(usize, usize)> {
        let (key, mut bytes) = (CString::new(key).ok()?, 0);
        // SAFETY: `client` is open.
        let offset = unsafe { ffi::vedette_obs_offset(self.client, key.as_ptr(), &mut bytes) };
        (offset != usize::MAX).then_some((offset, bytes))
    }

    /// Begin an episode of an environment. It waits for a run.
    pub fn begin<T: Number>(&mut self, env: u32, obs: &[T]) -> Result<State, Error> {
        if !self.knows_sizes()? {
            return Ok(State::End);
        }
        self.check("an observation", size_of_val(obs), self.obs_bytes())?;
        // SAFETY: `obs` has as many bytes as are read: a client's sizes never change once they are known.
        let code = unsafe { ffi::vedette_begin(self.client, env, obs.as_ptr().cast()) };
        self.state(code)
    }

    /// Choose an exploring action by the newest model.
    pub fn act<T: Number>(&mut self, env: u32, action: &mut [T]) -> Result<State, Error> {
        if !self.knows_sizes()? {
            return Ok(State::End);
        }
        self.check("an action", size_of_val(action), self.action_bytes())?;
        // SAFETY: as in `begin`.
        let code = unsafe { ffi::vedette_act(self.client, env, action.as_mut_ptr().cast()) };
        self.state(code)
    }

    /// The best action for an observation, of a policy without memory; nothing is sent.
    pub fn greedy<T: Number, A: Number>(&mut self, obs: &[T], action: &mut [A]) -> Result<State, Error> {
        if !self.knows_sizes()? {
            return Ok(State::End);
        }
        self.check("an observation", size_of_val(obs), self.obs_bytes())?;
        self.check("an action", size_of_val(action), self.action_bytes())?;
        // SAFETY: as in `begin`.
        let code =
            unsafe { ffi::vedette_greedy(self.client, obs.as_ptr().cast(), action.as_mut_ptr().cast()) };
        self.state(code)
    }

    /// Numbers that the policy remembers since an episode began; 0: it has no memory, or there is no run yet. `act`
    /// and `observe` keep them by themselves.
    pub fn memory_size(&self) -> usize {
        // SAFETY: `client` is open.
        unsafe { ffi::vedette_memory_size(self.client) }
    }

    /// `greedy` with a memory of the caller's own, of `memory_size` numbers: zeros where an episode begins, and after
    /// the call those that the next observation goes with.
    pub fn greedy_with_memory<T: Number, A: Number>(
        &mut self,
        obs: &[T],
        memory: &mut [f32],
        action: &mut [A],
    ) -> Result<State, Error> {
        if !self.knows_sizes()? {
            return Ok(State::End);
        }
        self.check("an observation", size_of_val(obs), self.obs_bytes())?;
        self.check("an action", size_of_val(action), self.action_bytes())?;
        // SAFETY: as in `begin`; a memory of another size than the run's is an error.
        let code = unsafe {
            ffi::vedette_greedy_with_memory(
                self.client,
                obs.as_ptr().cast(),
                memory.as_mut_ptr(),
                memory.len(),
                action.as_mut_ptr().cast(),
            )
        };
        self.state(code)
    }

    /// Take this action instead of one by the policy.
    pub fn set_action<T: Number>(&mut self, env: u32, action: &[T]) -> Result<State, Error> {
        self.check("an action", size_of_val(action), self.action_bytes())?;
        // SAFETY: as in `begin`.
        let code = unsafe { ffi::vedette_set_action(self.client, env, action.as_ptr().cast()) };
        self.state(code)
    }

    /// A step's outcome: `next_obs` is the episode's last observation where it ends.
    pub fn observe<T: Number>(
        &mut self,
        env: u32,
        reward: f64,
        next_obs: &[T],
        terminated: bool,
        truncated: bool,
    ) -> Result<State, Error> {
        self.check("an observation", size_of_val(next_obs), self.obs_bytes())?;
        let next_obs = next_obs.as_ptr().cast();
        // SAFETY: as in `begin`.
        let code = unsafe { ffi::vedette_observe(self.client, env, reward, next_obs, terminated, truncated) };
        self.state(code)
    }

    /// The weights of an array of the newest model.
    pub fn array(&self, name: &str) -> Option<&[f32]> {
        let (name, mut count) = (CString::new(name).ok()?, 0);
        // SAFETY: the array stays until the next call that takes a model, which needs `&mut self`.
        unsafe {
            let numbers = ffi::vedette_array(self.client, name.as_ptr(), &mut count);
            (!numbers.is_null()).then(|| std::slice::from_raw_parts(numbers, count))
        }
    }

    /// What the client did so far.
    pub fn stats(&mut self) -> Stats {
        let mut stats = Stats::default();
        // SAFETY: `client` is open.
        unsafe { ffi::vedette_get_stats_sized(self.client, &mut stats, size_of::<Stats>()) };
        stats
    }

    /// Send what is left, wait until all is settled, and end. True: every row was settled.
    pub fn close(self, at_most: Duration) -> bool {
        let client = self.client;
        std::mem::forget(self);
        // SAFETY: `client` is open, and nobody has it any more.
        unsafe { ffi::vedette_close(client, at_most.as_secs_f64()) }
    }

    /// Wait for a run; false: it is over.
    fn knows_sizes(&mut self) -> Result<bool, Error> {
        while self.obs_bytes() == 0 {
            if self.wait(Some(Duration::from_millis(200)))? == State::End {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn check(&self, what: &str, given: usize, wanted: usize) -> Result<(), Error> {
        match given == wanted {
            true => Ok(()),
            false => Err(Error(format!("{what} of {given} bytes, but the run's have {wanted}"))),
        }
    }

    fn state(&self, code: i32) -> Result<State, Error> {
        match code {
            0 => Ok(State::Ready),
            1 => Ok(State::End),
            2 => Ok(State::Wait),
            3 => Ok(State::Begin),
            // SAFETY: the text is the client's, ends with a zero and is written once.
            _ => Err(Error(
                unsafe { CStr::from_ptr(ffi::vedette_error(self.client)) }.to_string_lossy().into(),
            )),
        }
    }
}

impl Drop for Actor {
    /// Without waiting: what is not settled is dropped.
    fn drop(&mut self) {
        // SAFETY: `client` is open, and nobody has it any more.
        unsafe { ffi::vedette_close(self.client, 0.0) };
    }
}
