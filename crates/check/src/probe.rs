//! The process in an instance that starts the image's own command, watches it and interferes.
//!
//! It runs as the image's user, in its environment and folder, and reports by one line of its output.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use fs_err as fs;
use rustix::process::{Pid, Signal, getuid, kill_process};
use serde::{Deserialize, Serialize};
use trainyard_engine::image::Lowers;

mod elsewhere;
mod tree;

use crate::facts::{End, Interference, KillFacts, Order, ProbeReport, Process, ProgramFacts, StopFacts};
use crate::image::{Places, program};

/// The channel that brings the probe.
pub(crate) const CHANNEL: &str = "trainyard-check";

/// Where the contract's tree is.
const ML: &str = trainyard_toolkit::contract::ROOT;

/// Between two looks at the processes.
const INTERVAL: Duration = Duration::from_millis(5);

/// A process that has run this long is no small command of a script.
const SETTLED: Duration = Duration::from_millis(250);

/// What the one line of the output looks like.
#[derive(Serialize, Deserialize)]
pub(crate) struct Line {
    #[serde(rename = "trainyard-check")]
    pub(crate) report: ProbeReport,
}

/// Carries out an order and prints what was seen.
///
/// # Errors
///
/// Fails if the program can't be started or watched.
pub fn probe(order: &Order) -> io::Result<()> {
    // What is left of the probe is gone before the program can see it.
    fs::remove_dir_all(Path::new(ML).join("input/data").join(CHANNEL))?;
    let not_writable = not_writable();
    if order.interference == Interference::LookOnly {
        return tell(ProbeReport { program: Some(find(order)?), ..nothing_seen(not_writable) });
    }
    let since = elsewhere::now()?;
    let mut run = Run::start(order)?;
    let (mut stop, mut kill) = (None, None);
    match order.interference {
        Interference::None | Interference::LookOnly => {}
        Interference::Stop => stop = run.stop()?,
        Interference::Kill => kill = run.kill()?,
    }
    let interfered = stop.is_some() || matches!(kill, Some(KillFacts::Killed { .. }));
    let end = if interfered { None } else { Some(run.end()?) };
    let failure = fs::read(Path::new(ML).join("output/failure")).unwrap_or_default();
    let failure = String::from_utf8_lossy(&failure).trim().to_owned();
    let changed = if order.look_elsewhere { elsewhere::changed(since) } else { Vec::new() };
    tell(ProbeReport {
        end,
        failure: (!failure.is_empty()).then_some(failure),
        elsewhere_count: changed.len(),
        elsewhere: changed.into_iter().take(20).collect(),
        stop,
        kill,
        ..nothing_seen(not_writable)
    })
}

/// A report in which nothing has happened yet.
fn nothing_seen(not_writable: Vec<(String, String)>) -> ProbeReport {
    ProbeReport {
        uid: getuid().as_raw(),
        program: None,
        not_writable,
        end: None,
        failure: None,
        elsewhere: Vec::new(),
        elsewhere_count: 0,
        stop: None,
        kill: None,
    }
}

fn tell(report: ProbeReport) -> io::Result<()> {
    // On a line of its own, whatever the program has written last.
    writeln!(io::stdout().lock(), "\n{}", serde_json::to_string(&Line { report })?)
}

/// What the first word of the command leads to in the file system that this process sees.
fn find(order: &Order) -> io::Result<ProgramFacts> {
    let name = order.command.first().map(String::as_str).unwrap_or_default();
    let searched = std::env::var("PATH").unwrap_or_default();
    let folder = std::env::current_dir()?;
    Ok(program(name, &Places { lowers: &Lowers::own(), folder: &folder, searched: &searched }))
}

/// Folders that the contract lets a program write to and this user can't.
fn not_writable() -> Vec<(String, String)> {
    let folders = ["model", "output", "output/data"].map(|name| format!("{ML}/{name}"));
    let folders = folders.into_iter().chain(["/tmp".to_owned()]);
    let tried = folders.map(|folder| {
        let file = Path::new(&folder).join(".trainyard-check");
        let written = fs::write(&file, "x").and_then(|()| fs::remove_file(&file));
        written.map_err(|error| (folder, error.to_string()))
    });
    tried.filter_map(Result::err).collect()
}

/// The image's program while it runs.
struct Run<'a> {
    order: &'a Order,
    child: Child,
    started: Instant,
}

