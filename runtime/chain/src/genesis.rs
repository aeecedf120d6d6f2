//! The first states that a node can build of this runtime by name (`build-spec`, `chain-spec-builder`): what
//! a community starts from, with keys that everybody knows. `docs/chain.md` says what to put in their place.

use crate::{opaque::SessionKeys, AccountId, Balance, RuntimeGenesisConfig, UNIT};
use alloc::{vec, vec::Vec};
use frame_support::build_struct_json_patch;
use sp_consensus_aura::sr25519::AuthorityId as AuraId;
use sp_consensus_grandpa::AuthorityId as GrandpaId;
use sp_core::{ed25519, sr25519};
use sp_genesis_builder::{PresetId, DEV_RUNTIME_PRESET, LOCAL_TESTNET_RUNTIME_PRESET};

const ENDOWMENT: Balance = 1_000_000 * UNIT;

/// An account of the well-known development phrase: its sr25519 key, which is its Aura key as well, and its
/// ed25519 key for finality.
#[derive(Clone, Copy)]
pub struct Known {
	account: [u8; 32],
	grandpa: [u8; 32],
}

pub const ALICE: Known = Known {
	account: bytes("d43593c715fdd31c61141abd04a99fd6822c8558854ccde39a5684e7a56da27d"),
	grandpa: bytes("88dc3417d5058ec4b4503e0c12ea1a0a89be200fe98922423d4334014fa6b0ee"),
};
pub const BOB: Known = Known {
	account: bytes("8eaf04151687736326c9fea17e25fc5287613693c912909cb226aa4794f26a48"),
	grandpa: bytes("d17c2d7823ebf260fd138f2d7e27d114c0145d968b5ff5006125f2414fadae69"),
};
pub const CHARLIE: Known = Known {
	account: bytes("90b5ab205c6974c9ea841be688864633dc9ca8a357843eeacf2314649965fe22"),
	grandpa: bytes("439660b36c6c03afafca027b910b4fecf99801834c62a5e6006f27d978de234f"),
};

impl Known {
	pub(crate) fn account(&self) -> AccountId {
		self.account.into()
	}

	fn keys(&self) -> SessionKeys {
		SessionKeys {
			aura: AuraId::from(sr25519::Public::from_raw(self.account)),
			grandpa: GrandpaId::from(ed25519::Public::from_raw(self.grandpa)),
		}
	}
}

const fn bytes(digits: &str) -> [u8; 32] {
	let digits = digits.as_bytes();
	let mut bytes = [0; 32];
	let mut at = 0;
	while at < 32 {
		bytes[at] = digit(digits[2 * at]) * 16 + digit(digits[2 * at + 1]);
		at += 1;
	}
	bytes
}

const fn digit(text: u8) -> u8 {
	match text {
		b'0'..=b'9' => text - b'0',
		b'a'..=b'f' => text - b'a' + 10,
		_ => panic!("no hexadecimal digit"),
	}
}

/// The state in which these are the authorities; all three have money.
fn genesis(authorities: &[Known]) -> serde_json::Value {
	let accounts: Vec<AccountId> = authorities.iter().map(Known::account).collect();
	let endowed = [ALICE, BOB, CHARLIE].iter().map(|known| (known.account(), ENDOWMENT)).collect::<Vec<_>>();
	let keys = authorities.iter().map(|known| (known.account(), known.account(), known.keys())).collect::<Vec<_>>();
	build_struct_json_patch!(RuntimeGenesisConfig {
		balances: pallet_balances::GenesisConfig { balances: endowed },
		authorities: pallet_authorities::GenesisConfig { authorities: accounts },
		session: pallet_session::GenesisConfig { keys },
	})
}

pub fn preset(id: &PresetId) -> Option<Vec<u8>> {
	let patch = match id.as_ref() {
		DEV_RUNTIME_PRESET => genesis(&[ALICE]),
		LOCAL_TESTNET_RUNTIME_PRESET => genesis(&[ALICE, BOB, CHARLIE]),
		_ => return None,
	};
	serde_json::to_vec(&patch).ok()
}

pub fn preset_names() -> Vec<PresetId> {
	vec![PresetId::from(DEV_RUNTIME_PRESET), PresetId::from(LOCAL_TESTNET_RUNTIME_PRESET)]
}

/// All entries of the first state that a preset gives. A preset says what differs from the runtime's own.
#[cfg(feature = "std")]
pub fn first_state(preset_name: &str) -> Option<std::collections::BTreeMap<Vec<u8>, Vec<u8>>> {
	use sp_runtime::BuildStorage;
	let patch = serde_json::from_slice(&preset(&preset_name.into())?).expect("a preset is JSON");
	let mut whole = serde_json::to_value(RuntimeGenesisConfig::default()).expect("the first state is JSON");
	merge(&mut whole, patch);
	let config: RuntimeGenesisConfig = serde_json::from_value(whole).expect("a preset has the runtime's members");
	Some(config.build_storage().expect("the first state can be built").top)
}

#[cfg(feature = "std")]
fn merge(whole: &mut serde_json::Value, patch: serde_json::Value) {
	use serde_json::Value;
	match (whole, patch) {
		(Value::Object(whole), Value::Object(patch)) => {
			for (name, part) in patch {
				merge(whole.entry(name).or_insert(Value::Null), part);
			}
		},
		(whole, patch) => *whole = patch,
	}
}

