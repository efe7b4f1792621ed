//! Each line about an image: what has to be seen for which verdict.

use std::path::PathBuf;

use super::*;
use crate::facts::{
    End, ImageFacts, JobFacts, KillFacts, PlainRun, ProbeReport, Process, ProgramFacts, StopFacts,
};

fn report(code: i32) -> ProbeReport {
    ProbeReport {
        program: None,
        uid: 0,
        not_writable: Vec::new(),
        end: Some(End { code, seconds: 1.0 }),
        failure: None,
        elsewhere: Vec::new(),
        elsewhere_count: 0,
        stop: None,
        kill: None,
    }
}

fn process(pid: i32, command: &str, handles_sigterm: bool) -> Process {
    Process { pid, parent: 1, command: command.to_owned(), handles_sigterm }
}

fn stopped(stop: StopFacts) -> Trial {
    Ok(ProbeReport { end: None, stop: Some(stop), ..report(0) })
}

fn killed(end: Option<End>) -> Trial {
    let (first, victim) = (process(2, "sh /train", false), process(3, "python3 fit.py", true));
    Ok(ProbeReport { end: None, kill: Some(KillFacts::Killed { first, victim, end }), ..report(0) })
}

/// An image that does all it should, so that each test changes what it is about.
fn good() -> Facts {
    let first = process(2, "python3 fit.py", true);
    Facts {
        image: Some(ImageFacts {
            platform: "linux/amd64".into(),
            layers: vec![1_500_000, 20_000],
            bytes: 1_520_000,
            entrypoint: Vec::new(),
            user: String::new(),
            program: ProgramFacts::Found { paths: vec!["/usr/bin/train".into()] },
        }),
        command: vec!["train".into()],
        job: JobFacts { given: true, hyperparameters: 1, deals_out: true, time_limit: 60 },
        plain: PlainRun {
            instances: 2,
            completed: true,
            timed_out: false,
            exit_code: None,
            reason: None,
            seconds: 2.0,
            has_model: true,
            warnings: Vec::new(),
        },
        whole: Ok(report(0)),
        stopped: stopped(StopFacts {
            first: first.clone(),
            others: Vec::new(),
            ended_after: Some(0.1),
            survivors: Vec::new(),
        }),
        killed: Ok(ProbeReport { end: None, kill: Some(KillFacts::Alone { first }), ..report(0) }),
        broken: Ok(ProbeReport { failure: Some("no configuration".into()), ..report(1) }),
        empty: Some(Ok(report(0))),
        numbers: None,
    }
}

/// The finding about one thing after a change to a good image.
fn after(about: About, change: impl FnOnce(&mut Facts)) -> Finding {
    let mut facts = good();
    change(&mut facts);
    findings(&facts).into_iter().find(|finding| finding.about == about).unwrap()
}

fn of_image(about: About, change: impl FnOnce(&mut ImageFacts)) -> Finding {
    after(about, |facts| change(facts.image.as_mut().unwrap()))
}

#[track_caller]
fn assert_says(finding: &Finding, verdict: Verdict, text: &str) {
    assert_eq!(finding.verdict, verdict, "{}", finding.text);
    assert!(finding.text.contains(text), "{:?} does not say {text:?}", finding.text);
}

#[test]
fn an_image_that_does_all_it_should_passes_every_line() {
    let findings = findings(&good());
    assert_eq!(findings.len(), 13);
    for finding in &findings {
        assert_eq!(finding.verdict, Verdict::Pass, "{finding:?}");
    }
    assert_eq!(worst(&findings), Verdict::Pass);
}

#[test]
fn a_program_for_another_processor_fails() {
    let change = |image: &mut ImageFacts| {
        image.program = ProgramFacts::OtherMachine { path: "/t".into(), machine: "aarch64".into() };
    };
    assert_says(&of_image(About::Architecture, change), Verdict::Fail, "/t is built for aarch64");
    assert_says(&of_image(About::Program, change), Verdict::Fail, "aarch64");
}

#[test]
fn size_and_layers_are_told() {
    let text = "2 layers, 1.5 MB unpacked, the largest 1.5 MB";
    assert_says(&of_image(About::Size, |_| ()), Verdict::Pass, text);
}

#[test]
fn a_program_that_can_not_be_started_fails_with_what_to_do() {
    let path = || PathBuf::from("/usr/bin/train");
    let table = [
        (ProgramFacts::Missing { explanation: "no train".into() }, Verdict::Fail, "no train"),
        (ProgramFacts::NotExecutable { path: path() }, Verdict::Fail, "RUN chmod +x /usr/bin/train"),
        (
            ProgramFacts::NoInterpreter { path: path(), interpreter: "/bin/bash".into() },
            Verdict::Fail,
            "needs \"/bin/bash\", which the image does not have",
        ),
        (
            ProgramFacts::NoInterpreter { path: path(), interpreter: "/bin/sh\r".into() },
            Verdict::Fail,
            "line ends of Unix",
        ),
        (ProgramFacts::Unknown { path: "/opt/ml/x".into() }, Verdict::Unknown, "/opt/ml/x"),
    ];
    for (program, verdict, text) in table {
        assert_says(&of_image(About::Program, |image| image.program = program), verdict, text);
    }
}