impl<'a> Run<'a> {
    fn start(order: &'a Order) -> io::Result<Self> {
        let (program, arguments) = order.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        // A process whose parent has ended is taken over by this one, and so stays in sight.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let child = std::os::unix::process::CommandExt::process_group(&mut Command::new(program), 0)
            .args(arguments)
            .stdin(Stdio::null())
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("{program}: {error}")))?;
        Ok(Self { order, child, started: Instant::now() })
    }

    /// Waits for the end, and counts how long the program has run.
    fn end(&mut self) -> io::Result<End> {
        let status = self.child.wait()?;
        Ok(End { code: code(status), seconds: self.started.elapsed().as_secs_f64() })
    }

    /// Sends SIGTERM to the first process once the program is at work; none if it ended before.
    fn stop(&mut self) -> io::Result<Option<StopFacts>> {
        let handles = |process: &Process| process.handles_sigterm;
        let at_work = self.at_work(|first, settled| handles(first) || settled.iter().any(handles))?;
        let Some((first, others)) = at_work else { return Ok(None) };
        send(first.pid, Signal::TERM)?;
        let asked = Instant::now();
        let ended = self.wait(self.order.grace)?;
        let ended_after = ended.map(|_| asked.elapsed().as_secs_f64());
        let alive = tree::others(self.pid());
        let survivors = others.iter().filter(|other| alive.iter().any(|now| now.pid == other.pid));
        let facts = StopFacts { survivors: survivors.cloned().collect(), first, others, ended_after };
        self.make_an_end()?;
        Ok(Some(facts))
    }

    /// Kills the process behind the first one; none if the program ended before.
    fn kill(&mut self) -> io::Result<Option<KillFacts>> {
        let Some((first, others)) = self.at_work(|_, settled| !settled.is_empty())? else { return Ok(None) };
        if others.is_empty() {
            self.make_an_end()?;
            return Ok(Some(KillFacts::Alone { first }));
        }
        let Some(victim) = last_of_chain(&first, &others) else {
            self.make_an_end()?;
            return Ok(Some(KillFacts::Several { first }));
        };
        send(victim.pid, Signal::KILL)?;
        let ended = self.wait(self.order.grace)?;
        let end =
            ended.map(|status| End { code: code(status), seconds: self.started.elapsed().as_secs_f64() });
        self.make_an_end()?;
        Ok(Some(KillFacts::Killed { victim: victim.clone(), first, end }))
    }

    /// Waits until the processes are as they should be, or until there is no more patience. Those that come
    /// and go, such as the small commands of a script, do not count. None if the program has ended.
    fn at_work(
        &mut self,
        enough: impl Fn(&Process, &[Process]) -> bool,
    ) -> io::Result<Option<(Process, Vec<Process>)>> {
        let patience = Duration::from_secs_f64(self.order.patience);
        let mut since: HashMap<i32, Instant> = HashMap::new();
        while self.child.try_wait()?.is_none() {
            let now = tree::others(self.pid());
            since.retain(|pid, _| now.iter().any(|process| process.pid == *pid));
            now.iter().for_each(|process| _ = since.entry(process.pid).or_insert_with(Instant::now));
            let settled: Vec<Process> =
                now.into_iter().filter(|process| since[&process.pid].elapsed() >= SETTLED).collect();
            let running = self.started.elapsed();
            if let Some(first) = tree::process(self.pid())
                && (running >= patience || (running >= SETTLED && enough(&first, &settled)))
            {
                return Ok(Some((first, settled)));
            }
            sleep(INTERVAL);
        }
        Ok(None)
    }

    /// Waits for the end of the first process, and for what ends with it.
    fn wait(&mut self, grace: f64) -> io::Result<Option<ExitStatus>> {
        let asked = Instant::now();
        while asked.elapsed().as_secs_f64() < grace {
            if let Some(status) = self.child.try_wait()? {
                sleep(10 * INTERVAL);
                return Ok(Some(status));
            }
            sleep(INTERVAL);
        }
        Ok(None)
    }

    fn make_an_end(&mut self) -> io::Result<()> {
        for other in tree::others(self.pid()) {
            send(other.pid, Signal::KILL)?;
        }
        if self.child.try_wait()?.is_none() {
            self.child.kill()?;
            self.child.wait()?;
        }
        Ok(())
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(i32::MAX)
    }
}

/// From the first process to the one that it waits for, and so on.
fn last_of_chain<'a>(first: &Process, others: &'a [Process]) -> Option<&'a Process> {
    let mut last = None;
    let mut parent = first.pid;
    loop {
        let mut children = others.iter().filter(|other| other.parent == parent);
        match (children.next(), children.next()) {
            (Some(only), None) => (last, parent) = (Some(only), only.pid),
            (Some(_), Some(_)) => return None,
            (None, _) => return last,
        }
    }
}

/// Nobody to send it to is no error.
fn send(pid: i32, signal: Signal) -> io::Result<()> {
    match Pid::from_raw(pid).map(|pid| kill_process(pid, signal)) {
        Some(Err(error)) if error != rustix::io::Errno::SRCH => Err(error.into()),
        _ => Ok(()),
    }
}

fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}
