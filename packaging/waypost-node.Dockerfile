# The node of a community's chain: docker build -f packaging/waypost-node.Dockerfile -t waypost-node . in the repository.
# The first stage compiles 700 crates and needs 4 GB of memory; the image has only the program. The compiler is Rust's own
# archive, by the sum of its channel's manifest: static.rust-lang.org/dist/channel-rust-<version>.toml, `xz_hash` of `pkg.rust`.

FROM debian:12-slim@sha256:abd67ffcfa541b485a3dff59865ab629aa048a6c613e639d36e7456b0b229241 AS build
RUN apt-get update && apt-get install --yes --no-install-recommends \
    ca-certificates curl gcc libc6-dev protobuf-compiler xz-utils \
  && rm -rf /var/lib/apt/lists/*
RUN case "$(uname -m)" in \
    x86_64) sum=2e0338f18ecbaa4a0f631b9e80e8b8e26bb6fe77dd5454fba8a70cf96c1e84a1 ;; \
    aarch64) sum=094c9c36531911c5cc7dd6ab2d3069ab8dcd744d6239b0bda1387b243dfc391e ;; \
    *) echo "no sum for $(uname -m)" >&2; exit 1 ;; \
  esac \
  && host="$(uname -m)-unknown-linux-gnu" && folder="rust-1.95.0-$host" \
  && curl --proto '=https' -fsSL -o /tmp/rust.tar.xz "https://static.rust-lang.org/dist/2026-04-16/$folder.tar.xz" \
  && echo "$sum  /tmp/rust.tar.xz" | sha256sum --check \
  && tar -C /tmp -xf /tmp/rust.tar.xz \
  && "/tmp/$folder/install.sh" --components="rustc,cargo,rust-std-$host" --disable-ldconfig \
  && rm -rf /tmp/rust.tar.xz "/tmp/$folder"
WORKDIR /build
COPY runtime ./runtime
RUN cargo build --locked --release --manifest-path runtime/node/Cargo.toml --package waypost-node \
  && runtime/node/target/release/waypost-node --version

FROM debian:12-slim@sha256:abd67ffcfa541b485a3dff59865ab629aa048a6c613e639d36e7456b0b229241
COPY --from=build /build/runtime/node/target/release/waypost-node /usr/local/bin/waypost-node
COPY packaging/gpl-3.0.txt /usr/share/doc/waypost-node/LICENSE
RUN groupadd --gid 7401 waypost-node \
  && useradd --uid 7401 --gid 7401 --no-create-home --home-dir /data --shell /usr/sbin/nologin waypost-node \
  && mkdir /data && chown 7401:7401 /data
USER 7401:7401
VOLUME /data
# Peers, light clients. The RPC port is left to the operator: it must not face the internet.
EXPOSE 30333 30334
STOPSIGNAL SIGTERM
ENTRYPOINT ["waypost-node"]
CMD ["--base-path", "/data", "--database", "paritydb", "--chain", "/etc/waypost-node/network.raw.json", \
  "--listen-addr", "/ip4/0.0.0.0/tcp/30333", \
  "--listen-addr", "/ip4/0.0.0.0/tcp/30334/ws"]
