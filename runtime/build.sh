#!/usr/bin/env bash
# Builds the runtime and writes the files in artifacts/ and canary/. Says what is missing when it can't.
#
#   ./build.sh                  build, and replace the files
#   ./build.sh --check          build, and compare with the files that are kept
#   ./build.sh --test           run the tests of the pallets
#   ./build.sh --spec PRESET    print the raw specification of a chain that starts with the kept runtime
#                               and this preset: development or local_testnet
#   ./build.sh --node           build the node of node/ and a runtime with the next version number, into
#                               node/target or the folder that NODE_TARGET_DIR names; neither is kept
#   ./build.sh --weights        measure the calls of the pallets, and write their weights.rs. It takes the
#                               processor time, so other work on the machine hardly changes it
#
# RUSTC names the compiler: it needs the sources of the standard library next to it, because the target
# comes without a compiled one. CARGO_TARGET_DIR, CARGO_BUILD_JOBS and CARGO_HOME are honoured.
set -euo pipefail
cd "$(dirname "$0")"

mode="${1:-}"
case "$mode" in
"" | --check | --test | --node | --weights) ;;
--spec) [ -n "${2:-}" ] || { echo "build.sh: --spec wants a preset" >&2; exit 2; } ;;
*) echo "usage: build.sh [--check | --test | --spec PRESET | --node | --weights]" >&2; exit 2 ;;
esac

target=wasm32v1-none
rustc_needed=1.84

missing=()
[ -n "${RUSTC:-}" ] || { [ -x /usr/bin/rustc ] && RUSTC=/usr/bin/rustc; } || RUSTC="$(command -v rustc || true)"
linker="$(command -v wasm-ld || command -v rust-lld || true)"
command -v cargo >/dev/null || missing+=("cargo (1.84 or later)")
command -v cc >/dev/null || missing+=("a C compiler, cc (Debian: gcc), for the tool that compresses the runtime")
[ -n "$linker" ] || missing+=("wasm-ld, the WebAssembly linker (Debian: lld)")
[ "$mode" != --node ] || command -v protoc >/dev/null || missing+=("protoc (Debian: protobuf-compiler)")
if [ -z "$RUSTC" ]; then
	missing+=("rustc $rustc_needed or later (Debian: rustc-web)")
else
	version="$("$RUSTC" --version | cut -d' ' -f2)"
	oldest="$(printf '%s\n' "$rustc_needed" "$version" | sort -V | head -n 1)"
	[ "$oldest" = "$rustc_needed" ] || missing+=("rustc $rustc_needed or later; $RUSTC is $version (Debian: rustc-web)")
	library="$("$RUSTC" --print sysroot)/lib/rustlib/src/rust/library"
	[ -e "$library/core/Cargo.toml" ] || missing+=("the sources of the standard library in $library (Debian: rust-web-src)")
fi
if [ "${#missing[@]}" -gt 0 ]; then
	echo "build.sh: missing:" >&2
	printf '  %s\n' "${missing[@]}" >&2
	exit 1
fi

export RUSTC
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"

if [ "$mode" = --test ]; then
	exec cargo test --locked --lib --package pallet-did-registry --package pallet-delivery-policy \
		--package pallet-authorities --package waypost-runtime --features waypost-runtime/try-runtime
fi
if [ "$mode" = --spec ]; then
	exec cargo run --locked --quiet --package waypost-runtime --bin artifacts -- \
		spec artifacts/waypost-runtime.compact.compressed.wasm "$2"
fi

if [ "$mode" = --node ]; then
	export CARGO_TARGET_DIR="${NODE_TARGET_DIR:-$PWD/node/target}"
	env -u RUSTC cargo build --locked --release --manifest-path node/Cargo.toml --package waypost-node
fi

# Panic messages hold paths of sources: they are mapped to the same ones on every machine.
cargo fetch --locked --quiet
remap=("--remap-path-prefix=$PWD=/runtime" "--remap-path-prefix=$library=/library")
for folder in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*; do
	remap+=("--remap-path-prefix=$folder=/crates")
done
flags=(-C link-arg=--export-table -C link-arg=--allow-undefined --cfg substrate_runtime "${remap[@]}")

built="$CARGO_TARGET_DIR/$target/wasm"
# Builds the runtime, with the features of the further arguments, and puts it under a name of its own.
build() {
	local name="$1"
	shift
	# The compiler is a stable one; building its standard library is what needs the switch.
	RUSTC_BOOTSTRAP=1 \
	CARGO_TARGET_WASM32V1_NONE_LINKER="$linker" \
	CARGO_TARGET_WASM32V1_NONE_RUSTFLAGS="${flags[*]}" \
		cargo build --locked -Zbuild-std=core,alloc --target "$target" --profile wasm \
		--package waypost-runtime --lib --no-default-features "$@"
	for section in runtime_version runtime_apis; do
		grep -q "$section" "$built/waypost_runtime.wasm" ||
			{ echo "build.sh: the runtime lacks the section $section" >&2; exit 1; }
	done
	cp "$built/waypost_runtime.wasm" "$built/$name.wasm"
}
if [ "$mode" = --node ]; then
	build next --features next
	cp "$built/next.wasm" "$CARGO_TARGET_DIR/waypost-next.wasm"
	echo "built $CARGO_TARGET_DIR/release/waypost-node and $CARGO_TARGET_DIR/waypost-next.wasm"
	exit 0
fi
if [ "$mode" = --weights ]; then
	build benchmarks --features runtime-benchmarks
	export CARGO_TARGET_DIR="${NODE_TARGET_DIR:-$PWD/node/target}"
	env -u RUSTC cargo run --locked --release --quiet --manifest-path node/Cargo.toml --package waypost-weights -- \
		"$built/benchmarks.wasm" pallets
	exit 0
fi
# The hash of the metadata, which the runtime compares with what a hardware wallet signed. Builds for tests have none.
hash="$(cargo run --locked --quiet --package waypost-runtime --bin artifacts -- metadata-hash)"
RUNTIME_METADATA_HASH="$hash" build runtime
build canary --features canary
# What breaks rules on command must not get into the runtime that is used.
grep -q ":canary" "$built/canary.wasm" || { echo "build.sh: the canary does not ask what to break" >&2; exit 1; }
! grep -q ":canary" "$built/runtime.wasm" || { echo "build.sh: the runtime holds the canary" >&2; exit 1; }

folder=.
[ "$mode" = --check ] && folder="$(mktemp -d)"
mkdir -p "$folder/artifacts" "$folder/canary"
cargo run --locked --quiet --package waypost-runtime --bin artifacts -- "$built"/{runtime,canary}.wasm "$folder"
echo "built with $("$RUSTC" --version)" | tee "$folder/artifacts/toolchain.txt"

if [ "$mode" = --check ]; then
	differs=0
	diff -rq --exclude=waypost-runtime.interface.json artifacts "$folder/artifacts" || differs=1
	diff -rq --exclude=README.md canary "$folder/canary" || differs=1
	if [ "$differs" = 0 ]; then
		echo "the kept files are what these sources give"
	else
		echo "build.sh: the kept files differ from what these sources give with this compiler" >&2
		exit 1
	fi
fi
