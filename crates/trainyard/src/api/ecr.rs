//! ECR as far as clients ask before they pull an image: for a password.
//!
//! Images come from where their names say or from this machine, so the password opens nothing.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use trainyard_engine::prepare::ACCOUNT;
use trainyard_engine::run::Timestamp;

use super::answer::{ApiError, ApiResult};

/// How long a password is said to be good, in seconds: as at Amazon 12 hours.
const GOOD_FOR: u64 = 12 * 3600;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GetAuthorizationToken {
    registry_ids: Option<Vec<String>>,
}

/// Carries out an operation by its name, in a region.
pub(super) fn carry_out(region: &str, operation: &str, input: &Value) -> ApiResult {
    if operation != "GetAuthorizationToken" {
        return Err(ApiError::unknown_operation(operation));
    }
    let input: GetAuthorizationToken = serde_path_to_error::deserialize(input).map_err(|error| {
        ApiError::new("SerializationException", format!("{}: {}", error.path(), error.inner()))
    })?;
    let registries = input.registry_ids.unwrap_or_else(|| vec![ACCOUNT.to_owned()]);
    let is_account = |id: &String| id.len() == 12 && id.bytes().all(|byte| byte.is_ascii_digit());
    if registries.is_empty() || registries.len() > 10 || !registries.iter().all(is_account) {
        let message = "registryIds has 1 to 10 account numbers of 12 digits";
        return Err(ApiError::new("InvalidParameterException", message));
    }
    let tokens = registries.iter().map(|registry| {
        json!({
            "authorizationToken": STANDARD.encode("AWS:local"),
            "expiresAt": Timestamp::now().seconds() + GOOD_FOR,
            "proxyEndpoint": format!("https://{registry}.dkr.ecr.{region}.amazonaws.com"),
        })
    });
    Ok(json!({ "authorizationData": tokens.collect::<Vec<_>>() }))
}
