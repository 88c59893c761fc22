//! How the roster's effects are carried out in the controller. Its actor is at `/roster`.

use super::{
    actor::{Came, OwnerActor, OwnerMsg, Shell},
    agents::say_last,
    env::Env,
    fair,
    node::{NodeMsg, NodesMsg},
    partition::show_partitions,
    ports::AgentLink,
};
use crate::{
    license::account::counted_now,
    messages::node::NodeAsk,
    owner::{Out, Owner},
    roster::{
        core::{RosterAsk, RosterCore, RosterErrand, RosterInput, RosterShown, RosterTimer},
        nodes::{Roster, spoken_of},
    },
};
use garrick_model::{
    config::Config, messages::node::ControllerToNode, refusal::Refusal, time::Timestamp, view::NodeView,
};
use garrick_runtime::{ReplyTo, TimerKey};
use std::{cell::RefCell, collections::BTreeMap, convert::Infallible, rc::Rc, sync::Arc, time::Duration};

/// Messages of the owner of the roster.
pub type RosterMsg = OwnerMsg<RosterCore>;

/// The connections of nodes that their owners have released, by node and connection number.
pub type RosterHands = Rc<RefCell<BTreeMap<(String, u64), Arc<dyn AgentLink>>>>;

/// The actor.
pub fn actor(env: Arc<Env>) -> OwnerActor<RosterCore> {
    let make = |env: &Env| {
        let (nodes, partitions) = (env.committed.dynamic_nodes(), env.committed.partition_changes());
        let saved = Roster::restored(env.config_file(), nodes, partitions);
        let host = Arc::clone(&env.ports.host);
        Some(RosterCore::new(saved, env.told_roster(), Arc::new(move |name| host.may_be_named(name))))
    };
    OwnerActor::new(make, RosterHands::default(), env).behind_all_appended(true)
}

/// Removes views at the indices of nodes that are gone.
fn clear_board(env: &Env, config: &Config) {
    let board = &env.boards.nodes;
    for (index, _) in board.entries() {
        if config.node_at(index).is_none() {
            board.remove(&index);
        }
    }
}

/// Publishes nodes at their new indices, until their owners do so.
fn show_in_new_places(env: &Env, config: &Config) {
    let board = &env.boards.nodes;
    for view in board.list() {
        if let Some(node) = config.node(&view.name).filter(|node| node.index != view.index) {
            board.publish(node.index, Arc::new(NodeView { index: node.index, ..(*view).clone() }));
        }
    }
}

/// Did partitions come or go since they were shown?
fn are_others(env: &Env, config: &Config) -> bool {
    let shown = env.boards.partitions.list();
    !shown.iter().map(|view| &view.config.name).eq(config.partitions.iter().map(|partition| &partition.name))
}

/// Asks the owners of nodes whether they release them.
async fn retire(
    supervisor: Option<garrick_runtime::Address<NodesMsg>>,
    nodes: Vec<String>,
    (mut gone, mut stay): (Vec<String>, Option<Refusal>),
) -> (Vec<String>, Option<Refusal>) {
    let mut asked = Vec::with_capacity(nodes.len());
    for name in nodes {
        let (reply, answer) = ReplyTo::channel();
        let message = Box::new(NodeMsg::Ask { ask: NodeAsk::Retire, reply });
        if let Some(supervisor) = &supervisor
            && supervisor.send(NodesMsg::Deliver { key: name.clone(), message }).await.is_err()
        {
            tracing::debug!(node = name, "message.to_ended_actor");
        }
        asked.push((name, answer));
    }
    for (name, answer) in asked {
        match answer.await {
            Ok(Ok(())) => gone.push(name),
            Ok(Err(refusal)) => stay = stay.or(Some(refusal)),
            Err(error) => stay = stay.or_else(|| Some(Refusal::Internal(format!("node {name}: {error}")))),
        }
    }
    (gone, stay)
}

impl Shell for RosterCore {
    type Ask = RosterAsk;
    type Gift = Infallible;
    type Hands = RosterHands;

