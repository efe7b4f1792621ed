//! Puts instances below a probe, and drives jobs.

use std::io;
use std::path::Path;

use fs_err as fs;
use tokio::sync::{mpsc, watch};
use trainyard_engine::engine::{Command, Driver};
use trainyard_engine::plan::{ChannelPlan, Delivery, InstancePlan, ObjectPlan};

use super::CheckError;
use super::seen::Seen;
use crate::facts::Order;
use crate::probe::CHANNEL;

/// The name of the probe's file.
const NAME: &str = "trainyard";

/// Lets an instance start the probe in place of its command. The probe comes as a channel of which the
/// configuration files say nothing.
pub(super) fn put_below_probe(plan: &mut InstancePlan, probe: &Path, order: &Order) -> io::Result<()> {
    let source = probe.to_owned().into();
    let object = ObjectPlan { source, relative: NAME.to_owned(), size: fs::metadata(probe)?.len() };
    plan.channels.push(ChannelPlan {
        name: CHANNEL.to_owned(),
        objects: vec![object],
        replicated: false,
        manifest: false,
        delivery: Delivery::Files,
    });
    let program = format!("{}/input/data/{CHANNEL}/{NAME}", trainyard_toolkit::contract::ROOT);
    plan.command = vec![program, "probe".to_owned(), serde_json::to_string(order)?];
    Ok(())
}

/// Drives a job to its end; an interrupt kills it.
pub(super) async fn drive(
    driver: Driver,
    mut interrupted: watch::Receiver<bool>,
) -> Result<Seen, CheckError> {
    let (commands, mut obeyed) = mpsc::unbounded_channel();
    let (notices, mut noticed) = mpsc::unbounded_channel();
    let mut driven = tokio::spawn(async move { driver.drive(&mut obeyed, notices).await });
    let mut seen = Vec::new();
    let job = loop {
        tokio::select! {
            Ok(_) = interrupted.wait_for(|&interrupted| interrupted) => {
                // The job may have ended just now.
                let _ = commands.send(Command::Kill);
                driven.await??;
                return Err(CheckError::Interrupted);
            }
            Some(notice) = noticed.recv() => seen.push(notice),
            job = &mut driven => break job??,
        }
    };
    while let Ok(notice) = noticed.try_recv() {
        seen.push(notice);
    }
    Ok(Seen::new(job, &seen))
}
