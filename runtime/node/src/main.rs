//! The node of a Waypost network: the command line and the first states it knows by name. It carries the
//! kept runtime, so a chain needs this program and the keys of its authorities, nothing else.

mod api;
mod service;

use clap::Parser;
use sc_chain_spec::GenesisConfigBuilderRuntimeCaller;
use sc_cli::SubstrateCli;
use sc_network::config::NetworkBackendType;
use sc_service::{ChainType, GenericChainSpec, Properties};

const RUNTIME: &[u8] = include_bytes!("../../artifacts/waypost-runtime.compact.compressed.wasm");

#[derive(Debug, Parser)]
struct Cli {
	#[command(subcommand)]
	subcommand: Option<Subcommand>,

	#[command(flatten)]
	run: sc_cli::RunCmd,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
	/// Make, read and insert keys.
	#[command(subcommand)]
	Key(sc_cli::KeySubcommand),
	/// Print a specification: a preset's by name, to be edited, or the raw form of a file (`--raw`).
	ExportChainSpec(sc_cli::ExportChainSpecCmd),
	/// Remove the whole chain from the disk.
	PurgeChain(sc_cli::PurgeChainCmd),
}

impl SubstrateCli for Cli {
	fn impl_name() -> String {
		"Waypost Node".into()
	}

	fn impl_version() -> String {
		env!("CARGO_PKG_VERSION").into()
	}

	fn description() -> String {
		env!("CARGO_PKG_DESCRIPTION").into()
	}

	fn author() -> String {
		"The Waypost authors".into()
	}

	fn support_url() -> String {
		"docs/chain.md".into()
	}

	fn copyright_start_year() -> i32 {
		2026
	}

	fn load_spec(&self, id: &str) -> Result<Box<dyn sc_service::ChainSpec>, String> {
		Ok(Box::new(match id {
			"dev" | "development" => preset("Waypost Development", "waypost_dev", ChainType::Development, "development")?,
			"" | "local" | "local_testnet" => preset("Waypost Local", "waypost_local", ChainType::Local, "local_testnet")?,
			path => GenericChainSpec::from_json_file(path.into())?,
		}))
	}
}

/// The specification of a chain that starts with the kept runtime and one of its presets. The state stands
/// in it as the runtime's own members, which a community edits before it makes the raw form.
fn preset(name: &str, id: &str, kind: ChainType, preset: &str) -> Result<GenericChainSpec, String> {
	let patch = <GenesisConfigBuilderRuntimeCaller>::new(RUNTIME).get_named_preset(Some(&preset.to_string()))?;
	let mut properties = Properties::new();
	properties.insert("ss58Format".into(), 42.into());
	properties.insert("tokenDecimals".into(), 12.into());
	properties.insert("tokenSymbol".into(), "UNIT".into());
	Ok(GenericChainSpec::builder(RUNTIME, None)
		.with_name(name)
		.with_id(id)
		.with_chain_type(kind)
		.with_properties(properties)
		.with_genesis_config_patch(patch)
		.build())
}

fn main() -> sc_cli::Result<()> {
	let cli = Cli::from_args();
	match &cli.subcommand {
		Some(Subcommand::Key(command)) => command.run(&cli),
		Some(Subcommand::ExportChainSpec(command)) => command.run(cli.load_spec(&command.chain)?),
		Some(Subcommand::PurgeChain(command)) => {
			cli.create_runner(command)?.sync_run(|config| command.run(config.database))
		},
		None => cli.create_runner(&cli.run)?.run_node_until_exit(|config| async move {
			match config.network.network_backend {
				NetworkBackendType::Litep2p => service::start(config).map_err(sc_cli::Error::Service),
				NetworkBackendType::Libp2p => Err("this node is built for the network backend litep2p".into()),
			}
		}),
	}
}
