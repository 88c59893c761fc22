//! This node's certificate, which is renewed over the existing link well before it expires, and the authorities that it trusts.

use garrick_model::messages::node::{ControllerToNode, NodeToController};
use garrick_transport::{IdentityStore, identity::request_for};
use rcgen::KeyPair;
use serde_bytes::ByteBuf;
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

/// See the module. Shared by the tasks of a node.
#[derive(Clone)]
pub struct Membership {
    identity: Arc<IdentityStore>,
    folder: PathBuf,
    /// Key (PEM) for which a certificate was asked.
    asked: Arc<Mutex<Option<String>>>,
}

impl Membership {
    /// Of the identity in that folder.
    pub fn new(identity: Arc<IdentityStore>, folder: PathBuf) -> Self {
        Self { identity, folder, asked: Arc::default() }
    }

    /// What this node has, for the controller.
    pub fn holds(&self) -> NodeToController {
        NodeToController::Holds { issuer: self.identity.issuer(), trusted: self.identity.trusted() }
    }

    /// It is time to ask for a new certificate.
    pub fn is_due(&self) -> bool {
        self.identity.renew_at() <= SystemTime::now()
    }

    /// A request for a certificate, for a key that is made for it.
    pub fn ask(&self) -> Option<NodeToController> {
        let made = KeyPair::generate().map_err(|e| e.to_string()).and_then(|key| {
            let request = request_for(&key).map_err(|e| e.to_string())?;
            Ok((key.serialize_pem(), request))
        });
        match made {
            Ok((key, request)) => {
                *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(key);
                Some(NodeToController::Renew { request: ByteBuf::from(request) })
            }
            Err(e) => {
                tracing::error!(error = e, "no request for a new certificate was made");
                None
            }
        }
    }

    /// Does it concern certificates?
    pub const fn concerns(frame: &ControllerToNode) -> bool {
        use ControllerToNode::{Certificate, RenewCertificate, Revoked};
        matches!(frame, RenewCertificate | Revoked { .. } | Certificate { .. })
    }

    /// What the controller says of certificates. What is to be answered.
    pub fn told(&self, frame: ControllerToNode) -> Option<NodeToController> {
        let renewed = matches!(frame, ControllerToNode::Certificate { .. });
        let outcome = match frame {
            ControllerToNode::RenewCertificate => return self.ask(),
            ControllerToNode::Revoked { list } => self.identity.set_revoked(&self.folder, list.as_deref()),
            ControllerToNode::Certificate { certificate, authorities } => {
                // Kept until it is answered: an answer to an earlier request is of another key, and an error.
                let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
                let renewed = self.identity.renew(&self.folder, &asked, &certificate, &authorities);
                renewed.inspect(|()| {
                    *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    tracing::info!("this node's certificate was renewed");
                })
            }
            _ => Ok(()),
        };
        if let Err(e) = outcome {
            tracing::error!(error = %e, "what the controller says of certificates");
            return None;
        }
        renewed.then(|| self.holds())
    }
}
