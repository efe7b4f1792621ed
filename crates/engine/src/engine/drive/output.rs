//! What comes after the last instance: the artifacts and the merge, in a folder or in a store.

use std::io;

use fs_err as fs;

use super::{Done, Driver};
use crate::backend::{BackendError, Launch};
use crate::engine::publish::in_store::{self, StoreOutputError};
use crate::engine::{Engine, EngineError, publish};
use crate::explain::chain;
use crate::job::{Event, MERGE_HOST};
use crate::plan::{OutputPlace, OutputPlan};
use crate::run::RunDirectory;
use crate::storage::{ObjectSource, Written};

impl Driver {
    pub(super) fn publish_merged(&mut self) {
        let merged = self.run.instance(MERGE_HOST).merged_file();
        let name = self.plan.merge.as_ref().map(|plan| plan.output.clone()).unwrap_or_default();
        let OutputPlan { place, uri, .. } = self.plan.output.clone();
        match place {
            OutputPlace::Folder(folder) => {
                self.work.spawn_blocking(move || Done::Event(publish::merged(&merged, &folder, &uri, &name)));
            }
            OutputPlace::Store(place) => {
                let stores = in_store::stores(&self.engine, &place);
                self.work.spawn(async move {
                    Done::Event(in_store::merged(stores, merged, (place, uri), name).await)
                });
            }
        }
    }

    pub(super) fn publish(&mut self) {
        let output = self.plan.output.clone();
        if output.folder().is_some() {
            let parts = publish::parts(&self.engine, &self.job);
            self.work.spawn_blocking(move || Done::Event(publish::artifacts(&parts, &output)));
            return;
        }
        let parts = publish::store_parts(&self.engine, &self.job);
        let (engine, run) = (self.engine.clone(), self.run.clone());
        self.work.spawn(async move { Done::Event(in_store::artifacts(engine, parts, output, run).await) });
    }

    pub(super) async fn merge(&mut self) -> Result<(), EngineError> {
        let Some(merge) = self.plan.merge.clone() else { return Ok(()) };
        let (archive, size) = match self.archive().await {
            Ok(archive) => archive,
            Err(error) => return self.happen(Event::MergeFailed { explanation: chain(&error) }).await,
        };
        let instance = merge.instance_for(archive, size, self.job.attempt);
        self.run.add_instance(&instance)?;
        self.watch.follow(MERGE_HOST, &self.run.instance(MERGE_HOST))?;
        let (backend, run) = (self.engine.backend.clone(), self.run.clone());
        let launch = Launch { run, hosts: vec![MERGE_HOST.to_owned()] };
        self.work.spawn(async move { Done::MergeLaunched(backend.launch(&launch).await) });
        Ok(())
    }

    /// The archive that has been published, and its size.
    async fn archive(&self) -> Result<(ObjectSource, u64), StoreOutputError> {
        let form = self.plan.output.model;
        match &self.plan.output.place {
            OutputPlace::Folder(folder) => {
                let archive = folder.join(form.model_archive());
                let size = fs::metadata(&archive)?.len();
                Ok((ObjectSource::File(archive), size))
            }
            OutputPlace::Store(place) => {
                let Written { etag, size } =
                    in_store::archive(&in_store::stores(&self.engine, place), place, form).await?;
                let (bucket, key) = (place.bucket.clone(), place.key(&form.model_archive()));
                Ok((ObjectSource::Store { bucket, key, etag }, size))
            }
        }
    }
}

/// Begins the uploads that instances put their parts into, and gives up those of earlier attempts.
pub(super) async fn ready_output(
    engine: &Engine,
    output: &OutputPlan,
    run: &RunDirectory,
    (job, attempt): (String, u32),
) -> Result<(), BackendError> {
    let OutputPlace::Store(place) = &output.place else { return Ok(()) };
    engine.give_up_uploads(&job, attempt).await;
    let begun = in_store::begin(&in_store::stores(engine, place), place, output.model, run).await;
    begun.map(drop).map_err(|error| BackendError::Unavailable {
        backend: "storage",
        what: "beginning the uploads of the artifacts".to_owned(),
        source: io::Error::other(error),
    })
}
