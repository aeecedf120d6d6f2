//! The parts of a node and how they hang together: database and executor, pool, import of blocks, network,
//! RPC, and for an authority the writing (Aura) and the finalizing (GRANDPA) of blocks.

use crate::api::{AccountId, Block, Nonce, RuntimeApi};
use jsonrpsee::RpcModule;
use sc_client_api::BlockBackend;
use sc_consensus_aura::{CompatibilityMode, ImportQueueParams, SlotProportion, StartAuraParams};
use sc_consensus_grandpa::{GrandpaParams, SharedVoterState, VotingRulesBuilder};
use sc_network::{config::FullNetworkConfiguration, Litep2pNetworkBackend, NetworkBackend};
use sc_service::{
	build_network, error::Error, new_full_parts, new_wasm_executor, spawn_tasks, BuildNetworkParams, Configuration,
	KeystoreContainer, SpawnTasksParams, TaskManager, WarpSyncConfig,
};
use sc_transaction_pool_api::OffchainTransactionPoolFactory;
use sp_consensus_aura::{inherents::InherentDataProvider as Slot, sr25519::AuthorityPair, SlotDuration};
use sp_runtime::traits::Block as BlockT;
use sp_timestamp::InherentDataProvider as Timestamp;
use std::{sync::Arc, time::Duration};
use substrate_frame_rpc_system::{System, SystemApiServer};

type Hash = <Block as BlockT>::Hash;
type Net = Litep2pNetworkBackend;
type Client = sc_service::TFullClient<Block, RuntimeApi, sc_executor::WasmExecutor<sp_io::SubstrateHostFunctions>>;
type Backend = sc_service::TFullBackend<Block>;
type Chain = sc_consensus::LongestChain<Backend, Block>;
type Pool = sc_transaction_pool::TransactionPoolHandle<Block, Client>;
type Import = sc_consensus_grandpa::GrandpaBlockImport<Backend, Block, Client, Chain>;
type Link = sc_consensus_grandpa::LinkHalf<Block, Client, Chain>;

/// A proof of finality is kept every so many blocks at least; a node or light client that joins later starts
/// from the last one. An hour of blocks.
const JUSTIFICATION_BLOCKS: u32 = 600;
const GOSSIP: Duration = Duration::from_millis(333);

/// What every node has, whether it makes blocks or not.
struct Parts {
	client: Arc<Client>,
	backend: Arc<Backend>,
	tasks: TaskManager,
	keystore: KeystoreContainer,
	chain: Chain,
	pool: Arc<Pool>,
	import: Import,
	link: Link,
	queue: sc_consensus::DefaultImportQueue<Block>,
}

fn parts(config: &Configuration) -> Result<Parts, Error> {
	let executor = new_wasm_executor(&config.executor);
	let (client, backend, keystore, tasks) = new_full_parts::<Block, RuntimeApi, _>(config, None, executor)?;
	let client = Arc::new(client);
	let chain = Chain::new(backend.clone());
	let pool = sc_transaction_pool::Builder::new(
		tasks.spawn_essential_handle(),
		client.clone(),
		config.role.is_authority().into(),
	)
	.with_options(config.transaction_pool.clone())
	.with_prometheus(config.prometheus_registry())
	.build();
	let (import, link) =
		sc_consensus_grandpa::block_import(client.clone(), JUSTIFICATION_BLOCKS, &client, chain.clone(), None)?;
	let slot_duration = sc_consensus_aura::slot_duration(&*client)?;
	let queue = sc_consensus_aura::import_queue::<AuthorityPair, _, _, _, _, _>(ImportQueueParams {
		block_import: import.clone(),
		justification_import: Some(Box::new(import.clone())),
		client: client.clone(),
		create_inherent_data_providers: move |_, ()| async move { Ok(inherents(slot_duration)) },
		spawner: &tasks.spawn_essential_handle(),
		registry: config.prometheus_registry(),
		check_for_equivocation: Default::default(),
		telemetry: None,
		compatibility_mode: CompatibilityMode::None,
	})?;
	Ok(Parts { client, backend, tasks, keystore, chain, pool: Arc::from(pool), import, link, queue })
}

/// What a block says of its time: the slot by the clock, and the clock.
fn inherents(slot_duration: SlotDuration) -> (Slot, Timestamp) {
	let now = Timestamp::from_system_time();
	(Slot::from_timestamp_and_slot_duration(*now, slot_duration), now)
}

