//! The patterns of the API: how Amazon writes them, and the expression that decides here.
//!
//! A pattern holds for the whole text. Where Amazon's notation is not ours, the expression says the
//! same: `\d` and `\w` mean ASCII there, and `.` is any character but the end of a line.

use std::sync::LazyLock;

use regex::Regex;

/// One pattern of the API.
pub(super) struct Pattern {
    /// As Amazon writes it; messages repeat this.
    pub(super) shown: &'static str,
    regex: LazyLock<Regex>,
}

impl Pattern {
    /// Whether the pattern holds for the whole text.
    pub(super) fn holds(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

#[expect(clippy::expect_used, reason = "the expressions are constants, and a test reads each of them")]
fn compile(expression: &str) -> Regex {
    Regex::new(&format!(r"\A(?:{expression})\z")).expect("a constant expression")
}

/// Declares the patterns, and a list of them all for the tests.
macro_rules! patterns {
    ($($name:ident: $shown:literal, $regex:expr;)*) => {
        $(
            pub(super) static $name: Pattern =
                Pattern { shown: $shown, regex: LazyLock::new(|| compile($regex)) };
        )*

        #[cfg(test)]
        pub(super) static ALL: &[&Pattern] = &[$(&$name),*];
    };
}

/// Any text on one line.
const LINE: &str = r"[^\n\r\u{85}\u{2028}\u{2029}]*";
/// Any text on one line that is not empty.
const SOME: &str = r"[^\n\r\u{85}\u{2028}\u{2029}]+";

patterns! {
    ANY_LINE: ".*", LINE;
    SOME_LINE: ".+", SOME;
    ANYTHING: r"[\S\s]*", r"(?s:.*)";
    JOB_NAME: "^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", "[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}";
    ROLE_ARN: r"arn:aws[a-z\-]*:iam::\d{12}:role/?[a-zA-Z_0-9+=,.@\-_/]+",
        r"arn:aws[a-z\-]*:iam::[0-9]{12}:role/?[a-zA-Z_0-9+=,.@\-/]+";
    ALGORITHM_NAME:
        r"(arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:[a-z\-]*\/)?([a-zA-Z0-9]([a-zA-Z0-9-]){0,62})(?<!-)",
        r"(arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:[a-z\-]*/)?[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?";
    LAMBDA_ARN: r"arn:[\p{Alnum}\-]+:lambda:[\p{Alnum}\-]+:[0-9]{12}:function:.*",
        &format!(r"arn:[a-zA-Z0-9\-]+:lambda:[a-zA-Z0-9\-]+:[0-9]{{12}}:function:{LINE}");
    CHANNEL_NAME: r"[A-Za-z0-9\.\-_]+", r"[A-Za-z0-9.\-_]+";
    OBJECT_URI: "(https|s3)://([^/]+)/?(.*)|file:///(.*)",
        &format!("(https|s3)://[^/]+/?{LINE}|file:///{LINE}");
    FILE_SYSTEM_ID: "(fs-[0-9a-f]{8,})", "fs-[0-9a-f]{8,}";
    DATASET_ARN:
        r"(arn:[a-z0-9-\.]{1,63}:sagemaker:\w+(?:-\w+)+:(\d{12}|aws):hub-content\/)[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}\/DataSet\/[a-zA-Z0-9](-*[a-zA-Z0-9]){0,63}(\/\d{1,4}.\d{1,4}.\d{1,4})?",
        &hub_arn("DataSet");
    MODEL_ARN:
        r"(arn:[a-z0-9-\.]{1,63}:sagemaker:\w+(?:-\w+)+:(\d{12}|aws):hub-content\/)[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}\/Model\/[a-zA-Z0-9](-*[a-zA-Z0-9]){0,63}(\/\d{1,4}.\d{1,4}.\d{1,4})?",
        &hub_arn("Model");
    SEQUENCE_LENGTH: r"\d+K", "[0-9]+K";
    KMS_KEY: "[a-zA-Z0-9:/_-]*", "[a-zA-Z0-9:/_-]*";
    TRAINING_PLAN_ARN: r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:training-plan/.*",
        &format!(r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{{12}}:training-plan/{LINE}");
    NETWORK_ID: "[-0-9a-zA-Z]+", "[-0-9a-zA-Z]+";
    TAG: r"([\p{L}\p{Z}\p{N}_.:/=+\-@]*)", r"[\p{L}\p{Z}\p{N}_.:/=+\-@]*";
    EXPERIMENT_NAME: "[a-zA-Z0-9](-*[a-zA-Z0-9]){0,119}", "[a-zA-Z0-9](-*[a-zA-Z0-9]){0,119}";
    VARIABLE_NAME: "[a-zA-Z_][a-zA-Z0-9_]*", "[a-zA-Z_][a-zA-Z0-9_]*";
    MLFLOW_ARN: r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:mlflow-[a-zA-Z-]*/.*",
        &format!(r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{{12}}:mlflow-[a-zA-Z-]*/{LINE}");
    PACKAGE_GROUP_ARN:
        r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]{9,16}:[0-9]{12}:model-package-group/[\S]{1,2048}",
        r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]{9,16}:[0-9]{12}:model-package-group/\S+";
    PACKAGE_ARN: r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]{9,16}:[0-9]{12}:model-package/[\S]{1,2048}",
        r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]{9,16}:[0-9]{12}:model-package/\S+";
}

/// The expression of an ARN of Amazon's hub.
fn hub_arn(kind: &str) -> String {
    let word = "[a-zA-Z0-9_]+";
    let number = "[0-9]{1,4}";
    let name = |longest: u32| format!("[a-zA-Z0-9](-*[a-zA-Z0-9]){{0,{longest}}}");
    format!(
        "arn:[a-z0-9\\-.]{{1,63}}:sagemaker:{word}(-{word})+:([0-9]{{12}}|aws):hub-content/{}/{kind}/{}\
         (/{number}.{number}.{number})?",
        name(62),
        name(63),
    )
}
