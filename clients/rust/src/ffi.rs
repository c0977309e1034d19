//! The declarations of `clients/c/vedette.h`.

use std::os::raw::{c_char, c_int, c_uint, c_void};

#[repr(C)]
pub struct Client {
    _private: [u8; 0],
}

#[repr(C)]
pub struct Options {
    pub host: *const c_char,
    pub port: c_int,
    pub id: *const c_char,
    pub keys: *const c_char,
    pub envs: c_uint,
    pub obs_bytes: usize,
    pub action_bytes: usize,
    pub evaluates: bool,
    pub window: c_uint,
    pub wait_s: f64,
}

/// What a client did: steps and episodes since it was opened, and rows of this incarnation.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stats {
    pub env_steps: u64,
    pub episodes: u64,
    pub produced: u64,
    pub settled: u64,
    pub rejected: u64,
    pub dropped: u64,
    /// Batches sent again.
    pub resent: u64,
    /// Of the model that acts.
    pub epoch: u64,
    pub version: u64,
    pub reconnects: u64,
    /// Of the last episodes, at most 100.
    pub return_mean: f64,
}

extern "C" {
    pub fn vedette_open_sized(options: *const Options, size: usize) -> *mut Client;
    pub fn vedette_wait(client: *mut Client, seconds: f64) -> c_int;
    pub fn vedette_obs_bytes(client: *const Client) -> usize;
    pub fn vedette_action_bytes(client: *const Client) -> usize;
    pub fn vedette_obs_offset(client: *const Client, key: *const c_char, bytes: *mut usize) -> usize;
    pub fn vedette_begin(client: *mut Client, env: c_uint, obs: *const c_void) -> c_int;
    pub fn vedette_act(client: *mut Client, env: c_uint, action: *mut c_void) -> c_int;
    pub fn vedette_greedy(client: *mut Client, obs: *const c_void, action: *mut c_void) -> c_int;
    pub fn vedette_memory_size(client: *const Client) -> usize;
    pub fn vedette_greedy_with_memory(
        client: *mut Client,
        obs: *const c_void,
        memory: *mut f32,
        size: usize,
        action: *mut c_void,
    ) -> c_int;
    pub fn vedette_set_action(client: *mut Client, env: c_uint, action: *const c_void) -> c_int;
    pub fn vedette_observe(
        client: *mut Client,
        env: c_uint,
        reward: f64,
        next_obs: *const c_void,
        terminated: bool,
        truncated: bool,
    ) -> c_int;
    pub fn vedette_array(client: *const Client, name: *const c_char, count: *mut usize) -> *const f32;
    pub fn vedette_close(client: *mut Client, seconds: f64) -> bool;
    pub fn vedette_get_stats_sized(client: *mut Client, stats: *mut Stats, size: usize);
    pub fn vedette_error(client: *const Client) -> *const c_char;
}
