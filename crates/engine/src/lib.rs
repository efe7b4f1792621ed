//! The engine plans and runs training jobs; it is the whole of Trainyard without the edges.
//!
//! A job is plain values all the way: a request ([`wire`]) becomes a valid [`spec`], the spec a
//! [`plan`] with one entry per instance, and each of them is written to the run directory
//! ([`run`]), where a supervisor carries it out. The engine prints nothing, exits nowhere and reads no
//! environment.

pub mod artifact;
pub mod backend;
pub mod cgroup;
pub mod docker;
pub mod doctor;
pub mod engine;
pub mod executable;
mod explain;
mod fastfile;
pub mod gpu;
pub mod image;
pub mod instance;
pub mod job;
pub mod lookup;
pub mod manifest;
pub mod network;
pub mod notice;
mod pipe;
pub mod plan;
pub mod prepare;
pub mod recordio;
pub mod run;
pub mod runtime;
mod signal;
pub mod spec;
pub mod storage;
pub mod store;
mod sys;
pub mod wire;
