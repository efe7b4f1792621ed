//! Configuration: what the file, the environment and the command line say, merged once.
//!
//! The command line wins over the environment, the environment over the file; of maps each name by
//! itself. One struct for each concern.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Context;

mod file;
mod flags;
mod notify;
mod resources;
mod runtime;
mod serve;
mod storage;

pub(crate) use flags::Flags;
pub(crate) use notify::{Secret, Subscriptions, Way};
pub(crate) use resources::Resources;
pub(crate) use runtime::Runtime;
pub(crate) use serve::ServeLimits;
pub(crate) use storage::Storage;

use crate::exit::Refused;
use crate::job_file::absolute_image;

/// All that can be set, with where it was set. Paths are absolute.
#[derive(Debug)]
pub(crate) struct Config {
    /// How container images are run.
    pub(crate) runtime: Setting<Runtime>,
    /// Where jobs are kept.
    pub(crate) data_dir: Setting<PathBuf>,
    /// Where names of job files lead to.
    pub(crate) places: Places,
    /// What instances may take of this machine.
    pub(crate) resources: Resources,
    /// What the file says of the endpoint.
    pub(crate) serve: ServeLimits,
    /// Who is told when a job has ended.
    pub(crate) notify: Subscriptions,
    /// Buckets that are in stores, and what is kept of their objects.
    pub(crate) storage: Storage,
    /// The configuration file, for what only it can say.
    pub(crate) file: Origin,
}

/// Where names of job files lead to on this machine.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Buckets that are folders elsewhere than in the data folder.
    pub(crate) buckets: BTreeMap<String, Setting<PathBuf>>,
    /// Folders that stand for shared file systems, by their identity.
    pub(crate) file_systems: BTreeMap<String, Setting<PathBuf>>,
    /// Images that stand for others.
    pub(crate) images: BTreeMap<String, Setting<String>>,
}

/// A value and who has set it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

/// Who has set a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File(PathBuf),
    Variable(&'static str),
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Variable(name) | Self::Flag(name) => f.write_str(name),
        }
    }
}

/// What is known of the process: looked at once, so that merging is pure.
pub(crate) struct Surroundings<'a> {
    /// An environment variable; one that is empty counts as none.
    pub(crate) variable: &'a dyn Fn(&str) -> Option<OsString>,
    pub(crate) current_dir: PathBuf,
    pub(crate) home: Option<PathBuf>,
}

