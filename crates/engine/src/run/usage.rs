//! What an instance takes of its machine, as it was measured while its program ran.

use serde::{Deserialize, Serialize};

use super::Timestamp;

/// One measurement. All numbers are percentages with SageMaker's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageSample {
    /// When it was made.
    pub at: Timestamp,
    /// Processor time since the measurement before: 100 for each processor that was busy.
    pub cpu: f64,
    /// Of the memory that the instance may have.
    pub memory: f64,
    /// Of the volume, or of the file system where there is no volume of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<f64>,
    /// 100 for each GPU that was busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<f64>,
    /// 100 for each GPU whose memory was full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory: Option<f64>,
}
