//! The failure file: why a program gave up.

use std::io::{self, Write};

use crate::contract::Contract;

/// Writes `reason` to `/opt/ml/output/failure`, from where it becomes the job's failure reason when the
/// program ends with a code other than 0. The platform shows its first 1,024 characters.
///
/// The first reason that is not empty stays: the cause comes before its consequences. Returns whether this
/// one was it.
///
/// # Errors
///
/// The file can not be written.
pub fn fail(reason: &str) -> io::Result<bool> {
    fail_in(&Contract::default(), reason)
}

/// [`fail`] in a contract tree of the caller's choice.
///
/// # Errors
///
/// The file can not be written.
pub fn fail_in(contract: &Contract, reason: &str) -> io::Result<bool> {
    if reason.trim().is_empty() {
        return Ok(false);
    }
    fs_err::create_dir_all(contract.output_folder())?;
    let mut file = fs_err::OpenOptions::new().create(true).append(true).open(contract.failure_file())?;
    // The lock decides between threads and processes that fail at the same time.
    file.file().lock()?;
    if file.metadata()?.len() > 0 {
        return Ok(false);
    }
    file.write_all(reason.as_bytes())?;
    file.sync_all()?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> (tempfile::TempDir, Contract) {
        let folder = tempfile::tempdir().unwrap();
        let contract = Contract::new(folder.path());
        (folder, contract)
    }

    fn written(contract: &Contract) -> String {
        fs_err::read_to_string(contract.failure_file()).unwrap()
    }

    #[test]
    fn the_first_reason_stays() {
        let (_folder, contract) = tree();
        assert!(fail_in(&contract, "first").unwrap());
        assert!(!fail_in(&contract, "second").unwrap());
        assert_eq!(written(&contract), "first");
    }

    #[test]
    fn an_empty_file_is_no_reason() {
        let (_folder, contract) = tree();
        fs_err::create_dir_all(contract.output_folder()).unwrap();
        fs_err::write(contract.failure_file(), "").unwrap();
        assert!(fail_in(&contract, "cause").unwrap());
        assert_eq!(written(&contract), "cause");
    }

    #[test]
    fn an_empty_reason_writes_nothing() {
        let (_folder, contract) = tree();
        assert!(!fail_in(&contract, " \n").unwrap());
        assert!(!contract.failure_file().exists());
    }

    #[test]
    fn of_many_reasons_at_once_exactly_one_is_kept_whole() {
        let (_folder, contract) = tree();
        let kept: Vec<_> = std::thread::scope(|scope| {
            let fail = |i: usize| {
                let contract = &contract;
                scope.spawn(move || fail_in(contract, &i.to_string().repeat(1000)).unwrap())
            };
            let threads: Vec<_> = (0..8).map(fail).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let winners: Vec<_> = kept.iter().enumerate().filter(|(_, kept)| **kept).collect();
        assert_eq!(winners.len(), 1);
        assert_eq!(written(&contract), winners[0].0.to_string().repeat(1000));
    }
}
