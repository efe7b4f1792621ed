//! Telling those who want to know that a job has ended: notices are taken out of the engine's outbox, told, and tried
//! again where that fails.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Context;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use trainyard_engine::engine::{Engine, EngineError};
use trainyard_engine::job::Job;
use trainyard_engine::notice::{Due, Subscriber, notice_id};
use trainyard_engine::run::Timestamp;

use crate::config::{Secret, Subscriptions, Way};

mod command;
mod webhook;

/// After so many tries, which take about half an hour, a notice is given up.
const MOST_TRIES: u32 = 12;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// Between two looks at what other processes may have stored.
const LOOK: Duration = Duration::from_secs(1);
/// Told at once; more wait.
const MOST_AT_ONCE: usize = 16;

/// How somebody is told, with all that is needed for it.
#[derive(Clone)]
enum Sender {
    Webhook(webhook::Webhook),
    Command(command::Command),
}

/// Tells.
pub(crate) struct Notifier {
    engine: Engine,
    senders: BTreeMap<String, Sender>,
    /// Where it is told what nobody asked.
    troubles: mpsc::UnboundedSender<String>,
}

/// Those who are told, for the engine.
pub(crate) fn subscribers(subscriptions: &Subscriptions) -> Vec<Subscriber> {
    let subscribers = subscriptions.iter();
    subscribers
        .map(|(name, setting)| Subscriber { name: name.clone(), of: setting.value.of.clone() })
        .collect()
}

impl Notifier {
    /// Reads the secrets and takes what is in the engine's outbox from now on.
    pub(crate) fn new(
        engine: Engine,
        subscriptions: &Subscriptions,
        troubles: mpsc::UnboundedSender<String>,
    ) -> anyhow::Result<Self> {
        let mut senders = BTreeMap::new();
        for (name, setting) in subscriptions {
            let subscription = &setting.value;
            let sender = match &subscription.way {
                Way::Webhook { url, secret } => {
                    let secret = match secret {
                        Secret::Written(text) => text.clone(),
                        Secret::File(path) => fs_err::read_to_string(path)
                            .with_context(|| format!("notify.{name}: secret_file"))?
                            .trim()
                            .to_owned(),
                    };
                    let webhook = webhook::Webhook::new(url, &secret, subscription.timeout);
                    Sender::Webhook(webhook.with_context(|| format!("notify.{name}"))?)
                }
                Way::Command(words) => {
                    Sender::Command(command::Command { words: words.clone(), timeout: subscription.timeout })
                }
            };
            senders.insert(name.clone(), sender);
        }
        Ok(Self { engine, senders, troubles })
    }

    /// Tells whatever there is to tell, for ever.
    pub(crate) async fn run(self) {
        if let Err(error) = self.until(|| Ok(false)).await {
            let _ = self.troubles.send(format!("no notices any more: {error}"));
        }
    }

    /// Tells what there is until nothing is left about a job; another process may do it too.
    pub(crate) async fn told_of(&self, job: &Job) -> Result<(), EngineError> {
        let id = notice_id(job);
        self.until(|| Ok(self.engine.next_notice(Some(&id))?.is_none())).await
    }

    async fn until(&self, done: impl Fn() -> Result<bool, EngineError>) -> Result<(), EngineError> {
        let (mut outbox, mut stored) = (None, self.engine.notices_stored());
        let mut telling: JoinSet<(Due, Result<(), String>)> = JoinSet::new();
        let mut under_way = BTreeSet::new();
        while !done()? {
            if outbox.is_none() {
                outbox = self.engine.outbox()?;
            }
            if outbox.is_some() {
                self.begin(&mut telling, &mut under_way)?;
            }
            tokio::select! {
                Some(told) = telling.join_next() => match told {
                    Ok((due, result)) => {
                        self.ended(&due, result)?;
                        under_way.remove(&due.number);
                    }
                    Err(error) => {
                        let _ = self.troubles.send(format!("a notice was lost on its way: {error}"));
                    }
                },
                changed = stored.changed() => if changed.is_err() { return Ok(()) },
                () = tokio::time::sleep(LOOK) => {}
            }
        }
        Ok(())
    }

    /// Begins to tell what is due.
    fn begin(
        &self,
        telling: &mut JoinSet<(Due, Result<(), String>)>,
        under_way: &mut BTreeSet<i64>,
    ) -> Result<(), EngineError> {
        for due in self.engine.due_notices()? {
            if telling.len() >= MOST_AT_ONCE {
                return Ok(());
            }
            let Some(sender) = self.senders.get(&due.notice.subscriber).cloned() else {
                let trouble = format!("nobody is configured as notify.{} any more", due.notice.subscriber);
                let _ = self.troubles.send(format!("notice {}: {trouble}", due.notice.id));
                self.engine.remove_notice(due.number)?;
                continue;
            };
            if under_way.insert(due.number) {
                telling.spawn(async move {
                    let told = match &sender {
                        Sender::Webhook(webhook) => webhook.send(&due.notice).await,
                        Sender::Command(command) => command.run(&due.notice).await,
                    };
                    (due, told)
                });
            }
        }
        Ok(())
    }

    fn ended(&self, due: &Due, result: Result<(), String>) -> Result<(), EngineError> {
        let Err(trouble) = result else { return self.engine.remove_notice(due.number) };
        let (notice, tries) = (&due.notice, due.tries + 1);
        let failed = format!("notice {} to {}: {trouble}", notice.id, notice.subscriber);
        if tries >= MOST_TRIES {
            let _ = self.troubles.send(format!("{failed}; given up after {tries} tries"));
            return self.engine.remove_notice(due.number);
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << due.tries).min(LONGEST_PAUSE);
        let _ = self.troubles.send(format!("{failed}; tried again in {} s", pause.as_secs()));
        let until = Timestamp::now().0 + u64::try_from(pause.as_millis()).unwrap_or(u64::MAX / 4);
        self.engine.postpone_notice(due.number, Timestamp(until))
    }
}
