//! Whether a credential with a valid signature is accepted: it must be for this cluster, not expired, and from the right host.
//! The shells check this before they pass an order to the core.

use garrick_model::{messages::node::JobCredential, time::Timestamp};

/// Is the credential valid for a start in this cluster, now?
pub fn is_valid(credential: &JobCredential, cluster: &str, now: Timestamp) -> Result<(), String> {
    if credential.cluster != cluster {
        Err(format!("it is for cluster {}, this is {cluster}", credential.cluster))
    } else if credential.expires < now {
        Err(format!("it expired (job {})", credential.job))
    } else {
        Ok(())
    }
}

/// A step manager may only start shepherds for runs whose batch host is the node that it authenticated as.
pub fn is_from_batch_host(credential: &JobCredential, node: &str) -> Result<(), String> {
    match credential.nodes.first() {
        Some(first) if first.name == node => Ok(()),
        _ => Err(format!("node {node} is not the batch host of job {}", credential.job)),
    }
}
