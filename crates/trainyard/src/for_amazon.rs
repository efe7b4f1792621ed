//! A request as it is sent to Amazon itself: our own settings become tags, and what only runs here is refused.

use serde_json::{Value, json};

/// Before the name of a setting that is a tag.
const PREFIX: &str = "trainyard:";
/// Amazon's own limit for one job.
const MOST_TAGS: usize = 50;

/// What Amazon can't do.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotForAmazon {
    #[error("{member}: {value} is a place of this machine; Amazon reads and writes s3:// only")]
    Place { member: String, value: String },
    #[error(
        "AlgorithmSpecification.TrainingImage: {0} is only found on this machine; push the image to a registry of the \
         account and name it there"
    )]
    Image(String),
    #[error(
        "Trainyard.ShardBy: Amazon deals objects out by key only; leave it out, or run the job on your own machines"
    )]
    ShardBySize,
    #[error("Tags: {0} tags together with those for our own settings; a job has at most {MOST_TAGS}")]
    Tags(usize),
}

/// Makes a request Amazon's; tells what of it Amazon will pass over.
///
/// # Errors
/// The job would be another one there.
pub(crate) fn for_amazon(request: &mut Value) -> Result<Vec<String>, NotForAmazon> {
    check_places(request)?;
    let settings = request.as_object_mut().and_then(|members| members.remove("Trainyard"));
    let mut flat = Vec::new();
    flatten("", &settings.unwrap_or(Value::Null), &mut flat);
    if flat.iter().any(|(name, value)| name == "ShardBy" && value != "key") {
        return Err(NotForAmazon::ShardBySize);
    }
    let mut remarks = Vec::new();
    let mut tags: Vec<Value> = request["Tags"].as_array().cloned().unwrap_or_default();
    for (name, value) in &flat {
        if let Some(remark) = passed_over(name) {
            remarks.push(format!("Trainyard.{name}: {remark}"));
        }
        if is_tag_value(value) {
            tags.push(json!({"Key": format!("{PREFIX}{name}"), "Value": value}));
        } else {
            remarks.push(format!(
                "Trainyard.{name}: {value:?} has characters that no tag may have; it is left out"
            ));
        }
    }
    if tags.len() > MOST_TAGS {
        return Err(NotForAmazon::Tags(tags.len()));
    }
    if !flat.is_empty() {
        request["Tags"] = json!(tags);
    }
    Ok(remarks)
}

/// What a setting would have done, if Amazon does not do it.
fn passed_over(name: &str) -> Option<&'static str> {
    match name {
        "Merge.Output" => {
            Some("Amazon does not merge; run `trainyard merge` on the model.tar.gz that the job leaves")
        }
        "GraceInSeconds" => Some("Amazon's grace is 120 s"),
        "ShmSizeInGB" => Some("Amazon decides the size of /dev/shm itself"),
        "PidsLimit" => Some("Amazon decides the number of processes itself"),
        "Output.Level" => Some("Amazon packs the artifact as it does"),
        "Output.WarnAboveInGB" => Some("Amazon warns of no size"),
        "Output.Compression" => Some("Amazon packs the artifact with gzip"),
        "Output.Ignore" => Some("Amazon leaves nothing out: the artifact will hold these files too"),
        // Parts of one that was told, and those that are Amazon's own behaviour.
        _ => None,
    }
}

fn check_places(request: &Value) -> Result<(), NotForAmazon> {
    let image = request["AlgorithmSpecification"]["TrainingImage"].as_str().unwrap_or_default();
    let here = ["host:", "oci:", "oci-archive:", "docker-archive:", "trainyard/"];
    if here.iter().any(|form| image.starts_with(form)) {
        return Err(NotForAmazon::Image(image.to_owned()));
    }
    let output = ("OutputDataConfig.S3OutputPath".to_owned(), &request["OutputDataConfig"]["S3OutputPath"]);
    let channels = request["InputDataConfig"].as_array().into_iter().flatten().enumerate();
    let channels = channels.map(|(index, channel)| {
        let member = format!("InputDataConfig[{index}].DataSource.S3DataSource.S3Uri");
        (member, &channel["DataSource"]["S3DataSource"]["S3Uri"])
    });
    let checkpoints = ("CheckpointConfig.S3Uri".to_owned(), &request["CheckpointConfig"]["S3Uri"]);
    for (member, value) in channels.chain([output, checkpoints]) {
        let value = value.as_str().unwrap_or_default();
        if value.starts_with("file://") {
            return Err(NotForAmazon::Place { member, value: value.to_owned() });
        }
    }
    Ok(())
}

