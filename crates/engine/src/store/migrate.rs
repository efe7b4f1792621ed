//! Files that an earlier version of this program wrote.

use std::path::Path;

use rusqlite::{Connection, Transaction, params};
use serde_json::Value;

use super::{
    INDEXES, SCHEMA, SCHEMA_VERSION, StoreError, events_in, facts, milliseconds, of_json, timestamp, to_json,
};
use crate::job::{Event, Job, Outline};

/// Version 1 had neither outlines nor columns for lists, and its jobs were planned before they were stored. What
/// is missing stands in the plans; a job whose plan is gone could not be taken up and is forgotten.
pub(super) fn from_version_1(connection: &mut Connection, file: &Path) -> Result<(), StoreError> {
    let runs = file.ancestors().nth(2).unwrap_or(Path::new(".")).join("runs");
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    if version(&transaction)? != 1 {
        return Ok(());
    }
    transaction.execute_batch(
        "ALTER TABLE jobs RENAME TO old_jobs; ALTER TABLE events RENAME TO old_events;
         ALTER TABLE placements RENAME TO old_placements;",
    )?;
    transaction.execute_batch(SCHEMA)?;
    let jobs: Vec<(String, String, i64)> = transaction
        .prepare("SELECT name, request, created FROM old_jobs")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<Result<_, _>>()?;
    for (name, request, created) in jobs {
        let plan = runs.join(name.to_lowercase()).join("attempt-1/plan.json");
        let Some(outline) = outline(&name, &plan) else { continue };
        let mut events = vec![(timestamp(created), Event::Planned { warnings: Vec::new() })];
        match events_in(&transaction, "old_events", &name) {
            Ok(old) => events.extend(old),
            // Of a time before versions were told apart; nobody could read it before either.
            Err(StoreError::Damaged { .. }) => continue,
            Err(error) => return Err(error),
        }
        let job = Job::replay(&outline, timestamp(created), &events);
        let (status, secondary) = (job.status.to_string(), job.secondary_status().to_string());
        transaction.execute(
            "INSERT INTO jobs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, NULL)",
            params![
                name,
                request,
                created,
                to_json(&name, &outline)?,
                status,
                secondary,
                milliseconds(job.modified),
                job.ended.map(milliseconds)
            ],
        )?;
        for (number, (at, event)) in (0_i64..).zip(&events) {
            let values = params![name, number, milliseconds(*at), to_json(&name, event)?];
            transaction.execute("INSERT INTO events VALUES (?1, ?2, ?3, ?4)", values)?;
        }
        transaction.execute(
            "INSERT INTO placements SELECT job, ?2, placement FROM old_placements WHERE job = ?1",
            params![name, job.attempt],
        )?;
    }
    transaction.execute_batch("DROP TABLE old_events; DROP TABLE old_placements; DROP TABLE old_jobs;")?;
    fill(&transaction)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    Ok(transaction.commit()?)
}

/// Version 2 had no facts to search by, and jobs that had ended were replayed whenever they were shown.
pub(super) fn from_version_2(connection: &mut Connection) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    if version(&transaction)? != 2 {
        return Ok(());
    }
    transaction.execute_batch(
        "ALTER TABLE jobs ADD COLUMN snapshot TEXT;
         DROP INDEX jobs_created; DROP INDEX jobs_modified; DROP INDEX jobs_status;",
    )?;
    fill(&transaction)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    Ok(transaction.commit()?)
}

/// Another process may have brought the file over meanwhile.
fn version(transaction: &Transaction<'_>) -> Result<i64, StoreError> {
    Ok(transaction.pragma_query_value(None, "user_version", |row| row.get(0))?)
}

/// Makes the indexes, and the facts of all jobs that are there. One that can't be read is found by less.
fn fill(transaction: &Transaction<'_>) -> Result<(), StoreError> {
    transaction.execute_batch(INDEXES)?;
    let jobs: Vec<(String, String, i64, String, Option<i64>)> = transaction
        .prepare("SELECT name, request, created, outline, ended FROM jobs")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))?
        .collect::<Result<_, _>>()?;
    for (name, request, created, outline, ended) in jobs {
        facts::of_request(transaction, &name, &request)?;
        let (Some(_), Ok(outline)) = (ended, of_json(&name, &outline)) else { continue };
        if let Ok(events) = events_in(transaction, "events", &name) {
            facts::of_metrics(transaction, &Job::replay(&outline, timestamp(created), &events))?;
        }
    }
    Ok(())
}

/// What the plan of a job's first attempt says of it.
fn outline(job: &str, plan: &Path) -> Option<Outline> {
    let plan: Value = serde_json::from_slice(&fs_err::read(plan).ok()?).ok()?;
    let host = |instance: &Value| Some(instance["host"].as_str()?.to_owned());
    let hosts = plan["instances"].as_array()?.iter().map(host).collect::<Option<_>>()?;
    Some(Outline { job: job.to_owned(), hosts, merges: !plan["merge"].is_null() })
}
