//! Tags of jobs.

use rusqlite::params;

use super::{Store, StoreError};

impl Store {
    /// The tags of a job, in the order in which they came.
    pub fn tags(&self, job: &str) -> Result<Vec<(String, String)>, StoreError> {
        let sql = "SELECT key, value FROM tags WHERE job = ?1 ORDER BY number";
        let mut statement = self.connection.prepare_cached(sql)?;
        let rows = statement.query_map([job], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Gives a job more tags; one of the same key gets the new value in its old place.
    pub fn add_tags(&mut self, job: &str, tags: &[(String, String)]) -> Result<(), StoreError> {
        let transaction =
            self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let sql = "INSERT INTO tags (job, number, key, value)
                   VALUES (?1, (SELECT 1 + COALESCE(MAX(number), 0) FROM tags WHERE job = ?1), ?2, ?3)
                   ON CONFLICT DO UPDATE SET value = excluded.value";
        for (key, value) in tags {
            transaction.prepare_cached(sql)?.execute(params![job, key, value])?;
        }
        Ok(transaction.commit()?)
    }

    /// Takes tags away; keys that are not there are passed over.
    pub fn remove_tags(&mut self, job: &str, keys: &[String]) -> Result<(), StoreError> {
        for key in keys {
            self.connection
                .prepare_cached("DELETE FROM tags WHERE job = ?1 AND key = ?2")?
                .execute(params![job, key])?;
        }
        Ok(())
    }
}
