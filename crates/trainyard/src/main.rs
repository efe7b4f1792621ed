//! Runs SageMaker training jobs on machines you own.

fn main() {}