    fn name(input: &RosterInput) -> &'static str {
        match input {
            RosterInput::Begun => "Begun",
            RosterInput::Asked { ask, .. } => Self::ask_name(ask),
            RosterInput::Seen(_) => "Seen",
            RosterInput::Retired { .. } => "Retired",
            RosterInput::Next => "Next",
        }
    }

    fn ask_name(ask: &RosterAsk) -> &'static str {
        match ask {
            RosterAsk::Join { .. } => "Join",
            RosterAsk::Create { .. } => "Create",
            RosterAsk::Delete { .. } => "Delete",
            RosterAsk::Place { .. } => "Place",
            RosterAsk::CreatePartition { .. } => "CreatePartition",
            RosterAsk::DeletePartition(_) => "DeletePartition",
            RosterAsk::Read(_) => "Read",
        }
    }

    fn key(timer: RosterTimer) -> TimerKey {
        match timer {}
    }

    fn asked(request: u64, ask: RosterAsk) -> RosterInput {
        RosterInput::Asked { request, ask }
    }

    fn begin(&mut self, _: &mut RosterHands, env: &Env, now: Timestamp, out: &mut Out<Self>) {
        self.handle(now, &mut env.ids.clone(), RosterInput::Begun, out);
    }

    fn keep(&self, env: &Env) {
        env.set_config_file(self.roster().base());
    }

    fn hand(&self, _: &mut RosterHands, gift: Infallible) {
        match gift {}
    }

    fn run(&self, ending: &mut RosterHands, env: &Env, errand: RosterErrand) -> Came<RosterInput> {
        match errand {
            RosterErrand::Look => {
                Came::Input(RosterInput::Seen(spoken_of(env.boards.jobs.list().iter().map(|job| &**job))))
            }
            RosterErrand::Retire { request, asked, nodes, gone, stay } => {
                let (links, ending) = (env.links.clone(), Rc::clone(ending));
                let answers = retire(env.nodes_supervisor(), nodes, (gone, stay));
                Came::Later(Box::pin(async move {
                    let (gone, stay) = answers.await;
                    let mut ending = ending.borrow_mut();
                    let mut with_link = |name: String| {
                        let link = links.get(&name);
                        if let Some((conn, link)) = &link {
                            ending.insert((name.clone(), *conn), Arc::clone(link));
                        }
                        (name, link.map(|(conn, _)| conn))
                    };
                    let gone = gone.into_iter().map(&mut with_link).collect();
                    Some(RosterInput::Retired { request, asked, gone, stay })
                }))
            }
            RosterErrand::Next => {
                env.set_told_roster(env.roster());
                Came::Input(RosterInput::Next)
            }
            RosterErrand::Spare { node, conn } => {
                ending.borrow_mut().remove(&(node, conn));
                Came::Nothing
            }
            RosterErrand::End { node, conn } => {
                tracing::info!(node, "node.deleted");
                let link = conn.and_then(|conn| ending.borrow_mut().remove(&(node, conn)));
                match link {
                    Some(link) => {
                        let said = say_last(link, ControllerToNode::Shutdown);
                        Came::Later(Box::pin(async move {
                            said.await;
                            None
                        }))
                    }
                    None => Came::Nothing,
                }
            }
            RosterErrand::Reread => {
                for (node, link) in env.links.list() {
                    if link.send(ControllerToNode::Reconfigure).is_err() {
                        tracing::debug!(node, "node.reconfigure_not_sent");
                    }
                }
                Came::Nothing
            }
        }
    }

    fn publish(&self, _: &mut RosterHands, env: &Env, shown: RosterShown) {
        let RosterShown { roster, read_again } = shown;
        let config = roster.config();
        env.set_roster(roster);
        if read_again {
            env.ids.limit(config.first_job_id, config.max_job_id);
            env.renew_accounts();
            env.renew_job_site();
            fair::configured(env, Timestamp::now());
            show_in_new_places(env, &config);
            show_partitions(env, &config, true);
            // What jobs hold of layers is counted again, by the new layers.
            let mut account = env.licenses.lock();
            account.configure(&config.licenses, &config.hres);
            account.recount(|job| counted_now(&config, &env.committed.job(job)?));
        }
        if !read_again && are_others(env, &config) {
            show_partitions(env, &config, false);
        }
        clear_board(env, &config);
    }

    fn try_again(after: Duration) -> Result<(), Refusal> {
        Err(Refusal::RetryAfter { after })
    }

    fn label(&self) -> String {
        "roster".to_owned()
    }
}
