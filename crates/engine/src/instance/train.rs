//! The second phase: starts `train` and watches it until nothing of it is left.

use std::io;

use rustix::pipe::fcntl_setpipe_size;
use tokio::net::unix::pipe::Receiver;
use tokio::time::Instant;

use super::Scene;
use super::limits::{Confinement, Killed};
use super::log::{Lines, Log};
use super::reports::Reports;
use super::stop::until;
use super::usage::Usage;
use crate::explain::chain;
use crate::fastfile::FastFiles;
use crate::pipe::{Broken, Pipes};
use crate::run::{Exit, Report, Stream, Timestamp};
use crate::runtime::jail::start::{Output, StartError};
use crate::runtime::jail::{Command, InsteadOfOverlay};
use crate::runtime::{Along, Recipe, Running, probe, start};

/// Asked of the kernel for the pipes, so that a program that writes much need not wait. All pipes of a
/// user share 64 MiB by default.
const PIPE_SIZE: usize = 256 << 10;

/// Read from a pipe at once.
const READ_SIZE: usize = 128 * 1024;

const SIGKILL: i32 = 9;

/// How `train` came to its end.
#[derive(Debug)]
pub(crate) enum Trained {
    /// It ended, by itself or because it was asked to.
    Exited(Exit),
    /// It ended by itself, or because it was asked to, after it could not read an object that is fetched when it is read.
    Unread {
        /// How it ended.
        exit: Exit,
        /// Which object, and why.
        reason: String,
    },
    /// It was ended because it took more than it may have.
    Exceeded {
        /// How it ended.
        exit: Exit,
        /// How much it had and may have.
        explanation: String,
    },
    /// It was ended because a channel's data could not be sent to the end.
    Starved {
        /// Which channel, and why.
        explanation: String,
    },
    /// The instance was asked to stop before `train` had started.
    Stopped,
    /// It never ran.
    NotStarted(StartError),
}

/// Starts `train` and watches it until no process of the instance is left.
///
/// # Errors
/// The supervisor can't see whether anything is left.
pub(crate) async fn train(
    scene: &Scene<'_>,
    recipe: &Recipe,
    log: &mut Log,
    reports: &mut Reports,
) -> io::Result<Trained> {
    let confinement = Confinement::of(scene.plan, scene.scratch.root(), reports).await;
    let recipe = confinement.recipe(recipe, scene.plan);
    let trained = train_confined(scene, &recipe, &confinement, log, reports).await;
    confinement.lift(trained.as_ref().ok(), reports).await;
    trained
}

async fn train_confined(
    scene: &Scene<'_>,
    recipe: &Recipe,
    confinement: &Confinement,
    log: &mut Log,
    reports: &mut Reports,
) -> io::Result<Trained> {
    let pipes = Pipes::serve(&scene.plan.channels, &scene.stores(), &scene.scratch.channels())?;
    let mut files = match FastFiles::serve(scene.plan, scene.stores()) {
        Ok(files) => files,
        Err(error) => return Ok(Trained::Starved { explanation: chain(&error) }),
    };
    let along = Along { group: confinement.group(), network: scene.namespaces(), door: files.door() };
    let started = tokio::select! {
        started = start(scene.self_program, recipe, along) => started,
        // What has been started ends with its socket.
        () = scene.stop.requested() => return Ok(Trained::Stopped),
    };
    let (mut running, output) = match started {
        Ok(started) => started,
        Err(error) => return Ok(Trained::NotStarted(error)),
    };
    files.close_door();
    let started = tokio::select! {
        started = running.started() => started.map_err(Trained::NotStarted),
        () = scene.stop.requested() => Err(Trained::Stopped),
    };
    match started {
        Ok(instead) => {
            warn_of(instead.as_ref(), reports);
            warn_of_ids(scene, &running, reports).await;
        }
        Err(trained) => {
            running.give_up();
            running.ended().await?;
            return Ok(trained);
        }
    }
    reports.tell(Report::Training);
    let measured = confinement.measured(&running, scene.plan, scene.scratch.root());
    let file = scene.run.instance(&scene.plan.host).usage();
    let usage = measured.and_then(|measured| Usage::start(measured, &file));
    let mut watch = Watch::new(scene, (running, output), (pipes, files), (log, reports));
    watch.until_ended(confinement).await?;
    let exit = match watch.running.exited().await {
        Some(exit) => exit,
        None => Exit::Signal(SIGKILL),
    };
    let killed = Killed {
        by_others: exit.code() == 128 + SIGKILL && watch.asked != Asked::Kill,
        memory: watch.running.memory().await,
    };
    let starved = watch.starved.take();
    let unread = watch.files.reason();
    if let Some(usage) = usage {
        usage.finish().await;
    }
    log.finish(reports);
    let (exit, trained) = how(exit, starved, confinement.exceeded(exit, &killed).await, unread);
    reports.tell(Report::Exited(exit));
    Ok(trained)
}

