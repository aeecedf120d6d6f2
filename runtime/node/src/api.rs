//! What the node asks of a runtime, as types. No runtime is compiled in: every call goes to the WebAssembly that
//! stands in the chain's own state, so one build of the node serves every version of the runtime.

use sp_consensus_aura::sr25519::AuthorityId as AuraId;
use sp_core::OpaqueMetadata;
use sp_inherents::{CheckInherentsResult, InherentData};
use sp_runtime::{
	generic,
	traits::{BlakeTwo256, Block as BlockT, NumberFor},
	transaction_validity::{TransactionSource, TransactionValidity},
	AccountId32, ApplyExtrinsicResult, ExtrinsicInclusionMode, OpaqueExtrinsic,
};

pub type Block = generic::Block<generic::Header<u32, BlakeTwo256>, OpaqueExtrinsic>;
pub type AccountId = AccountId32;
pub type Nonce = u32;

/// Stands for the runtime in the macro below; nothing makes one.
#[allow(dead_code)]
pub struct Runtime;

sp_api::impl_runtime_apis! {
	impl sp_api::Core<Block> for Runtime {
		fn version() -> sp_version::RuntimeVersion {
			unreachable!("the chain's own code answers")
		}

		fn execute_block(_: <Block as BlockT>::LazyBlock) {
			unreachable!("the chain's own code answers")
		}

		fn initialize_block(_: &<Block as BlockT>::Header) -> ExtrinsicInclusionMode {
			unreachable!("the chain's own code answers")
		}
	}

	impl sp_api::Metadata<Block> for Runtime {
		fn metadata() -> OpaqueMetadata {
			unreachable!("the chain's own code answers")
		}

		fn metadata_at_version(_: u32) -> Option<OpaqueMetadata> {
			unreachable!("the chain's own code answers")
		}

		fn metadata_versions() -> Vec<u32> {
			unreachable!("the chain's own code answers")
		}
	}

	impl sp_block_builder::BlockBuilder<Block> for Runtime {
		fn apply_extrinsic(_: <Block as BlockT>::Extrinsic) -> ApplyExtrinsicResult {
			unreachable!("the chain's own code answers")
		}

		fn finalize_block() -> <Block as BlockT>::Header {
			unreachable!("the chain's own code answers")
		}

		fn inherent_extrinsics(_: InherentData) -> Vec<<Block as BlockT>::Extrinsic> {
			unreachable!("the chain's own code answers")
		}

		fn check_inherents(_: <Block as BlockT>::LazyBlock, _: InherentData) -> CheckInherentsResult {
			unreachable!("the chain's own code answers")
		}
	}

	impl sp_transaction_pool::runtime_api::TaggedTransactionQueue<Block> for Runtime {
		fn validate_transaction(
			_: TransactionSource,
			_: <Block as BlockT>::Extrinsic,
			_: <Block as BlockT>::Hash,
		) -> TransactionValidity {
			unreachable!("the chain's own code answers")
		}
	}

	impl sp_consensus_aura::AuraApi<Block, AuraId> for Runtime {
		fn slot_duration() -> sp_consensus_aura::SlotDuration {
			unreachable!("the chain's own code answers")
		}

		fn authorities() -> Vec<AuraId> {
			unreachable!("the chain's own code answers")
		}
	}

	impl sp_consensus_grandpa::GrandpaApi<Block> for Runtime {
		fn grandpa_authorities() -> sp_consensus_grandpa::AuthorityList {
			unreachable!("the chain's own code answers")
		}

		fn current_set_id() -> sp_consensus_grandpa::SetId {
			unreachable!("the chain's own code answers")
		}

		fn submit_report_equivocation_unsigned_extrinsic(
			_: sp_consensus_grandpa::EquivocationProof<<Block as BlockT>::Hash, NumberFor<Block>>,
			_: sp_consensus_grandpa::OpaqueKeyOwnershipProof,
		) -> Option<()> {
			unreachable!("the chain's own code answers")
		}

		fn generate_key_ownership_proof(
			_: sp_consensus_grandpa::SetId,
			_: sp_consensus_grandpa::AuthorityId,
		) -> Option<sp_consensus_grandpa::OpaqueKeyOwnershipProof> {
			unreachable!("the chain's own code answers")
		}
	}

	impl sp_session::SessionKeys<Block> for Runtime {
		fn generate_session_keys(_: Option<Vec<u8>>) -> Vec<u8> {
			unreachable!("the chain's own code answers")
		}

		fn decode_session_keys(_: Vec<u8>) -> Option<Vec<(Vec<u8>, sp_core::crypto::KeyTypeId)>> {
			unreachable!("the chain's own code answers")
		}
	}

	impl frame_system_rpc_runtime_api::AccountNonceApi<Block, AccountId, Nonce> for Runtime {
		fn account_nonce(_: AccountId) -> Nonce {
			unreachable!("the chain's own code answers")
		}
	}
}
