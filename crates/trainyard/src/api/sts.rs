//! STS and IAM as far as SDKs ask them before a job: who am I, and may this role do it.

use percent_encoding::percent_decode_str;
use serde_json::Value;
use trainyard_engine::prepare::ACCOUNT;

use super::answer::{ApiError, ApiResult, escaped};

/// Answers a form of the query protocol.
pub(super) fn carry_out(body: &[u8]) -> ApiResult {
    let form = form(body);
    let member = |name: &str| form.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let xml = match member("Action") {
        Some("GetCallerIdentity") => {
            answer("GetCallerIdentity", "sts.amazonaws.com/doc/2011-06-15", &identity())
        }
        Some("GetRole") => {
            let role =
                member("RoleName").ok_or_else(|| ApiError::new("ValidationError", "RoleName is missing"))?;
            answer("GetRole", IAM, &role_of(role))
        }
        Some("SimulatePrincipalPolicy") => {
            let actions = form.iter().filter(|(name, _)| name.starts_with("ActionNames.member."));
            let all: String = actions.map(|(_, action)| allowed(action)).collect();
            let content =
                format!("<IsTruncated>false</IsTruncated><EvaluationResults>{all}</EvaluationResults>");
            answer("SimulatePrincipalPolicy", IAM, &content)
        }
        other => {
            let name = other.unwrap_or("without an Action");
            return Err(ApiError::new("InvalidAction", format!("there is no operation {name} here")));
        }
    };
    Ok(Value::String(xml))
}

const IAM: &str = "iam.amazonaws.com/doc/2010-05-08";

fn answer(operation: &str, namespace: &str, content: &str) -> String {
    format!(
        "<{operation}Response xmlns=\"https://{namespace}/\"><{operation}Result>{content}</{operation}Result>\
         <ResponseMetadata><RequestId>local</RequestId></ResponseMetadata></{operation}Response>"
    )
}

fn identity() -> String {
    format!("<Arn>arn:aws:iam::{ACCOUNT}:root</Arn><UserId>{ACCOUNT}</UserId><Account>{ACCOUNT}</Account>")
}

/// Roles give nothing here, so there is one of every name; SageMaker may take it on.
fn role_of(name: &str) -> String {
    let policy = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"sagemaker.amazonaws.com"},"Action":"sts:AssumeRole"}]}"#;
    let encoded = percent_encoding::utf8_percent_encode(policy, percent_encoding::NON_ALPHANUMERIC);
    let name = escaped(name);
    format!(
        "<Role><Path>/</Path><RoleName>{name}</RoleName><RoleId>AROATRAINYARD00000000</RoleId>\
         <Arn>arn:aws:iam::{ACCOUNT}:role/{name}</Arn><CreateDate>2026-01-01T00:00:00Z</CreateDate>\
         <AssumeRolePolicyDocument>{encoded}</AssumeRolePolicyDocument></Role>"
    )
}

fn allowed(action: &str) -> String {
    format!(
        "<member><EvalActionName>{}</EvalActionName><EvalResourceName>*</EvalResourceName>\
         <EvalDecision>allowed</EvalDecision></member>",
        escaped(action)
    )
}

fn form(body: &[u8]) -> Vec<(String, String)> {
    let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    let text = String::from_utf8_lossy(body);
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(a, b)| (decode(a), decode(b)))
        .collect()
}
