//! Other input than the job's own.

use indexmap::IndexMap;
use serde_json::Value;
use trainyard_engine::plan::InstancePlan;

const HYPERPARAMETERS: &str = "hyperparameters.json";

/// What is changed about an instance before it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing is changed.
    None,
    /// There is nothing: no configuration and no channel.
    Nothing,
    /// Channels have no objects.
    EmptyChannels {
        /// But those have that every instance gets whole.
        dealt_out_only: bool,
    },
    /// Hyperparameters are numbers where they look like some.
    Numbers,
}

impl Change {
    pub(super) fn make(self, plan: &mut InstancePlan) {
        match self {
            Self::None => {}
            Self::Nothing => {
                plan.config.clear();
                plan.channels.clear();
            }
            Self::EmptyChannels { dealt_out_only } => {
                let emptied =
                    plan.channels.iter_mut().filter(|channel| !(dealt_out_only && channel.replicated));
                emptied.for_each(|channel| channel.objects.clear());
            }
            Self::Numbers => {
                if let Some(text) = plan.config.get_mut(HYPERPARAMETERS) {
                    *text = numbers(text);
                }
            }
        }
    }
}

fn numbers(text: &str) -> String {
    let strings: IndexMap<String, String> = serde_json::from_str(text).unwrap_or_default();
    let value = |text: String| as_number(&text).unwrap_or(Value::String(text));
    let values: IndexMap<String, Value> =
        strings.into_iter().map(|(name, text)| (name, value(text))).collect();
    serde_json::to_string(&values).unwrap_or_else(|_| text.to_owned())
}

/// What a string would be if it were no string.
pub(super) fn as_number(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok().filter(|value: &Value| !value.is_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_number_becomes_one() {
        let text = r#"{"epochs":"3","name":"fit","rate":"1e-3","on":"true","list":"[1]"}"#;
        assert_eq!(numbers(text), r#"{"epochs":3,"name":"fit","rate":0.001,"on":true,"list":[1]}"#);
    }
}
