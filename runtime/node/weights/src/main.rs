//! Measures what the calls of the pallets cost and writes their weights: `runtime/build.sh --weights`.
//!
//! The runtime with its benchmarks runs as a node runs it, compiled, over a trie in memory. For each benchmark the
//! framework's regression makes a base and a slope for each component of the processor time that the calls took, of
//! the entries that they read and wrote, and of the storage proof. What an entry costs is the runtime's `DbWeight`.
//!
//!   waypost-weights RUNTIME.wasm PALLETS_FOLDER [STEPS] [REPEATS]

use codec::{Decode, Encode};
use frame_benchmarking::{
	Analysis, BenchmarkBatch, BenchmarkConfig, BenchmarkList, BenchmarkMetadata, BenchmarkParameter, BenchmarkResult,
	BenchmarkSelector,
};
use sc_client_db::BenchmarkingState;
use sc_executor::WasmExecutor;
use serde_json::Value;
use sp_core::traits::{CallContext, CodeExecutor, RuntimeCode, WrappedRuntimeCode};
use sp_externalities::{Extensions, Externalities};
use sp_keystore::{testing::MemoryKeystore, KeystoreExt};
use sp_runtime::{traits::BlakeTwo256, Storage};
use sp_runtime_interface::{pass_by::AllocateAndReturnPointer, runtime_interface};
use sp_state_machine::{BasicExternalities, OverlayedChanges, StateMachine};
use sp_wasm_interface::ExtendedHostFunctions;
use std::{error::Error, fmt::Write, fs, path::Path};

/// The benchmarks' clock is the processor time of this thread, so that other work on the machine is not measured.
#[runtime_interface(wasm_only)]
trait Benchmarking {
	fn current_time() -> AllocateAndReturnPointer<[u8; 16], 16> {
		processor_time_ns().to_le_bytes()
	}
}

fn processor_time_ns() -> u128 {
	let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
	// SAFETY: the clock writes one `timespec`, which is ours.
	let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
	assert_eq!(failed, 0, "the clock of a thread can be read");
	time.tv_sec as u128 * 1_000_000_000 + time.tv_nsec as u128
}

type Hosts = ExtendedHostFunctions<
	(sp_io::SubstrateHostFunctions, frame_benchmarking::benchmarking::HostFunctions),
	benchmarking::HostFunctions,
>;
type Components = Vec<(BenchmarkParameter, u32)>;
type Failure = Box<dyn Error>;

struct Bench {
	code: Vec<u8>,
	executor: WasmExecutor<Hosts>,
	genesis: Storage,
}

impl Bench {
	fn new(code: Vec<u8>) -> Result<Self, Failure> {
		let executor = WasmExecutor::<Hosts>::builder().build();
		let mut bench = Self { code, executor, genesis: Storage::default() };
		let mut config = bench.preset(None)?;
		merge(&mut config, bench.preset(Some("development"))?);
		let mut state = BasicExternalities::new_empty();
		let built = bench.call_on(&mut state, "GenesisBuilder_build_state", &serde_json::to_vec(&config)?.encode())?;
		Result::<(), String>::decode(&mut &built[..])??;
		bench.genesis = state.into_storages();
		Ok(bench)
	}

	/// Without a name, the values of what a preset leaves out.
	fn preset(&self, name: Option<&str>) -> Result<Value, Failure> {
		let reply = self.call_on(&mut BasicExternalities::new_empty(), "GenesisBuilder_get_preset", &name.encode())?;
		let text = Option::<Vec<u8>>::decode(&mut &reply[..])?.ok_or("the runtime lacks a preset")?;
		Ok(serde_json::from_slice(&text)?)
	}

	fn runtime_code<'a>(&self, code: &'a WrappedRuntimeCode) -> RuntimeCode<'a> {
		RuntimeCode { code_fetcher: code, heap_pages: None, hash: vec![0] }
	}

	fn call_on(&self, state: &mut dyn Externalities, method: &str, input: &[u8]) -> Result<Vec<u8>, Failure> {
		let code = WrappedRuntimeCode(self.code.as_slice().into());
		Ok(self.executor.call(state, &self.runtime_code(&code), method, input, CallContext::Offchain).0?)
	}

	/// Runs a call of the runtime over a trie that holds the first state. With `counted`, the trie counts entries and
	/// records proofs, and the times are of no use.
	fn call(&self, counted: bool, method: &str, input: &[u8]) -> Result<Vec<u8>, Failure> {
		let state = BenchmarkingState::<BlakeTwo256>::new(self.genesis.clone(), None, counted, counted)?;
		let mut changes = OverlayedChanges::default();
		let mut extensions = Extensions::default();
		extensions.register(KeystoreExt::new(MemoryKeystore::new()));
		let code = WrappedRuntimeCode(self.code.as_slice().into());
		let code = self.runtime_code(&code);
		let context = CallContext::Offchain;
		let reply =
			StateMachine::new(&state, &mut changes, &self.executor, method, input, &mut extensions, &code, context)
				.execute();
		reply.map_err(|error| format!("{method}: {error:?}").into())
	}

	fn lists(&self) -> Result<Vec<BenchmarkList>, Failure> {
		let metadata = self.call(false, "Benchmark_benchmark_metadata", &false.encode())?;
		// What the pallets store stands behind the lists.
		Ok(Decode::decode(&mut &metadata[..])?)
	}

	fn results(&self, counted: bool, config: BenchmarkConfig) -> Result<Vec<BenchmarkResult>, Failure> {
		let reply = self.call(counted, "Benchmark_dispatch_benchmark", &config.encode())?;
		let batches = Result::<Vec<BenchmarkBatch>, String>::decode(&mut &reply[..])??;
		Ok(batches.into_iter().flat_map(|batch| batch.results).collect())
	}
}

