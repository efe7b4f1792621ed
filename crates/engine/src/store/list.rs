//! Lists of jobs.

use rusqlite::types::Value;
use rusqlite::{Row, params_from_iter};

use super::{Store, StoreError, milliseconds, spelled, timestamp};
use crate::job::{SecondaryStatus, Status};
use crate::run::Timestamp;

/// Which jobs, and in which order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobQuery {
    /// Submitted after this time.
    pub created_after: Option<Timestamp>,
    /// Submitted before this time.
    pub created_before: Option<Timestamp>,
    /// Last changed after this time.
    pub modified_after: Option<Timestamp>,
    /// Last changed before this time.
    pub modified_before: Option<Timestamp>,
    /// Part of the name, in any case.
    pub name_contains: Option<String>,
    /// In this status.
    pub status: Option<Status>,
    /// The order; equal ones are in order of their names.
    pub sort_by: SortBy,
    /// The other way round.
    pub descending: bool,
    /// Only what comes after this place of the same list.
    pub after: Option<(String, String)>,
    /// At most so many.
    pub limit: usize,
}

/// What a list is ordered by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortBy {
    /// The time of the submission.
    #[default]
    Created,
    /// The time of the last change.
    Modified,
    /// The name.
    Name,
    /// The status, as it is spelled.
    Status,
}

impl SortBy {
    const fn column(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Modified => "modified",
            Self::Name => "name",
            Self::Status => "status",
        }
    }

    /// A cursor's value as the column has it.
    fn value(self, text: &str) -> Value {
        match self {
            Self::Created | Self::Modified => Value::Integer(text.parse().unwrap_or_default()),
            Self::Name | Self::Status => Value::Text(text.to_owned()),
        }
    }
}

/// A job in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// The name, in its original case.
    pub name: String,
    /// When it was submitted.
    pub created: Timestamp,
    /// When it last changed.
    pub modified: Timestamp,
    /// When it reached its last status.
    pub ended: Option<Timestamp>,
    /// As in the API.
    pub status: Status,
    /// As in the API.
    pub secondary: SecondaryStatus,
}

impl Listed {
    /// The job's place in a list of this order.
    pub fn cursor(&self, sort_by: SortBy) -> (String, String) {
        let value = match sort_by {
            SortBy::Created => milliseconds(self.created).to_string(),
            SortBy::Modified => milliseconds(self.modified).to_string(),
            SortBy::Name => self.name.clone(),
            SortBy::Status => self.status.to_string(),
        };
        (value, self.name.clone())
    }
}

impl Store {
    /// Jobs that fit a query.
    pub fn list(&self, query: &JobQuery) -> Result<Vec<Listed>, StoreError> {
        let mut conditions = Conditions::default();
        let time = |at: Option<Timestamp>| at.map(|at| Value::Integer(milliseconds(at)));
        conditions.add("created > ?", time(query.created_after));
        conditions.add("created < ?", time(query.created_before));
        conditions.add("modified > ?", time(query.modified_after));
        conditions.add("modified < ?", time(query.modified_before));
        let part = query.name_contains.as_ref().map(|part| Value::Text(part.to_lowercase()));
        conditions.add("instr(lower(name), ?) > 0", part);
        conditions.add("status = ?", query.status.map(|status| Value::Text(status.to_string())));
        let (column, direction) = (query.sort_by.column(), if query.descending { "DESC" } else { "ASC" });
        if let Some((value, name)) = &query.after {
            let compared = if query.descending { "<" } else { ">" };
            conditions.texts.push(format!("({column}, name) {compared} (?, ?)"));
            conditions.values.extend([query.sort_by.value(value), Value::Text(name.clone())]);
        }
        let sql = format!(
            "SELECT name, created, modified, ended, status, secondary FROM jobs {} \
             ORDER BY {column} {direction}, name {direction} LIMIT {}",
            conditions.clause(),
            query.limit
        );
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(conditions.values))?;
        let mut listed = Vec::new();
        while let Some(row) = rows.next()? {
            listed.push(of_row(row)?);
        }
        Ok(listed)
    }
}

/// What a `WHERE` says.
#[derive(Default)]
struct Conditions {
    texts: Vec<String>,
    values: Vec<Value>,
}

impl Conditions {
    fn add(&mut self, text: &str, value: Option<Value>) {
        if let Some(value) = value {
            self.texts.push(text.to_owned());
            self.values.push(value);
        }
    }

    fn clause(&self) -> String {
        if self.texts.is_empty() { String::new() } else { format!("WHERE {}", self.texts.join(" AND ")) }
    }
}

fn of_row(row: &Row<'_>) -> Result<Listed, StoreError> {
    let name: String = row.get(0)?;
    let (status, secondary) = (spelled(&name, row.get(4)?)?, spelled(&name, row.get(5)?)?);
    Ok(Listed {
        created: timestamp(row.get(1)?),
        modified: timestamp(row.get(2)?),
        ended: row.get::<_, Option<i64>>(3)?.map(timestamp),
        name,
        status,
        secondary,
    })
}
