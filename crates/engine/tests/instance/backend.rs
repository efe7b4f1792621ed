//! The local backend passes the suite of all backends, with real supervisors.

use trainyard_engine::backend::conformance;
use trainyard_engine::backend::local::LocalBackend;

use super::case::supervisor;

#[tokio::test]
async fn the_local_backend_conforms() {
    let program = supervisor();
    conformance::all(&LocalBackend::new(program.clone()), &LocalBackend::new(program)).await;
}