pub fn start(config: Configuration) -> Result<TaskManager, Error> {
	let Parts { client, backend, mut tasks, keystore, chain, pool, import, link, queue } = parts(&config)?;

	let registry = config.prometheus_registry().cloned();
	let mut net_config = FullNetworkConfiguration::<Block, Hash, Net>::new(&config.network, registry.clone());
	let metrics = <Net as NetworkBackend<Block, Hash>>::register_notification_metrics(registry.as_ref());
	let genesis = client.block_hash(0)?.ok_or_else(|| Error::Other("the chain has no first block".into()))?;
	let protocol_name = sc_consensus_grandpa::protocol_standard_name(&genesis, &config.chain_spec);
	let (votes, notification_service) = sc_consensus_grandpa::grandpa_peers_set_config::<Block, Net>(
		protocol_name.clone(),
		metrics.clone(),
		net_config.peer_store_handle(),
	);
	net_config.add_notification_protocol(votes);
	let warp_proofs = sc_consensus_grandpa::warp_proof::NetworkProvider::new(
		backend.clone(),
		link.shared_authority_set().clone(),
		Vec::new(),
	);
	let (network, system_rpc_tx, tx_handler_controller, sync) = build_network(BuildNetworkParams {
		config: &config,
		net_config,
		client: client.clone(),
		transaction_pool: pool.clone(),
		spawn_handle: tasks.spawn_handle(),
		import_queue: queue,
		block_announce_validator_builder: None,
		warp_sync_config: Some(WarpSyncConfig::WithProvider(Arc::new(warp_proofs))),
		block_relay: None,
		metrics,
	})?;

	let (role, force_authoring) = (config.role, config.force_authoring);
	let (name, finalizes) = (config.network.node_name.clone(), !config.disable_grandpa);
	let rpc_parts = (client.clone(), pool.clone());
	spawn_tasks(SpawnTasksParams {
		network: network.clone(),
		client: client.clone(),
		keystore: keystore.keystore(),
		task_manager: &mut tasks,
		transaction_pool: pool.clone(),
		rpc_builder: Box::new(move |_| rpc(rpc_parts.0.clone(), rpc_parts.1.clone())),
		backend,
		system_rpc_tx,
		tx_handler_controller,
		sync_service: sync.clone(),
		config,
		telemetry: None,
		tracing_execute_block: None,
	})?;

	// An authority that can neither write nor finalize blocks must stop, not pretend: both are essential.
	if role.is_authority() {
		let slot_duration = sc_consensus_aura::slot_duration(&*client)?;
		let aura = sc_consensus_aura::start_aura::<AuthorityPair, _, _, _, _, _, _, _, _, _, _>(StartAuraParams {
			slot_duration,
			client: client.clone(),
			select_chain: chain,
			block_import: import,
			proposer_factory: sc_basic_authorship::ProposerFactory::new(
				tasks.spawn_handle(),
				client,
				pool.clone(),
				registry.as_ref(),
				None,
			),
			create_inherent_data_providers: move |_, ()| async move { Ok(inherents(slot_duration)) },
			force_authoring,
			backoff_authoring_blocks: None::<()>,
			keystore: keystore.keystore(),
			sync_oracle: sync.clone(),
			justification_sync_link: sync.clone(),
			block_proposal_slot_portion: SlotProportion::new(2f32 / 3f32),
			max_block_proposal_slot_portion: None,
			telemetry: None,
			compatibility_mode: CompatibilityMode::None,
		})?;
		tasks.spawn_essential_handle().spawn_blocking("aura", Some("block-authoring"), aura);
	}
	if finalizes {
		let voter = sc_consensus_grandpa::run_grandpa_voter(GrandpaParams {
			config: sc_consensus_grandpa::Config {
				gossip_duration: GOSSIP,
				justification_generation_period: JUSTIFICATION_BLOCKS,
				name: Some(name),
				observer_enabled: false,
				keystore: role.is_authority().then(|| keystore.keystore()),
				local_role: role,
				telemetry: None,
				protocol_name,
			},
			link,
			network,
			sync: Arc::new(sync),
			notification_service,
			voting_rule: VotingRulesBuilder::default().build(),
			prometheus_registry: registry,
			shared_voter_state: SharedVoterState::empty(),
			telemetry: None,
			offchain_tx_pool_factory: OffchainTransactionPoolFactory::new(pool),
		})?;
		tasks.spawn_essential_handle().spawn_blocking("grandpa-voter", None, voter);
	}
	Ok(tasks)
}

/// The framework's own methods are always there; this adds the nonce of an account.
fn rpc(client: Arc<Client>, pool: Arc<Pool>) -> Result<RpcModule<()>, Error> {
	let mut module = RpcModule::new(());
	let system = SystemApiServer::<Hash, AccountId, Nonce>::into_rpc(System::new(client, pool));
	module.merge(system).map_err(|error| Error::Application(Box::new(error)))?;
	Ok(module)
}