#[cfg(test)]
mod tests {
	use super::*;
	use crate::{Aura, Authorities, Balances, DidRegistry, Grandpa, Runtime, Session, VERSION};
	use sp_core::storage::Storage;

	fn on(preset_name: &str, run: impl FnOnce()) {
		let top = first_state(preset_name).expect("the preset is known");
		sp_io::TestExternalities::new(Storage { top, ..Default::default() }).execute_with(run);
	}

	#[test]
	fn every_preset_has_authorities_that_make_and_finalize_blocks() {
		for (name, count) in [(DEV_RUNTIME_PRESET, 1), (LOCAL_TESTNET_RUNTIME_PRESET, 3)] {
			on(name, || {
				assert_eq!(pallet_aura::Authorities::<Runtime>::get().len(), count);
				assert_eq!(Grandpa::grandpa_authorities().len(), count);
				assert_eq!(Session::validators(), pallet_authorities::Authorities::<Runtime>::get().into_inner());
				assert_eq!(Balances::total_issuance(), 3 * ENDOWMENT);
				assert_eq!(Aura::slot_duration(), 6_000);
				assert!(!pallet_did_registry::PlainProofs::<Runtime>::get());
			});
		}
		assert_eq!(preset_names().len(), 2);
		assert!(first_state("another").is_none());
	}

	/// Fullness is what those who pay use. Calls with a proof have a tenth of a block for themselves.
	#[test]
	fn calls_that_nobody_pays_raise_no_fee() {
		use frame_support::{
			dispatch::{DispatchClass, GetDispatchInfo},
			traits::OnFinalize,
			weights::Weight,
		};
		let delete = crate::RuntimeCall::DidRegistry(pallet_did_registry::Call::apply_control_with_proof {
			signed_payload: Vec::new(),
			signature: Vec::new(),
			signer_key_id: Vec::new(),
		});
		assert_eq!(delete.get_dispatch_info().class, DispatchClass::Operational);
		let weights = crate::Weights::get();
		let unpaid = weights.get(DispatchClass::Operational).max_total.expect("it has a bound");
		let paid = weights.get(DispatchClass::Normal).max_total.expect("it has a bound");
		assert_eq!(unpaid.ref_time() * 15 / 2, paid.ref_time());
		// An upgrade is such a call: code three times as long as this one's must fit.
		let upgrade = crate::RuntimeCall::System(frame_system::Call::apply_authorized_upgrade { code: Vec::new() });
		let with_code = upgrade.get_dispatch_info().call_weight + Weight::from_parts(0, 1_200_000);
		assert!(upgrade.get_dispatch_info().class == DispatchClass::Operational && with_code.all_lt(unpaid));
		let multiplier_after = |class| {
			let mut multiplier = Default::default();
			on(DEV_RUNTIME_PRESET, || {
				crate::System::register_extra_weight_unchecked(paid, class);
				crate::TransactionPayment::on_finalize(1);
				multiplier = crate::TransactionPayment::next_fee_multiplier();
			});
			multiplier
		};
		assert_eq!(multiplier_after(DispatchClass::Operational), crate::MinimumMultiplier::get());
		assert!(multiplier_after(DispatchClass::Normal) > crate::MinimumMultiplier::get());
	}

	#[test]
	fn a_session_gets_a_changed_set_only() {
		use pallet_session::SessionManager;
		on(LOCAL_TESTNET_RUNTIME_PRESET, || {
			assert_eq!(<Authorities as SessionManager<AccountId>>::new_session(2), None);
		});
	}

	#[test]
	fn finality_begins_anew_without_the_authority_whose_keys_are_lost() {
		use frame_support::traits::OnFinalize;
		use pallet_authorities::Motion;
		on(LOCAL_TESTNET_RUNTIME_PRESET, || {
			crate::System::set_block_number(100);
			let carry = |motion: Motion<Runtime>| {
				for known in [ALICE, BOB] {
					let origin = crate::RuntimeOrigin::signed(known.account());
					Authorities::vote(origin, motion.clone()).expect("two of three are a majority");
				}
			};
			carry(Motion::Remove { authority: CHARLIE.account() });
			carry(Motion::RestartFinality { last_final: 40 });
			Session::rotate_session();
			assert!(Grandpa::pending_change().is_none());
			Session::rotate_session();
			let change = Grandpa::pending_change().expect("the session has another set");
			assert_eq!((change.forced, change.next_authorities.len()), (Some(40), 2));
			// It is done before a session can change the set again.
			assert!(change.delay < crate::SESSION_BLOCKS);
			Grandpa::on_finalize(100 + change.delay);
			assert_eq!(Grandpa::grandpa_authorities().len(), 2);
		});
	}

	#[test]
	fn a_record_costs_a_few_hundredths_of_a_unit() {
		// 10,000 millionths for the entry, and one for each byte (docs/chain.md).
		assert_eq!(DidRegistry::deposit(), (10_000 + 24_025) * UNIT / 1_000_000);
	}

	#[test]
	fn the_canary_has_another_name_than_the_runtime() {
		assert_eq!(VERSION.spec_name == "waypost", !cfg!(feature = "canary"));
	}
}
