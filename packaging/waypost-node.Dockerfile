# The node of a community's chain: docker build -f packaging/waypost-node.Dockerfile -t waypost-node . in the repository.
# The first stage compiles 700 crates and needs 4 GB of memory; the image has only the program.

FROM rust:1.95-slim-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends protobuf-compiler \
  && rm -rf /var/lib/apt/lists/*
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
