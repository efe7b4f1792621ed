//! Lists of jobs.

use rusqlite::types::Value;
use rusqlite::{Row, params_from_iter};

use super::facts::cut;
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
    /// All of these.
    pub wanted: Vec<Wanted>,
    /// The order; equal ones are in order of their names.
    pub sort_by: SortBy,
    /// The other way round.
    pub descending: bool,
    /// Only what comes after this place of the same list.
    pub after: Option<(String, String)>,
    /// At most so many.
    pub limit: usize,
}

/// What else a job must have.
#[derive(Clone, Debug, PartialEq)]
pub enum Wanted {
    /// This name, in any case.
    Name(String),
    /// A tag of this key and value.
    Tag {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// A fact such as `HyperParameters.epochs` that begins with this text, of which at most 256 characters count.
    Text {
        /// What it is a fact of.
        name: String,
        /// The text.
        value: String,
    },
    /// A fact that is a number.
    Number {
        /// What it is a fact of.
        name: String,
        /// How it compares.
        compared: Compared,
        /// To this.
        number: f64,
    },
}

/// How a number compares to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// Below it.
    Less,
    /// Below it or the same.
    LessOrEqual,
    /// The same.
    Equal,
    /// Above it or the same.
    GreaterOrEqual,
    /// Above it.
    Greater,
}

impl Compared {
    const fn sign(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Equal => "=",
            Self::GreaterOrEqual => ">=",
            Self::Greater => ">",
        }
    }
}

impl Wanted {
    /// The table that knows, its condition, and the values of that.
    fn rows(&self) -> (&'static str, String, Vec<Value>) {
        let text = |text: &str| Value::Text(text.to_owned());
        match self {
            Self::Name(name) => ("jobs AS named", "name = ?".to_owned(), vec![text(name)]),
            Self::Tag { key, value } => {
                ("tags", "key = ? AND value = ?".to_owned(), vec![text(key), text(value)])
            }
            Self::Text { name, value } => {
                ("facts", "name = ? AND text = ?".to_owned(), vec![text(name), text(cut(value))])
            }
            Self::Number { name, compared, number } => {
                let condition = format!("name = ? AND number {} ?", compared.sign());
                ("facts", condition, vec![text(name), Value::Real(*number)])
            }
        }
    }

    /// The column that names the job in that table.
    const fn job(&self) -> &'static str {
        if matches!(self, Self::Name(_)) { "name" } else { "job" }
    }
}

/// As long as no more jobs than this have what is wanted, these are looked at and put in order; else the list is gone
/// along in its order, and one job of some is as wanted.
const FEW: usize = 2000;

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
        let part = query.name_contains.as_deref().map(|part| Value::Text(with_part(part)));
        conditions.add("jobs.name LIKE ? ESCAPE '\\'", part);
        conditions.add("status = ?", query.status.map(|status| Value::Text(status.to_string())));
        let few = self.fewest(&query.wanted)?;
        for (place, wanted) in query.wanted.iter().enumerate() {
            let ((table, condition, values), job) = (wanted.rows(), wanted.job());
            conditions.texts.push(match few == Some(place) {
                true => format!("jobs.name IN (SELECT {job} FROM {table} WHERE {condition})"),
                false => format!("EXISTS (SELECT 1 FROM {table} WHERE {job} = jobs.name AND {condition})"),
            });
            conditions.values.extend(values);
        }
        // The sign keeps SQLite from going along the index of the order.
        let plus = if few.is_some() { "+" } else { "" };
        let (column, direction) = (query.sort_by.column(), if query.descending { "DESC" } else { "ASC" });
        if let Some((value, name)) = &query.after {
            let compared = if query.descending { "<" } else { ">" };
            conditions.texts.push(format!("({plus}jobs.{column}, jobs.name) {compared} (?, ?)"));
            conditions.values.extend([query.sort_by.value(value), Value::Text(name.clone())]);
        }
        let sql = format!(
            "SELECT jobs.name, created, modified, ended, status, secondary FROM jobs {} \
             ORDER BY {plus}jobs.{column} {direction}, jobs.name {direction} LIMIT {}",
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

impl Store {
    /// The place of what fewest jobs have, if they are few.
    fn fewest(&self, wanted: &[Wanted]) -> Result<Option<usize>, StoreError> {
        let mut fewest = None;
        for (place, wanted) in wanted.iter().enumerate() {
            let (table, condition, values) = wanted.rows();
            let sql =
                format!("SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {condition} LIMIT {})", FEW + 1);
            let mut statement = self.connection.prepare_cached(&sql)?;
            let count: i64 = statement.query_row(params_from_iter(values), |row| row.get(0))?;
            if count <= FEW as i64 && fewest.is_none_or(|(least, _)| count < least) {
                fewest = Some((count, place));
            }
        }
        Ok(fewest.map(|(_, place)| place))
    }
}

/// The pattern of `LIKE`, which knows no case in ASCII, for texts with a part. All names of a store are looked at for it;
/// `instr(lower(…), …)` takes twice as long. SQLite takes no pattern of any length, and names have at most 63 characters.
fn with_part(part: &str) -> String {
    let part: String = part.chars().take(64).collect();
    let plain = part.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
    format!("%{plain}%")
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