#[test]
fn the_shell_form_of_entrypoint_fails_unless_the_shell_has_become_the_program() {
    let shell_form = |facts: &mut Facts, first: &str| {
        let words = ["/bin/sh", "-c", "python3 fit.py"].map(str::to_owned);
        facts.image.as_mut().unwrap().entrypoint = words.to_vec();
        facts.stopped = stopped(StopFacts {
            first: process(2, first, true),
            others: Vec::new(),
            ended_after: Some(0.1),
            survivors: Vec::new(),
        });
    };
    let stays = after(About::Entrypoint, |facts| shell_form(facts, "/bin/sh -c python3 fit.py train"));
    assert_says(&stays, Verdict::Fail, "ENTRYPOINT [\"program\", \"argument\"]");
    let replaced = after(About::Entrypoint, |facts| shell_form(facts, "python3 fit.py"));
    assert_says(&replaced, Verdict::Warning, "never passes the argument train on");
    let list = of_image(About::Entrypoint, |image| image.entrypoint = vec!["/init".into(), "--".into()]);
    assert_says(&list, Verdict::Pass, "/init --");
}

#[test]
fn a_user_is_told_what_it_may_not_write() {
    let closed = after(About::User, |facts| {
        let refused = ("/opt/ml/model".into(), "Permission denied".into());
        facts.whole = Ok(ProbeReport { uid: 1000, not_writable: vec![refused], ..report(0) });
    });
    assert_says(&closed, Verdict::Fail, "(user id 1000) can't write to /opt/ml/model: Permission denied");
    let user = |uid| {
        after(About::User, move |facts| {
            facts.image.as_mut().unwrap().user = "fit:users".into();
            facts.whole = Ok(ProbeReport { uid, ..report(0) });
        })
    };
    assert_says(&user(1000), Verdict::Warning, "SageMaker's folders belong to root");
    assert_says(&user(0), Verdict::Unknown, "only root or a user with subordinate ids");
}

#[test]
fn a_made_up_job_that_fails_tells_nothing_but_a_given_one_does() {
    let failed = |given, exit_code| {
        after(About::Job, move |facts| {
            facts.job.given = given;
            facts.plain.completed = false;
            facts.plain.exit_code = Some(exit_code);
            facts.plain.reason = Some("AlgorithmError: no file, exit code: 1 (algo-1)".into());
        })
    };
    assert_says(&failed(true, 1), Verdict::Fail, "no file");
    assert_says(&failed(false, 1), Verdict::Unknown, "--channel");
    assert_says(&failed(false, 127), Verdict::Fail, "no file");
    let slow = after(About::Job, |facts| {
        (facts.plain.completed, facts.plain.timed_out) = (false, true);
    });
    assert_says(&slow, Verdict::Unknown, "not done after 60 s");
    let warned = after(About::Job, |facts| facts.plain.warnings = vec!["files of the same name".into()]);
    assert_says(&warned, Verdict::Warning, "files of the same name");
}

#[test]
fn a_job_without_a_model_is_warned_of() {
    let empty = after(About::Model, |facts| facts.plain.has_model = false);
    assert_says(&empty, Verdict::Warning, "nothing was written to /opt/ml/model");
}

#[test]
fn hyperparameters_fail_if_they_only_work_as_numbers() {
    let failing = |numbers: Option<Trial>| {
        after(About::Hyperparameters, |facts| {
            facts.plain.completed = false;
            facts.numbers = numbers;
        })
    };
    assert_says(&failing(Some(Ok(report(0)))), Verdict::Fail, "every value is a string");
    assert_says(&failing(Some(Ok(report(1)))), Verdict::Unknown, "strings or numbers");
    assert_says(&failing(None), Verdict::Unknown, "did not complete");
    let none = after(About::Hyperparameters, |facts| facts.job.hyperparameters = 0);
    assert_says(&none, Verdict::Unknown, "--hyperparameter");
}

#[test]
fn an_empty_shard_fails_where_a_channel_is_dealt_out_and_warns_elsewhere() {
    let failing = |deals_out, completed| {
        after(About::EmptyShard, move |facts| {
            facts.job.deals_out = deals_out;
            facts.plain.completed = completed;
            facts.empty = Some(Ok(ProbeReport { failure: Some("no rows".into()), ..report(3) }));
        })
    };
    assert_says(&failing(true, true), Verdict::Fail, "ends with 3 (no rows)");
    assert_says(&failing(false, true), Verdict::Warning, "once a channel is ShardedByS3Key");
    assert_says(&failing(true, false), Verdict::Unknown, "fails anyway");
    assert_says(&after(About::EmptyShard, |facts| facts.empty = None), Verdict::Unknown, "--channel");
}

