//! STS and IAM as far as SDKs ask them before a job: who am I, and may this role do it.

use serde_json::{Value, json};
use trainyard_engine::prepare::ACCOUNT;

use super::answer::{ApiError, ApiResult};

/// Carries out an operation by its name.
pub(super) fn carry_out(operation: &str, input: &Value) -> ApiResult {
    match operation {
        "GetCallerIdentity" => Ok(json!({
            "Arn": format!("arn:aws:iam::{ACCOUNT}:root"), "UserId": ACCOUNT, "Account": ACCOUNT,
        })),
        "GetRole" => match input["RoleName"].as_str() {
            Some(role) => Ok(json!({ "Role": role_of(role) })),
            None => Err(ApiError::new("ValidationError", "RoleName is missing")),
        },
        "SimulatePrincipalPolicy" => {
            let actions = input["ActionNames"].as_array().into_iter().flatten();
            let allowed: Vec<_> = actions.map(allowed).collect();
            Ok(json!({ "IsTruncated": false, "EvaluationResults": allowed }))
        }
        other => Err(ApiError::new("InvalidAction", format!("there is no operation {other} here"))),
    }
}

/// Roles give nothing here, so there is one of every name; SageMaker may take it on.
fn role_of(name: &str) -> Value {
    let policy = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"sagemaker.amazonaws.com"},"Action":"sts:AssumeRole"}]}"#;
    let encoded = percent_encoding::utf8_percent_encode(policy, percent_encoding::NON_ALPHANUMERIC);
    json!({
        "Path": "/", "RoleName": name, "RoleId": "AROATRAINYARD00000000", "CreateDate": "2026-01-01T00:00:00Z",
        "Arn": format!("arn:aws:iam::{ACCOUNT}:role/{name}"), "AssumeRolePolicyDocument": encoded.to_string(),
    })
}

fn allowed(action: &Value) -> Value {
    json!({"EvalActionName": action, "EvalResourceName": "*", "EvalDecision": "allowed"})
}