fn merge(into: &mut Value, from: Value) {
	match (into, from) {
		(Value::Object(into), Value::Object(from)) => {
			for (name, value) in from {
				merge(into.entry(name).or_insert(Value::Null), value);
			}
		},
		(into, from) => *into = from,
	}
}

struct Plan {
	steps: u32,
	repeats: u32,
}

/// Every component walks through its range while the others stand at their highest.
fn points(benchmark: &BenchmarkMetadata, steps: u32) -> Vec<Components> {
	let highest: Components = benchmark.components.iter().map(|(name, _, high)| (*name, *high)).collect();
	if highest.is_empty() {
		return vec![highest];
	}
	let mut points = Vec::new();
	for (at, (_, low, high)) in benchmark.components.iter().enumerate() {
		let steps = steps.min(high - low + 1).max(2);
		for step in 0..steps {
			let mut point = highest.clone();
			point[at].1 = low + ((high - low) as u64 * step as u64 / (steps as u64 - 1)) as u32;
			points.push(point);
		}
	}
	points
}

struct Measured {
	name: String,
	components: Vec<(String, u32, u32)>,
	time_ps: Analysis,
	reads: Analysis,
	writes: Analysis,
	proof_bytes: Analysis,
}

fn measure(
	bench: &Bench,
	list: &BenchmarkList,
	benchmark: &BenchmarkMetadata,
	plan: &Plan,
) -> Result<Measured, Failure> {
	let config = |selected_components: &Components, verify| BenchmarkConfig {
		pallet: list.pallet.clone(),
		instance: list.instance.clone(),
		benchmark: benchmark.name.clone(),
		selected_components: selected_components.clone(),
		verify,
		internal_repeats: 1,
	};
	let points = points(benchmark, plan.steps);
	let mut entries = Vec::new();
	for point in &points {
		bench.results(true, config(point, true))?;
		entries.extend(bench.results(true, config(point, false))?);
	}
	// All points in turns, and one alone for as long as a row of them: the machine may be slower for a while.
	let mut repeats = vec![Vec::new(); points.len()];
	for _ in 0..plan.repeats.max(plan.repeats * plan.steps / points.len() as u32) {
		for (point, results) in points.iter().zip(&mut repeats) {
			results.extend(bench.results(false, config(point, false))?);
		}
	}
	// Other work on it makes a repeat slower and never faster.
	let faster = repeats.into_iter().flat_map(|mut results| {
		results.sort_by_key(|result| result.extrinsic_time);
		results.truncate(results.len().div_ceil(2));
		results
	});
	let times: Vec<BenchmarkResult> = faster.collect();
	let name = String::from_utf8(benchmark.name.clone())?;
	let analysis = |results: &Vec<BenchmarkResult>, selector| {
		Analysis::min_squares_iqr(results, selector).ok_or_else(|| format!("{name} has no regression"))
	};
	let components = benchmark.components.iter().map(|(name, low, high)| (format!("{name:?}"), *low, *high));
	Ok(Measured {
		components: components.collect(),
		time_ps: analysis(&times, BenchmarkSelector::ExtrinsicTime)?,
		reads: analysis(&entries, BenchmarkSelector::Reads)?,
		writes: analysis(&entries, BenchmarkSelector::Writes)?,
		proof_bytes: analysis(&entries, BenchmarkSelector::ProofSize)?,
		name: name.clone(),
	})
}

/// `12345678` as `12_345_678`.
fn grouped(number: u128) -> String {
	let digits = number.to_string();
	let mut text = String::new();
	for (at, digit) in digits.chars().enumerate() {
		if at > 0 && (digits.len() - at) % 3 == 0 {
			text.push('_');
		}
		text.push(digit);
	}
	text
}

impl Measured {
	fn signature(&self, named: impl Fn(bool, &str) -> String) -> String {
		let arguments = self.components.iter().enumerate().map(|(at, (name, ..))| {
			let used = [&self.time_ps, &self.reads, &self.writes, &self.proof_bytes];
			format!("{}: u32", named(used.iter().any(|analysis| analysis.slopes[at] > 0), name))
		});
		format!("fn {}({}) -> Weight", self.name, arguments.collect::<Vec<_>>().join(", "))
	}

