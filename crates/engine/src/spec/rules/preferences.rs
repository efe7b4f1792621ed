//! The rules of `InstancePreferences`, as Amazon's reference of the member has them.

use super::{has_groups, repeated};
use crate::spec::{Conflict, Violation};
use crate::wire::{CreateTrainingJobRequest, InstancePreference, ResourceConfig};

const LIST: &str = "ResourceConfig.InstancePreferences";

/// What is wrong with a list of preferred types and what stands beside it.
pub(super) fn violations(
    request: &CreateTrainingJobRequest,
    resources: &ResourceConfig,
    listed: &[InstancePreference],
) -> Vec<Violation> {
    let beside = [
        ("InstanceType", resources.instance_type.is_some()),
        ("InstanceGroups", has_groups(resources)),
        ("InstancePlacementConfig", resources.instance_placement_config.is_some()),
        ("EnableManagedSpotTraining", request.enable_managed_spot_training == Some(true)),
    ];
    let beside = beside.into_iter().filter(|(_, given)| *given);
    let beside = beside.map(|(beside, _)| Conflict::PreferencesAndMore { beside });
    let names = listed.iter().filter_map(|one| one.instance_type.as_deref());
    let names = repeated(LIST, "InstanceType", names);
    let plans =
        resources.training_plan_arn.is_some() && listed.iter().any(|one| one.training_plan_arns.is_some());
    let plans = plans.then_some(Conflict::PreferredPlans);
    beside.chain(names).chain(counts(resources, listed)).chain(plans).map(Violation::from).collect()
}

/// Each preference has a count, or the job has one for all.
fn counts(resources: &ResourceConfig, listed: &[InstancePreference]) -> Option<Conflict> {
    let counted = listed.iter().filter(|one| one.instance_count.is_some()).count();
    // A count of none says nothing, as beside groups.
    let for_all = resources.instance_count.is_some_and(|count| count != 0);
    let right = if for_all { counted == 0 } else { counted == listed.len() };
    (!right).then_some(Conflict::PreferredCounts)
}