/// How `train` ended, by the weightiest of what happened to it.
fn how(
    exit: Exit,
    starved: Option<Broken>,
    exceeded: Option<(Exit, String)>,
    unread: Option<String>,
) -> (Exit, Trained) {
    match (starved, exceeded, unread) {
        (Some(broken), _, _) => (exit, Trained::Starved { explanation: chain(&broken) }),
        (None, Some((exit, explanation)), _) => (exit, Trained::Exceeded { exit, explanation }),
        (None, None, Some(reason)) => (exit, Trained::Unread { exit, reason }),
        (None, None, None) => (exit, Trained::Exited(exit)),
    }
}

/// Warns where an image is not shown in the usual way.
fn warn_of(instead: Option<&InsteadOfOverlay>, reports: &mut Reports) {
    let how = match instead {
        None => return,
        Some(InsteadOfOverlay::Memory { reason }) => {
            format!(
                "can't keep an image's changes ({reason}): what is written outside of /opt/ml and /tmp takes memory"
            )
        }
        Some(InsteadOfOverlay::Copy { reason }) => {
            format!(
                "can't show an image's layers ({reason}): the instance has got a copy, which takes time and room"
            )
        }
    };
    reports.warn(format!(
        "the file system of the data folder {how}; on ext4, XFS, Btrfs or tmpfs it would not (--data-dir)"
    ));
}

/// Warns where ids that are set aside for the user were refused. Why, is found by trying it once more.
async fn warn_of_ids(scene: &Scene<'_>, running: &Running, reports: &mut Reports) {
    if running.lacks_ids() {
        let reason = match probe(scene.self_program).await {
            Ok(Some(refusal)) => refusal,
            Ok(None) => "tried once more, they are given".to_owned(),
            Err(error) => chain(&error),
        };
        reports.warn(format!(
            "the instance has user id 0 alone, although /etc/subuid sets others aside for this user: {reason}"
        ));
    }
}

/// What the instance has been asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Nothing,
    Terminate,
    Kill,
}

/// A running `train`.
struct Watch<'a, 'b> {
    scene: &'a Scene<'b>,
    running: Running,
    stdout: Source,
    stderr: Source,
    log: &'a mut Log,
    reports: &'a mut Reports,
    asked: Asked,
    pipes: Pipes,
    files: FastFiles,
    /// A channel whose data could not be sent. Its pipe is open as long as this is here.
    starved: Option<Broken>,
}

/// What happens while `train` runs.
enum Event {
    Output(Stream),
    LinesDue,
    MetricsDue,
    Ended(io::Result<()>),
    StopRequested,
    GraceEnded,
    VolumeFull,
    PipeBroken(Broken),
    Unread(String),
}

impl<'a, 'b> Watch<'a, 'b> {
    fn new(
        scene: &'a Scene<'b>,
        (running, output): (Running, Output),
        (pipes, files): (Pipes, FastFiles),
        (log, reports): (&'a mut Log, &'a mut Reports),
    ) -> Self {
        let (stdout, stderr) = (Source::new(output.stdout), Source::new(output.stderr));
        let asked = Asked::Nothing;
        Self { scene, running, stdout, stderr, log, reports, asked, pipes, files, starved: None }
    }

