//! Asking a worker, and waiting for its answer, each within bounds.

use firsthop_shared::control::ControlCode;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::WorkerHandle;
use super::refusal::Refusal;
use crate::limits;
use crate::worker::Command;

pub(crate) fn submit(worker: &WorkerHandle, command: Command) -> Result<(), Refusal> {
    worker.commands.try_send(command).map_err(|error| {
        let message = match error {
            mpsc::error::TrySendError::Full(_) => "the worker has too many commands waiting",
            mpsc::error::TrySendError::Closed(_) => "the worker has stopped",
        };
        Refusal::new(ControlCode::Full, message)
    })
}

pub(crate) async fn wait<T>(result: oneshot::Receiver<T>) -> Result<T, Refusal> {
    match timeout(limits::CONTROL_TIMEOUT, result).await {
        Ok(Ok(value)) => Ok(value),
        _ => Err(Refusal::new(
            ControlCode::Internal,
            "the worker did not answer in time",
        )),
    }
}
