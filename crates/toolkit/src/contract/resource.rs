//! `resourceconfig.json`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::field::Fields;
use super::{FieldError, compact};

/// Who takes part in a job, and which of them reads this.
///
/// The members that came with 2022 are optional, because platforms before that, and some emulators still,
/// leave them out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub struct ResourceConfig {
    /// The host that this copy of the file is for.
    pub current_host: String,
    /// The instance type of that host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_instance_type: Option<String>,
    /// The instance group of that host; `homogeneousCluster` in a job without groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_group_name: Option<String>,
    /// All hosts in number order, the same on each of them.
    pub hosts: Vec<String>,
    /// The groups that the hosts are in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_groups: Option<Vec<InstanceGroup>>,
    /// The interface by which the hosts reach each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_interface_name: Option<String>,
}

impl ResourceConfig {
    /// The group of a job that names no instance groups.
    pub const SINGLE_GROUP: &'static str = "homogeneousCluster";

    /// The text of `resourceconfig.json`.
    pub fn to_json(&self) -> String {
        compact(self)
    }
}

impl TryFrom<Map<String, Value>> for ResourceConfig {
    type Error = FieldError;

    fn try_from(members: Map<String, Value>) -> Result<Self, FieldError> {
        let mut fields = Fields(members);
        Ok(Self {
            current_host: fields.required("current_host")?,
            current_instance_type: fields.optional("current_instance_type")?,
            current_group_name: fields.optional("current_group_name")?,
            hosts: fields.required("hosts")?,
            instance_groups: fields.optional("instance_groups")?,
            network_interface_name: fields.optional("network_interface_name")?,
        })
    }
}

/// Hosts of one instance type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceGroup {
    /// The group's name.
    pub instance_group_name: String,
    /// The instance type of all its hosts.
    pub instance_type: String,
    /// Its hosts in number order.
    pub hosts: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW_FORM: &str = concat!(
        r#"{"current_host":"algo-1","current_instance_type":"ml.g4dn.12xlarge","#,
        r#""current_group_name":"homogeneousCluster","hosts":["algo-1"],"#,
        r#""instance_groups":[{"instance_group_name":"homogeneousCluster","#,
        r#""instance_type":"ml.g4dn.12xlarge","hosts":["algo-1"]}],"network_interface_name":"eth0"}"#
    );

    #[test]
    fn the_form_since_2022_is_written_as_captured() {
        let config: ResourceConfig = serde_json::from_str(NEW_FORM).unwrap();
        assert_eq!(config.to_json(), NEW_FORM);
        assert_eq!(config.to_json().len(), 280, "the length of a captured file");
    }

    #[test]
    fn older_forms_are_read() {
        let of_2020 =
            r#"{"current_host": "algo-1", "hosts": ["algo-1", "algo-2"], "network_interface_name": "eth0"}"#;
        let of_2017 = r#"{"current_host": "algo-1", "hosts": ["algo-1", "algo-2"]}"#;
        for (text, interface) in [(of_2020, Some("eth0")), (of_2017, None)] {
            let config: ResourceConfig = serde_json::from_str(text).unwrap();
            assert_eq!(config.hosts, ["algo-1", "algo-2"]);
            assert_eq!(config.network_interface_name.as_deref(), interface);
            assert_eq!(config.instance_groups, None);
        }
    }

    #[test]
    fn members_of_later_times_are_passed_over() {
        let text = r#"{"current_host":"algo-1","hosts":["algo-1"],"topology":[{"hostName":"algo-1"}]}"#;
        assert!(serde_json::from_str::<ResourceConfig>(text).is_ok());
    }

    #[test]
    fn errors_name_the_member() {
        for (text, start) in [
            (r#"{"current_host":"algo-1"}"#, "field `hosts`: is missing"),
            (r#"{"current_host":1,"hosts":[]}"#, "field `current_host`: invalid type: integer `1`"),
            (r#"{"current_host":"a","hosts":"a"}"#, "field `hosts`: invalid type: string"),
        ] {
            let error = serde_json::from_str::<ResourceConfig>(text).unwrap_err().to_string();
            assert!(error.starts_with(start), "{error}");
        }
    }
}