impl Surroundings<'_> {
    fn path(&self, name: &str) -> Option<PathBuf> {
        (self.variable)(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// A folder of the user's own (XDG Base Directory Specification): relative ones are passed over.
    fn own_folder(&self, variable: &str, below_home: &str) -> Option<PathBuf> {
        let given = self.path(variable).filter(|path| path.is_absolute());
        given.or_else(|| self.home.as_ref().map(|home| home.join(below_home)))
    }
}

impl Config {
    /// Reads the configuration of this process.
    pub(crate) fn read(flags: &Flags) -> Result<Self, Refused> {
        let current_dir = std::env::current_dir().context("the current folder")?;
        let variable = |name: &str| std::env::var_os(name);
        let surroundings = Surroundings { variable: &variable, current_dir, home: std::env::home_dir() };
        Ok(Self::merge(flags, &surroundings)?)
    }

    fn merge(flags: &Flags, surroundings: &Surroundings<'_>) -> anyhow::Result<Self> {
        let file = config_file(flags, surroundings)?;
        Ok(Self {
            runtime: Runtime::merge(flags, surroundings, &file)?,
            data_dir: data_dir(flags, surroundings, &file)?,
            places: Places::merge(flags, surroundings, &file),
            resources: Resources::merge(flags, surroundings, &file)?,
            serve: file.settings.serve.clone(),
            notify: notify::read(&file)?,
            storage: Storage::merge(&file)?,
            file: file.origin(),
        })
    }
}

/// The file that was asked for, else the user's own if there is one.
fn config_file(flags: &Flags, surroundings: &Surroundings<'_>) -> anyhow::Result<file::File> {
    let asked_for = flags.config.clone().or_else(|| surroundings.path("TRAINYARD_CONFIG"));
    if let Some(path) = asked_for {
        return Ok(file::File::read(&surroundings.current_dir.join(path))?);
    }
    let own = surroundings.own_folder("XDG_CONFIG_HOME", ".config");
    match own.map(|folder| folder.join("trainyard/config.toml")).filter(|path| path.exists()) {
        Some(path) => Ok(file::File::read(&path)?),
        None => Ok(file::File::default()),
    }
}

fn data_dir(
    flags: &Flags,
    surroundings: &Surroundings<'_>,
    file: &file::File,
) -> anyhow::Result<Setting<PathBuf>> {
    const VARIABLE: &str = "TRAINYARD_DATA_DIR";
    let here = |path: PathBuf, origin| Setting { value: plain(&surroundings.current_dir, &path), origin };
    let flag = flags.data_dir.clone().map(|path| here(path, Origin::Flag("--data-dir")));
    let variable = || surroundings.path(VARIABLE).map(|path| here(path, Origin::Variable(VARIABLE)));
    let written = || file.settings.data_dir.as_ref().map(|path| file.setting(plain(&file.folder(), path)));
    let own = || {
        let share = surroundings.own_folder("XDG_DATA_HOME", ".local/share")?;
        Some(Setting { value: share.join("trainyard"), origin: Origin::Default })
    };
    flag.or_else(variable)
        .or_else(written)
        .or_else(own)
        .context("there is no home folder for jobs' data; name a folder with --data-dir")
}

impl Places {
    fn merge(flags: &Flags, surroundings: &Surroundings<'_>, file: &file::File) -> Self {
        let mut places = Self::default();
        for (name, folder) in &file.settings.buckets {
            places.buckets.insert(name.clone(), file.setting(plain(&file.folder(), folder)));
        }
        for (id, folder) in &file.settings.file_systems {
            places.file_systems.insert(id.clone(), file.setting(plain(&file.folder(), folder)));
        }
        for (name, source) in &file.settings.images {
            places.images.insert(name.clone(), file.setting(absolute_image(source, &file.folder())));
        }
        let here = &surroundings.current_dir;
        for (name, folder) in &flags.buckets {
            let setting = Setting { value: plain(here, folder), origin: Origin::Flag("--bucket") };
            places.buckets.insert(name.clone(), setting);
        }
        for (id, folder) in &flags.file_systems {
            let setting = Setting { value: plain(here, folder), origin: Origin::Flag("--file-system") };
            places.file_systems.insert(id.clone(), setting);
        }
        for (name, source) in &flags.images {
            let setting = Setting { value: absolute_image(source, here), origin: Origin::Flag("--image") };
            places.images.insert(name.clone(), setting);
        }
        places
    }
}

/// The path from a folder, without `.` in it.
fn plain(folder: &Path, path: &Path) -> PathBuf {
    folder.join(path).components().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(flags: &Flags, variables: &[(&str, &str)]) -> anyhow::Result<Config> {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        };
        let surroundings =
            Surroundings { variable: &variable, current_dir: "/here".into(), home: Some("/home/me".into()) };
        Config::merge(flags, &surroundings)
    }

    fn written(text: &str) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        fs_err::write(&path, text).unwrap();
        (folder, path.to_str().unwrap().to_owned())
    }

    #[test]
    fn the_command_line_wins_over_the_environment_and_that_over_the_file() {
        let (folder, path) = written("data_dir = 'jobs'");
        let file = ("TRAINYARD_CONFIG", path.as_str());
        let variable = ("TRAINYARD_DATA_DIR", "./of-variable");
        let flags = Flags { data_dir: Some("of-flag".into()), ..Flags::default() };
        let setting = |value: &str, origin| Setting { value: PathBuf::from(value), origin };
        let table = [
            (&flags, vec![file, variable], setting("/here/of-flag", Origin::Flag("--data-dir"))),
            (
                &Flags::default(),
                vec![file, variable],
                setting("/here/of-variable", Origin::Variable("TRAINYARD_DATA_DIR")),
            ),
            (
                &Flags::default(),
                vec![file, ("TRAINYARD_DATA_DIR", "")],
                Setting { value: folder.path().join("jobs"), origin: Origin::File(path.clone().into()) },
            ),
            (
                &Flags::default(),
                vec![("XDG_DATA_HOME", "/data")],
                setting("/data/trainyard", Origin::Default),
            ),
            (&Flags::default(), vec![], setting("/home/me/.local/share/trainyard", Origin::Default)),
        ];
        for (flags, variables, expected) in table {
            assert_eq!(merged(flags, &variables).unwrap().data_dir, expected);
        }
    }

    #[test]
    fn maps_are_merged_name_by_name_and_paths_start_where_they_are_written() {
        let (folder, path) = written(
            "[buckets]\na = 'a'\nb = '/b'\n[file_systems]\nfs-1 = 'x'\nfs-2 = 'y'\n[images]\n'my/image' = 'host:bin'\n'team/fit' = 'other/fit:2'\n",
        );
        let flags = Flags {
            config: Some(path.into()),
            buckets: vec![("a".into(), "./mine".into())],
            file_systems: vec![("fs-2".into(), "./mine".into())],
            images: vec![("team/fit".into(), "oci:fit".into())],
            ..Flags::default()
        };
        let places = merged(&flags, &[]).unwrap().places;
        let buckets: Vec<_> = places.buckets.values().map(|setting| setting.value.clone()).collect();
        assert_eq!(buckets, [PathBuf::from("/here/mine"), PathBuf::from("/b")]);
        assert_eq!(places.file_systems["fs-1"].value, folder.path().join("x"));
        assert_eq!(places.file_systems["fs-2"].value, PathBuf::from("/here/mine"));
        assert_eq!(places.images["my/image"].value, format!("host:{}", folder.path().join("bin").display()));
        assert_eq!(places.images["team/fit"].value, "oci:/here/fit");
    }

    #[test]
    fn the_users_own_file_need_not_be_there_but_one_that_was_asked_for_must() {
        assert!(merged(&Flags::default(), &[("XDG_CONFIG_HOME", "/nowhere")]).is_ok());
        let error = merged(&Flags::default(), &[("TRAINYARD_CONFIG", "/nowhere/x.toml")]).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("/nowhere/x.toml"), "{text}");
    }
}
