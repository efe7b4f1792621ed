//! `trainyard config`: what is set, and where.

use crate::config::{Config, Flags, Setting};
use crate::exit::Exit;
use crate::show::out;

/// Print the settings in effect and where each comes from
///
/// What is printed can be used as a configuration file: $XDG_CONFIG_HOME/trainyard/config.toml, or
/// ~/.config/trainyard/config.toml.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  trainyard config --data-dir /srv/jobs > ~/.config/trainyard/config.toml")]
pub(super) struct ShowConfig {
    #[command(flatten)]
    flags: Flags,
}

impl ShowConfig {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        out(&text(&Config::read(&self.flags)?))?;
        Ok(Exit::Completed)
    }
}

fn text(config: &Config) -> String {
    let folder = |setting: &Setting<std::path::PathBuf>| Setting {
        value: setting.value.to_string_lossy().into_owned(),
        origin: setting.origin.clone(),
    };
    let resources = &config.resources;
    let mut lines = vec![
        line("runtime", &config.runtime.as_text()),
        line("data_dir", &folder(&config.data_dir)),
        line("limits", &resources.limits.as_text()),
        line("gpus", &resources.gpus.as_text()),
    ];
    lines.extend(["".to_owned(), "[buckets]".to_owned()]);
    lines.extend(config.places.buckets.iter().map(|(name, setting)| line(&quoted(name), &folder(setting))));
    lines.extend(["".to_owned(), "[file_systems]".to_owned()]);
    let file_systems = config.places.file_systems.iter();
    lines.extend(file_systems.map(|(id, setting)| line(&quoted(id), &folder(setting))));
    lines.extend(["".to_owned(), "[images]".to_owned()]);
    lines.extend(config.places.images.iter().map(|(name, setting)| line(&quoted(name), setting)));
    lines.extend(config.storage.as_text(&config.data_dir.value, &config.file));
    for (name, setting) in &config.notify {
        lines.extend(["".to_owned(), format!("[notify.{}]  # {}", quoted(name), setting.origin)]);
        lines.extend(setting.value.as_text());
    }
    lines.join("\n")
}

fn line(key: &str, setting: &Setting<String>) -> String {
    format!("{key} = {}  # {}", quoted(&setting.value), setting.origin)
}

/// A basic string of TOML; its escapes are those of JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