/// Members of members, named by their paths.
fn flatten(path: &str, value: &Value, flat: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(&path, value, flat);
            }
        }
        Value::Null => {}
        Value::String(text) => flat.push((path.to_owned(), text.clone())),
        other => flat.push((path.to_owned(), other.to_string())),
    }
}

/// What the API's pattern for tags allows: `[\p{L}\p{Z}\p{N}_.:/=+\-@]*`, at most 256 characters.
fn is_tag_value(text: &str) -> bool {
    let allowed = |character: char| {
        character.is_alphanumeric()
            || character.is_whitespace() && !character.is_control()
            || "_.:/=+-@".contains(character)
    };
    text.chars().count() <= 256 && text.chars().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(settings: Value) -> Value {
        json!({
            "TrainingJobName": "fit",
            "AlgorithmSpecification": {"TrainingImage": "1.dkr.ecr.eu-west-1.amazonaws.com/fit:1"},
            "InputDataConfig": [{"DataSource": {"S3DataSource": {"S3Uri": "s3://b/in"}}}],
            "OutputDataConfig": {"S3OutputPath": "s3://b/out"},
            "Tags": [{"Key": "team", "Value": "x"}],
            "Trainyard": settings,
        })
    }

    #[test]
    fn our_own_settings_become_tags_and_what_amazon_will_not_do_is_told() {
        let mut sent =
            request(json!({"Merge": {"Glob": "part-*.csv", "Output": "all.csv"}, "ShardBy": "key"}));
        let remarks = for_amazon(&mut sent).unwrap();
        assert!(sent.get("Trainyard").is_none());
        let expected = json!([
            {"Key": "team", "Value": "x"},
            {"Key": "trainyard:Merge.Output", "Value": "all.csv"},
            {"Key": "trainyard:ShardBy", "Value": "key"},
        ]);
        assert_eq!(sent["Tags"], expected);
        assert!(remarks[0].contains("part-*.csv") && remarks[1].contains("trainyard merge"), "{remarks:?}");
    }

    #[test]
    fn each_setting_that_amazon_passes_over_is_told_by_name() {
        let mut sent = request(json!({
            "Output": {"Ignore": ["cache/**"], "Level": 1, "Compression": "zstd", "WarnAboveInGB": 1},
            "GraceInSeconds": 9, "ShmSizeInGB": 1, "PidsLimit": 9,
            "Merge": {"Output": "all.csv", "OrderBy": "id"},
        }));
        let remarks = for_amazon(&mut sent).unwrap().join("\n");
        let names = [
            "Output.Ignore",
            "Output.Level",
            "Output.Compression",
            "Output.WarnAboveInGB",
            "GraceInSeconds",
            "ShmSizeInGB",
            "PidsLimit",
            "Merge.Output",
        ];
        for name in names {
            assert!(remarks.contains(&format!("Trainyard.{name}: ")), "{name}: {remarks}");
        }
        assert!(remarks.contains("will hold these files too"), "{remarks}");
    }

    #[test]
    fn a_request_without_our_settings_is_sent_as_it_is() {
        let mut sent = request(Value::Null);
        sent.as_object_mut().unwrap().remove("Trainyard");
        let before = sent.clone();
        assert_eq!(for_amazon(&mut sent), Ok(Vec::new()));
        assert_eq!(sent, before);
    }

    #[test]
    fn what_would_be_another_job_there_is_refused() {
        assert_eq!(for_amazon(&mut request(json!({"ShardBy": "size"}))), Err(NotForAmazon::ShardBySize));
        let mut here = request(Value::Null);
        here["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3Uri"] = json!("file:///srv/in");
        let text = for_amazon(&mut here).unwrap_err().to_string();
        assert!(text.contains("InputDataConfig[0].DataSource.S3DataSource.S3Uri: file:///srv/in"), "{text}");
        let mut program = request(Value::Null);
        program["AlgorithmSpecification"]["TrainingImage"] = json!("host:/bin/train");
        assert!(for_amazon(&mut program).unwrap_err().to_string().contains("host:/bin/train"));
        let mut full = request(json!({"GraceInSeconds": 1}));
        full["Tags"] = json!(vec![json!({"Key": "k", "Value": "v"}); 50]);
        assert_eq!(for_amazon(&mut full), Err(NotForAmazon::Tags(51)));
    }
}