#[test]
fn sigterm_fails_where_it_does_not_arrive() {
    let of = |first: bool, other: Option<bool>, ended_after, survives: bool| {
        let others: Vec<_> = other.map(|handles| process(3, "python3 fit.py", handles)).into_iter().collect();
        let survivors = if survives { others.clone() } else { Vec::new() };
        let stop = StopFacts { first: process(2, "sh /train", first), others, ended_after, survivors };
        after(About::Sigterm, |facts| facts.stopped = stopped(stop))
    };
    assert_says(&of(true, None, Some(0.2), false), Verdict::Pass, "after 0.2 s");
    assert_says(&of(true, Some(true), Some(0.2), false), Verdict::Pass, "after 0.2 s");
    assert_says(
        &of(false, Some(true), Some(0.0), true),
        Verdict::Fail,
        "not pass SIGTERM on to \"python3 fit.py\"",
    );
    assert_says(&of(true, Some(true), Some(0.0), true), Verdict::Fail, "ended, but not \"python3 fit.py\"");
    assert_says(&of(true, None, None, false), Verdict::Fail, "still ran");
    assert_says(&of(false, None, Some(0.0), false), Verdict::Warning, "nothing handles it");
    assert_says(&of(false, Some(false), Some(0.0), true), Verdict::Warning, "nothing handles it");
    let quick = after(About::Sigterm, |facts| facts.stopped = Ok(report(0)));
    assert_says(&quick, Verdict::Unknown, "a job that takes longer");
}

#[test]
fn an_exit_code_that_is_lost_fails() {
    let of = |end: Option<(i32, f64)>| {
        let end = end.map(|(code, seconds)| End { code, seconds });
        after(About::ExitCode, |facts| facts.killed = killed(end))
    };
    assert_says(&of(Some((137, 1.0))), Verdict::Pass, "ends with 137");
    assert_says(&of(Some((0, 1.0))), Verdict::Fail, "ended with 0 although \"python3 fit.py\" was killed");
    // The plain run takes two seconds.
    assert_says(&of(Some((0, 1.9))), Verdict::Unknown, "went on to its end");
    assert_says(&of(None), Verdict::Unknown, "went on");
    let swallowed = after(About::ExitCode, |facts| {
        facts.broken = Ok(ProbeReport { failure: Some("no configuration".into()), ..report(0) });
    });
    assert_says(&swallowed, Verdict::Fail, "wrote \"no configuration\" to the failure file and ended with 0");
    let quick = |code| {
        after(About::ExitCode, move |facts| {
            facts.killed = Ok(report(0));
            facts.broken = Ok(report(code));
        })
    };
    assert_says(&quick(3), Verdict::Pass, "a failure ends with 3");
    assert_says(&quick(0), Verdict::Unknown, "too soon");
}

#[test]
fn a_failure_file_that_is_not_written_is_warned_of() {
    let of = |broken| after(About::FailureFile, |facts| facts.broken = broken);
    assert_says(&of(Ok(report(1))), Verdict::Warning, "/opt/ml/output/failure");
    assert_says(&of(Ok(report(0))), Verdict::Unknown, "could not be made to fail");
    let text = ProbeReport { failure: Some("no rows\nat all".into()), ..report(1) };
    assert_says(&of(Ok(text)), Verdict::Pass, "written when train fails: no rows");
}

#[test]
fn files_elsewhere_are_named_up_to_three() {
    let of = |count: usize, code| {
        let elsewhere = (0..count.min(20)).map(|number| PathBuf::from(format!("/root/{number}"))).collect();
        let whole = Ok(ProbeReport { elsewhere, elsewhere_count: count, ..report(code) });
        after(About::Writes, |facts| facts.whole = whole)
    };
    assert_says(&of(2, 0), Verdict::Warning, "also /root/0, /root/1: nothing of that is kept");
    assert_says(&of(30, 0), Verdict::Warning, "/root/2, 27 more");
    assert_says(&of(0, 1), Verdict::Unknown, "until train failed");
}

#[test]
fn what_could_not_be_watched_is_not_judged() {
    let mut facts = good();
    for trial in [&mut facts.whole, &mut facts.stopped, &mut facts.killed, &mut facts.broken] {
        *trial = Err("train was not done in time".to_owned());
    }
    facts.empty = Some(Err("train was not done in time".to_owned()));
    let told: Vec<_> = findings(&facts).into_iter().filter(|it| it.verdict == Verdict::Unknown).collect();
    let about: Vec<_> = told.iter().map(|finding| finding.about).collect();
    use About::{EmptyShard, ExitCode, FailureFile, Sigterm, User, Writes};
    assert_eq!(about, [User, EmptyShard, Sigterm, ExitCode, FailureFile, Writes]);
    assert_eq!(worst(&told), Verdict::Unknown);
}

#[test]
fn programs_of_the_machine_have_no_lines_about_an_image() {
    let mut facts = good();
    facts.image = None;
    let findings = findings(&facts);
    assert_eq!(findings.first().map(|finding| finding.about), Some(About::Job));
    assert_eq!(findings.len(), 7);
}
