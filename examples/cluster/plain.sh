#!/bin/sh
# The cluster of compose.yaml as plain commands on one machine, for trials: PostgreSQL with a synchronous standby,
# nats-server, two nodes and a proxy, all on the loopback interface and with everything in one folder.
#
#   ./plain.sh start [folder]      starts all of it; ./plain.sh stop [folder] ends it
#   ./plain.sh failover [folder]   kills the primary and promotes the standby; in service, Patroni, pg_auto_failover or
#                                  a managed database decides when, and keeps the old primary away
#
# Needs: waypost, postgresql, nats-server and caddy (Debian's packages of these names). Ports: see below.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
command=${1:-start}
mkdir -p "${2:-cluster}"
dir=$(cd "${2:-cluster}" && pwd)
waypost=${WAYPOST:-waypost}
public=${PUBLIC_PORT:-7400} a=${A_PORT:-7410} b=${B_PORT:-7420} sql=${SQL_PORT:-7430} nats=${NATS_PORT:-7440}
pg=${PG_BIN:-$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)}

# PostgreSQL refuses root.
as_postgres() {
  if [ "$(id -u)" = 0 ]; then (cd / && runuser -u postgres -- "$@"); else "$@"; fi
}

# background <name> <command...>: keeps its process id and what it prints.
background() {
  name=$1
  shift
  nohup "$@" >"$dir/$name.log" 2>&1 </dev/null &
  echo $! >"$dir/$name.pid"
}

# until_works <command...>: for at most a minute.
until_works() {
  for _ in $(seq 600); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.1
  done
  echo "did not come up: $*" >&2
  exit 1
}

# new_folder <folder>: true when it had to be made.
new_folder() {
  if [ -d "$dir/$1/data" ]; then return 1; fi
  mkdir -p "$dir/$1"
  if [ "$(id -u)" = 0 ]; then chown postgres "$dir/$1"; fi
}

# start_server <folder> <port>
start_server() {
  as_postgres "$pg/pg_ctl" -D "$dir/$1/data" -s -w -l "$dir/$1/log" \
    -o "-c listen_addresses=127.0.0.1 -c port=$2 -c unix_socket_directories=$dir/$1" start
}

start_database() {
  if new_folder postgres; then
    as_postgres "$pg/initdb" -D "$dir/postgres/data" -U waypost --auth=trust -E UTF8 --no-locale >/dev/null
  fi
  start_server postgres "$sql"
  if new_folder standby; then
    as_postgres "$pg/pg_basebackup" -h 127.0.0.1 -p "$sql" -U waypost -D "$dir/standby/data" -R -c fast
  fi
  start_server standby "$((sql + 1))"
  # From here on, a commit is answered when both have it.
  for change in "alter system set synchronous_standby_names = '*'" "select pg_reload_conf()"; do
    as_postgres "$pg/psql" -h 127.0.0.1 -p "$sql" -U waypost -qc "$change" postgres >/dev/null
  done
}

# Settings of this machine come before those of node.toml.
export WAYPOST_STORES__MAIN__URLS="[\"postgres://waypost@127.0.0.1:$sql/postgres\", \"postgres://waypost@127.0.0.1:$((sql + 1))/postgres\"]"
export WAYPOST_STORES__MAIN__BLOCK_TIME_MS=${BLOCK_TIME_MS:-1000}
export WAYPOST_BUS__SERVERS="[\"nats://127.0.0.1:$nats\"]"
# The proxy's address, and those of the nodes, so that you can choose one.
export WAYPOST_RELAY__PUBLIC_ENDPOINTS="[\"http://127.0.0.1:$public\", \"http://127.0.0.1:$a\", \"http://127.0.0.1:$b\"]"
export WAYPOST_CACHE__PUBLIC_ENDPOINTS=$WAYPOST_RELAY__PUBLIC_ENDPOINTS
export WAYPOST_RELAY__ALLOW_HTTP=true
export WAYPOST_RELAY__ALLOW_PRIVATE='["127.0.0.0/8"]'
export WAYPOST_SERVER__TRUSTED_PROXIES='["127.0.0.1"]'

start_node() {
  WAYPOST_SERVER__LISTEN="[\"127.0.0.1:$2\"]" WAYPOST_SERVER__ADMIN_LISTEN="[\"127.0.0.1:$(($2 + 1))\"]" \
    background "$1" "$waypost" serve --config "$dir/node.toml"
}

case $command in
start)
  start_database
  background nats nats-server --addr 127.0.0.1 --port "$nats"
  grep -v password_file "$here/node.toml" >"$dir/node.toml"
  "$waypost" storage migrate --config "$dir/node.toml"
  start_node node-a "$a"
  start_node node-b "$b"
  sed -e "s/^waypost.example.org/{\n  admin off\n  auto_https off\n}\nhttp:\/\/127.0.0.1:$public/" \
    -e "s/node-a:7400 node-b:7400/127.0.0.1:$a 127.0.0.1:$b/" "$here/Caddyfile" >"$dir/Caddyfile"
  background proxy caddy run --config "$dir/Caddyfile" --adapter caddyfile
  for port in "$a" "$b" "$public"; do until_works curl -fsS "http://127.0.0.1:$port/readyz"; done
  echo "The cluster runs: WAYPOST_URL=http://127.0.0.1:$public; node A is http://127.0.0.1:$a, node B http://127.0.0.1:$b."
  ;;
failover)
  as_postgres "$pg/pg_ctl" -D "$dir/postgres/data" -s -m immediate stop
  as_postgres "$pg/pg_ctl" -D "$dir/standby/data" -s -w promote
  until_works curl -fsS "http://127.0.0.1:$public/readyz"
  ;;
stop)
  for name in proxy node-a node-b nats; do
    if [ -f "$dir/$name.pid" ]; then kill "$(cat "$dir/$name.pid")" 2>/dev/null || true; fi
    rm -f "$dir/$name.pid"
  done
  for name in postgres standby; do as_postgres "$pg/pg_ctl" -D "$dir/$name/data" -s -m fast stop || true; done
  ;;
*)
  echo "start, stop or failover" >&2
  exit 2
  ;;
esac
