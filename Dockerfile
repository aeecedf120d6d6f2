# Three stages: build the executable, start it once and check its readiness, and create an image with only the
# executable, which a user without rights runs. Base images are named by their digests: `docker buildx imagetools inspect
# debian:12-slim` prints the newest.

FROM node:22-bookworm-slim@sha256:48e4b67d85f87bd551df43704e24d252f56cc5f8e9718841aace50f19948f0f9 AS build
RUN npm install --global bun@1.4.5
WORKDIR /build
COPY package.json bun.lock bunfig.toml ./
COPY packaging ./packaging
RUN bun install --frozen-lockfile
COPY tsconfig.json build.ts ./
COPY src ./src
# What the program writes out again: examples of a unit and a proxy, and the first state of a chain.
COPY examples ./examples
COPY runtime/artifacts ./runtime/artifacts
RUN bun build.ts

FROM debian:12-slim@sha256:abd67ffcfa541b485a3dff59865ab629aa048a6c613e639d36e7456b0b229241 AS smoke
COPY --from=build /build/dist/waypost /usr/local/bin/waypost
COPY examples/container.toml /etc/waypost/waypost.toml
RUN mkdir /data && waypost config check --config /etc/waypost/waypost.toml \
  && (waypost serve --config /etc/waypost/waypost.toml & echo $! > /tmp/pid) \
  && timeout 20 sh -c 'until waypost health http://127.0.0.1:7400; do sleep 0.2; done' \
  && kill "$(cat /tmp/pid)" && touch /smoke-passed

FROM debian:12-slim@sha256:abd67ffcfa541b485a3dff59865ab629aa048a6c613e639d36e7456b0b229241
# Ties this stage to the smoke test: without it the image is not built.
COPY --from=smoke /smoke-passed /usr/share/doc/waypost/smoke-passed
COPY --from=build /build/dist/waypost /usr/local/bin/waypost
COPY LICENSE /usr/share/doc/waypost/LICENSE
COPY examples/container.toml /etc/waypost/waypost.toml
RUN groupadd --gid 7400 waypost \
  && useradd --uid 7400 --gid 7400 --no-create-home --home-dir /data --shell /usr/sbin/nologin waypost \
  && mkdir /data && chown 7400:7400 /data
USER 7400:7400
WORKDIR /data
VOLUME /data
EXPOSE 7400
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s CMD ["waypost", "health", "http://127.0.0.1:7400"]
ENTRYPOINT ["waypost"]
CMD ["serve", "--config", "/etc/waypost/waypost.toml"]