	fn implementation(&self) -> String {
		let mut text = String::new();
		for (name, low, high) in &self.components {
			writeln!(text, "\t/// `{name}` is from {} to {}.", grouped(u128::from(*low)), grouped(u128::from(*high)))
				.expect("a string takes text");
		}
		let kept = |used: bool, name: &str| if used { name.to_string() } else { format!("_{name}") };
		let mut lines =
			vec![format!("Weight::from_parts({}, {})", grouped(self.time_ps.base), grouped(self.proof_bytes.base))];
		for (at, (name, ..)) in self.components.iter().enumerate() {
			let (time, proof) = (self.time_ps.slopes[at], self.proof_bytes.slopes[at]);
			if time > 0 || proof > 0 {
				let slope = format!("Weight::from_parts({}, {})", grouped(time), grouped(proof));
				lines.push(format!(".saturating_add({slope}.saturating_mul({name}.into()))"));
			}
		}
		let reads_writes = [("reads", &self.reads), ("writes", &self.writes)];
		for (kind, analysis) in reads_writes {
			if analysis.base > 0 {
				lines.push(format!(".saturating_add(T::DbWeight::get().{kind}({}))", analysis.base));
			}
			for (at, (name, ..)) in self.components.iter().enumerate().filter(|(at, _)| analysis.slopes[*at] > 0) {
				let slope = format!("T::DbWeight::get().{kind}({}).saturating_mul({name}.into())", analysis.slopes[at]);
				lines.push(format!(".saturating_add({slope})"));
			}
		}
		let body = lines.join("\n\t\t\t");
		write!(text, "\t{} {{\n\t\t{body}\n\t}}\n", self.signature(kept)).expect("a string takes text");
		text
	}
}

/// The model's name, as the kernel has it.
fn processor() -> Result<String, Failure> {
	let text = fs::read_to_string("/proc/cpuinfo")?;
	let line = text.lines().find(|line| line.starts_with("model name")).ok_or("the kernel names no processor")?;
	Ok(line.split_once(": ").map_or(line, |(_, name)| name).to_string())
}

fn file_of(measured: &[Measured], plan: &Plan) -> Result<String, Failure> {
	let plain = |_, name: &str| name.to_string();
	let declarations: Vec<String> = measured.iter().map(|one| format!("\t{};\n", one.signature(plain))).collect();
	let implementations: Vec<String> = measured.iter().map(Measured::implementation).collect();
	Ok(format!(
		"//! What the calls of this pallet cost: generated by `runtime/build.sh --weights`, {} steps for each component and\n\
		//! the faster half of {} repeats or more; `benchmarking.rs` says what is run. A time is the processor time of one\n\
		//! core of a machine that calls itself \"{}\", in a host that is built as `build.sh --node` builds one.\n\
		\n\
		use core::marker::PhantomData;\n\
		use frame_support::{{traits::Get, weights::Weight}};\n\
		\n\
		pub trait WeightInfo {{\n{}}}\n\
		\n\
		pub struct Measured<T>(PhantomData<T>);\n\
		\n\
		impl<T: frame_system::Config> WeightInfo for Measured<T> {{\n{}}}\n",
		plan.steps,
		plan.repeats,
		processor()?,
		declarations.concat(),
		implementations.join("\n"),
	))
}

fn main() -> Result<(), Failure> {
	let mut arguments = std::env::args().skip(1);
	let usage = "usage: waypost-weights RUNTIME.wasm PALLETS_FOLDER [STEPS] [REPEATS]";
	let (runtime, folder) = (arguments.next().ok_or(usage)?, arguments.next().ok_or(usage)?);
	let steps = arguments.next().map_or(Ok(20), |text| text.parse())?;
	let repeats = arguments.next().map_or(Ok(20), |text| text.parse())?;
	if steps < 3 || repeats < 1 {
		return Err("a regression wants three steps or more".into());
	}
	let plan = Plan { steps, repeats };
	let bench = Bench::new(fs::read(runtime)?)?;
	for list in bench.lists()? {
		let pallet = String::from_utf8(list.pallet.clone())?;
		let mut measured = Vec::new();
		for benchmark in &list.benchmarks {
			measured.push(measure(&bench, &list, benchmark, &plan)?);
			let last = measured.last().expect("it was put there");
			println!("{pallet} {}: {} ps and slopes {:?}", last.name, last.time_ps.base, last.time_ps.slopes);
		}
		let crate_folder = pallet.trim_start_matches("pallet_").replace('_', "-");
		fs::write(Path::new(&folder).join(crate_folder).join("src/weights.rs"), file_of(&measured, &plan)?)?;
	}
	Ok(())
}
