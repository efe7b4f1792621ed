//! Where the values of a metric come from: the run directories of its job.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde::de::DeserializeOwned;
use trainyard_engine::engine::Jobs;
use trainyard_engine::job::Job;
use trainyard_engine::run::{InstanceDirectory, Report, Stamped, UsageSample};

use super::{ApiError, Dimension, NAMESPACE, Span, internal};

/// One number of a measurement, where it was measured.
type Reading = fn(&UsageSample) -> Option<f64>;

/// What is measured of an instance.
pub(super) const INSTANCE_METRICS: [(&str, Reading); 5] = [
    ("CPUUtilization", |sample| Some(sample.cpu)),
    ("MemoryUtilization", |sample| Some(sample.memory)),
    ("DiskUtilization", |sample| sample.disk),
    ("GPUUtilization", |sample| sample.gpu),
    ("GPUMemoryUtilization", |sample| sample.gpu_memory),
];

/// The values of each period, in order; periods by their beginning in milliseconds since 1970.
pub(super) type Periods = BTreeMap<u64, Vec<f64>>;

/// A metric with what tells it from others of its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Metric<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) dimensions: &'a [Dimension],
}

impl Metric<'_> {
    /// Such as `Percent`; what programs print has none.
    pub(super) fn unit(&self) -> &'static str {
        match self.dimensions {
            [Dimension { name, .. }] if name == "Host" => "Percent",
            _ => "None",
        }
    }
}

/// Values of the metrics of one request; each file is read once.
pub(super) struct Series<'a> {
    jobs: &'a Jobs,
    known: HashMap<String, Option<Job>>,
    usage: HashMap<PathBuf, Vec<UsageSample>>,
    printed: HashMap<PathBuf, HashMap<String, Vec<(u64, f64)>>>,
    /// Times that are asked for, in milliseconds.
    range: (u64, u64),
}

impl<'a> Series<'a> {
    /// For metrics from `range.0` up to but not at `range.1`, in milliseconds since 1970.
    pub(super) fn new(jobs: &'a Jobs, range: (u64, u64)) -> Self {
        Self { jobs, known: HashMap::new(), usage: HashMap::new(), printed: HashMap::new(), range }
    }

    /// The values of a metric; none of one that is not there.
    pub(super) fn periods(&mut self, metric: Metric<'_>, span: Span) -> Result<Periods, ApiError> {
        let points = match metric.dimensions {
            [Dimension { name, value }] if metric.namespace == NAMESPACE => match name.as_str() {
                "TrainingJobName" => self.printed(value, metric.name)?,
                "Host" => self.measured(value, metric.name)?,
                _ => Vec::new(),
            },
            _ => Vec::new(),
        };
        let mut periods = Periods::new();
        for (at, value) in points {
            if (span.start..span.end).contains(&at) {
                periods.entry(at / span.period * span.period).or_default().push(value);
            }
        }
        periods.values_mut().for_each(|values| values.sort_by(f64::total_cmp));
        Ok(periods)
    }

    /// What the programs of a job have printed, of all its instances.
    fn printed(&mut self, job: &str, metric: &str) -> Result<Vec<(u64, f64)>, ApiError> {
        let Some(job) = self.job(job)? else { return Ok(Vec::new()) };
        let mut points = Vec::new();
        for instance in directories(self.jobs, &job, None) {
            let (file, range) = (instance.reports(), self.range);
            let of_file = match self.printed.entry(file) {
                std::collections::hash_map::Entry::Occupied(found) => found.into_mut(),
                std::collections::hash_map::Entry::Vacant(place) => {
                    let read = read_printed(place.key(), range).map_err(internal)?;
                    place.insert(read)
                }
            };
            points.extend_from_slice(of_file.get(metric).map(Vec::as_slice).unwrap_or_default());
        }
        Ok(points)
    }

    /// What was measured of an instance, which is named `<job>/<host>`.
    fn measured(&mut self, host: &str, metric: &str) -> Result<Vec<(u64, f64)>, ApiError> {
        let kind = INSTANCE_METRICS.iter().find(|(name, _)| *name == metric);
        let (Some((_, value)), Some((job, host))) = (kind, host.split_once('/')) else {
            return Ok(Vec::new());
        };
        let Some(job) = self.job(job)? else { return Ok(Vec::new()) };
        let mut points = Vec::new();
        for instance in directories(self.jobs, &job, Some(host)) {
            let file = instance.usage();
            if !self.usage.contains_key(&file) {
                let mut samples = Vec::new();
                let (start, end) = self.range;
                each_line(
                    &file,
                    |_| true,
                    |sample: UsageSample| {
                        if (start..end).contains(&sample.at.0) {
                            samples.push(sample);
                        }
                    },
                )
                .map_err(internal)?;
                self.usage.insert(file.clone(), samples);
            }
            let samples = self.usage.get(&file).into_iter().flatten();
            points.extend(samples.filter_map(|sample| Some((sample.at.0, value(sample)?))));
        }
        Ok(points)
    }

    fn job(&mut self, name: &str) -> Result<Option<Job>, ApiError> {
        if let Some(known) = self.known.get(name) {
            return Ok(known.clone());
        }
        let found = self.jobs.described(name).map_err(internal)?.map(|described| described.job);
        // Dimensions are told apart by case, names of jobs are not.
        let found = found.filter(|job| job.name == name);
        self.known.insert(name.to_owned(), found.clone());
        Ok(found)
    }
}

/// The folders of a job's instances, or of one of them, in all attempts.
pub(super) fn directories(jobs: &Jobs, job: &Job, host: Option<&str>) -> Vec<InstanceDirectory> {
    let hosts = job.instances.iter().map(|instance| instance.host.as_str());
    let hosts: Vec<_> = hosts.filter(|known| host.is_none_or(|wanted| wanted == *known)).collect();
    let attempts = 1..=job.attempt;
    let folders = attempts.flat_map(|attempt| {
        let folder = jobs.attempt_folder(&job.name, attempt).join("instances");
        hosts.iter().map(move |host| InstanceDirectory::open(&folder.join(host))).collect::<Vec<_>>()
    });
    folders.collect()
}

fn read_printed(file: &Path, range: (u64, u64)) -> io::Result<HashMap<String, Vec<(u64, f64)>>> {
    let mut printed: HashMap<String, Vec<(u64, f64)>> = HashMap::new();
    let may_be = |line: &[u8]| contains(line, b"\"Metric\"");
    each_line(file, may_be, |stamped: Stamped| {
        if let Report::Metric { name, value } = stamped.report
            && (range.0..range.1).contains(&stamped.at.0)
        {
            printed.entry(name).or_default().push((stamped.at.0, value));
        }
    })?;
    Ok(printed)
}

/// Whether some bytes are in others: most lines are passed over so.
fn contains(line: &[u8], wanted: &[u8]) -> bool {
    line.windows(wanted.len()).any(|window| window == wanted)
}

/// Reads those lines of a file that may be wanted; one that is not there has none, and what a killed writer has left is
/// none.
fn each_line<T: DeserializeOwned>(
    file: &Path,
    may_be: impl Fn(&[u8]) -> bool,
    mut take: impl FnMut(T),
) -> io::Result<()> {
    let file = match fs::File::open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let mut reader = BufReader::with_capacity(128 << 10, file);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        if line.last() == Some(&b'\n')
            && may_be(&line)
            && let Ok(value) = serde_json::from_slice(&line)
        {
            take(value);
        }
        line.clear();
    }
    Ok(())
}
