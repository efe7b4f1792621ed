//! What a program writes is kept, whatever it is.

use trainyard_engine::plan::MetricDefinition;
use trainyard_engine::run::{Report, Stream, Timestamp};

use super::case::{Case, users};

#[test]
fn bytes_that_are_no_text_and_a_last_line_without_newline_are_kept() {
    for user in users() {
        let told = Case::sh(user, r"printf 'a\377b\nlast'; printf 'err\0or' >&2").run();
        assert_eq!(told.completed(), ["a\u{fffd}b", "last"]);
        assert_eq!(told.lines(Stream::Stderr), ["err\0or"]);
    }
}

#[test]
fn no_line_of_a_chatty_program_is_lost() {
    for user in users() {
        let told = Case::sh(user, "seq 200000; seq 5 >&2").run();
        let lines = told.completed();
        assert_eq!(lines.len(), 200_000);
        let all_there = lines.iter().enumerate().all(|(index, line)| *line == (index + 1).to_string());
        assert!(all_there);
        assert_eq!(told.lines(Stream::Stderr), ["1", "2", "3", "4", "5"]);
    }
}

#[test]
fn a_line_is_visible_while_the_program_runs_and_bears_the_time_of_its_arrival() {
    let before = Timestamp::now();
    let supervised = Case::sh(users()[0], "echo started; exec sleep 1000").start();
    supervised.until_line("started");
    supervised.directory.request_stop(std::time::Duration::ZERO).unwrap();
    let told = supervised.wait();
    assert!(told.log[0].at >= before && told.log[0].at <= Timestamp::now());
}

#[test]
fn a_line_longer_than_256_kib_is_cut_and_nothing_of_it_lost() {
    let told = Case::sh(users()[0], "head -c 700000 /dev/zero | tr '\\0' x; echo; echo next").run();
    let lengths: Vec<usize> = told.completed().iter().map(|line| line.len()).collect();
    assert_eq!(lengths, [262_144, 262_144, 700_000 - 2 * 262_144, 4]);
}

#[test]
fn metrics_are_read_from_both_streams() {
    let script = r"echo 'loss: 0.5'; echo 'loss: 2.5e-1 loss: nan' >&2; printf 'loss\t9\n'";
    let mut case = Case::sh(users()[0], script);
    let metric = |name: &str, regex: &str| MetricDefinition { name: name.into(), regex: regex.into() };
    case.plan.metrics =
        vec![metric("loss", "loss: ([0-9a-z.-]+)"), metric("tab", "loss#011([0-9]+)"), metric("bad", "(")];
    let told = case.run();
    told.completed();
    let mut found: Vec<(&str, f64)> = Vec::new();
    for report in &told.reports {
        if let Report::Metric { name, value } = report {
            found.push((name, *value));
        }
    }
    found.sort_by(|one, other| one.0.cmp(other.0).then(other.1.total_cmp(&one.1)));
    assert_eq!(found, [("loss", 0.5), ("loss", 0.25), ("tab", 9.0)]);
    let [unusable, skipped] = told.warnings()[..] else { panic!("{told:?}") };
    assert!(unusable.contains("\"bad\""), "{unusable}");
    assert!(skipped.starts_with("1 ") && skipped.contains("\"nan\""), "{skipped}");
}
