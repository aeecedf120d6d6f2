# PostgreSQL with pg_auto_failover, from Debian's packages.
FROM debian:12-slim@sha256:abd67ffcfa541b485a3dff59865ab629aa048a6c613e639d36e7456b0b229241
RUN apt-get update \
  && apt-get install --yes --no-install-recommends pg-auto-failover-cli postgresql-15-auto-failover \
  && rm -rf /var/lib/apt/lists/*
ENV PATH=/usr/lib/postgresql/15/bin:$PATH PGDATA=/var/lib/postgresql/data \
  XDG_CONFIG_HOME=/var/lib/postgresql XDG_DATA_HOME=/var/lib/postgresql
USER postgres
ENTRYPOINT ["sh", "-c"]