    async fn until_ended(&mut self, confinement: &Confinement) -> io::Result<()> {
        loop {
            match self.next(confinement).await {
                Event::Output(stream) => {
                    self.take(stream, Source::read);
                }
                Event::LinesDue => self.log.write(),
                Event::MetricsDue => self.log.report_metrics(self.reports),
                Event::StopRequested => self.ask(Asked::Terminate, Command::Terminate).await,
                Event::GraceEnded | Event::VolumeFull => self.ask(Asked::Kill, Command::Kill).await,
                Event::PipeBroken(broken) => {
                    self.starved = Some(broken);
                    self.ask(Asked::Kill, Command::Kill).await;
                }
                Event::Unread(warning) => self.reports.warn(warning),
                Event::Ended(ended) => {
                    self.drain();
                    return ended;
                }
            }
        }
    }

    async fn next(&mut self, confinement: &Confinement) -> Event {
        let stop = &self.scene.stop;
        let lines_due = self.log.due().map(Instant::from_std);
        let metrics_due = self.log.metrics_due().map(Instant::from_std);
        tokio::select! {
            () = self.stdout.ready(), if self.stdout.open => Event::Output(Stream::Stdout),
            () = self.stderr.ready(), if self.stderr.open => Event::Output(Stream::Stderr),
            () = until(lines_due) => Event::LinesDue,
            () = until(metrics_due) => Event::MetricsDue,
            ended = self.running.ended() => Event::Ended(ended),
            broken = self.pipes.broken(), if self.asked != Asked::Kill => Event::PipeBroken(broken),
            warning = self.files.unread() => Event::Unread(warning),
            () = confinement.volume_full(), if self.asked != Asked::Kill => Event::VolumeFull,
            () = stop.requested(), if self.asked == Asked::Nothing => Event::StopRequested,
            () = stop.grace_ended(), if self.asked == Asked::Terminate => Event::GraceEnded,
        }
    }

    async fn ask(&mut self, asked: Asked, command: Command) {
        self.asked = asked;
        self.running.command(command).await;
        if asked == Asked::Kill {
            self.files.cut_off();
        }
    }

    /// Takes what has come from one stream; tells whether there may be more.
    fn take(&mut self, stream: Stream, read: impl Fn(&mut Source) -> usize) -> bool {
        let source = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let read = read(source);
        let at = Timestamp::now();
        let (log, reports) = (&mut *self.log, &mut *self.reports);
        source.lines.push(&source.buffer[..read], |line| log.add(at, stream, line, reports));
        read > 0
    }

    /// Takes what is still in the pipes. Their ends do not matter: a program elsewhere may have
    /// been given one.
    fn drain(&mut self) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            while self.take(stream, Source::read_last) {}
        }
        let at = Timestamp::now();
        let (log, reports) = (&mut *self.log, &mut *self.reports);
        self.stdout.lines.finish(|line| log.add(at, Stream::Stdout, line, reports));
        self.stderr.lines.finish(|line| log.add(at, Stream::Stderr, line, reports));
    }
}

/// A stream that `train` writes.
struct Source {
    pipe: Receiver,
    buffer: Vec<u8>,
    lines: Lines,
    /// Whether anything can still be written to it.
    open: bool,
}

impl Source {
    fn new(pipe: Receiver) -> Self {
        // Users have a limit for it, and the usual size works as well.
        let _ = fcntl_setpipe_size(&pipe, PIPE_SIZE);
        Self { pipe, buffer: vec![0; READ_SIZE], lines: Lines::default(), open: true }
    }

    async fn ready(&self) {
        // An error shows when it is read.
        let _ = self.pipe.readable().await;
    }

    /// Reads what is there, which may be nothing, and returns its length.
    fn read(&mut self) -> usize {
        match self.pipe.try_read(&mut self.buffer) {
            Ok(0) => self.close(),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(_) => self.close(),
        }
    }

    /// The same, whether or not the kernel has told that something is there.
    fn read_last(&mut self) -> usize {
        rustix::io::read(&self.pipe, &mut self.buffer).unwrap_or(0)
    }

    fn close(&mut self) -> usize {
        self.open = false;
        0
    }
}
