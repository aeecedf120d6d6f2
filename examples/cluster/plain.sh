#!/bin/sh
# The cluster of compose.yaml as plain commands on one machine, for trials: PostgreSQL with a synchronous standby, and
# pg_auto_failover, whose monitor promotes it; nats-server, two nodes and a proxy. All on the loopback interface and with
# everything in one folder.
#
#   ./plain.sh start [folder]      starts all of it; ./plain.sh stop [folder] ends it
#   ./plain.sh failover [folder]   kills the primary with SIGKILL, waits until the cluster serves, and starts the old
#                                  primary again, which becomes the standby; prints how long each took
#
# Needs: waypost, and Debian's packages postgresql, pg-auto-failover-cli, postgresql-15-auto-failover, nats-server and
# caddy. Ports: see below; those of the first start are kept in the folder and hold from then on.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
command=${1:-start}
mkdir -p "${2:-cluster}"
dir=$(cd "${2:-cluster}" && pwd)
waypost=${WAYPOST:-waypost}
public=${PUBLIC_PORT:-7400} a=${A_PORT:-7410} b=${B_PORT:-7420} sql=${SQL_PORT:-7430} nats=${NATS_PORT:-7440}
if [ -f "$dir/ports" ]; then
  . "$dir/ports"
elif [ "$command" = start ]; then
  echo "public=$public a=$a b=$b sql=$sql nats=$nats" >"$dir/ports"
fi
pg=${PG_BIN:-$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)}

# PostgreSQL refuses root.
as=""
if [ "$(id -u)" = 0 ]; then as="runuser -u postgres --"; fi
use_postgres() {
  state="$dir/state"
  export PATH="$pg:$PATH" PGHOST="$state" PG_REGRESS_SOCK_DIR="$state"
  export XDG_CONFIG_HOME="$state" XDG_DATA_HOME="$state" XDG_RUNTIME_DIR="$state"
  cd /
}
as_postgres() (
  use_postgres
  $as "$@"
)

# background <name> <command...>: keeps its process id, which is that of its group too, and what it prints.
background() {
  name=$1
  shift
  setsid nohup "$@" >"$dir/$name.log" 2>&1 </dev/null &
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

monitor_port=$((sql + 2))
monitor_url="postgres://autoctl_node@127.0.0.1:$monitor_port/pg_auto_failover"
ask() {
  as_postgres psql -h 127.0.0.1 -p "$1" -U "$2" -Atc "$3" "$4"
}
# is_primary <port>: a server answers there that takes writes.
is_primary() {
  [ "$(ask "$1" waypost "select pg_is_in_recovery()" waypost 2>/dev/null)" = f ]
}
# is_followed: the primary has a standby, and waits for it before it answers a commit.
is_followed() {
  [ "$(ask "$monitor_port" autoctl_node "select string_agg(reportedstate::text, ' ' order by reportedstate::text)
    from pgautofailover.node" pg_auto_failover)" = "primary secondary" ]
}

# run_database <name>: pg_auto_failover starts the server and keeps it running.
run_database() (
  use_postgres
  background "$1" $as pg_autoctl run --pgdata "$dir/database/$1"
)

# new_database <kind> <name> <port> <more...>
new_database() {
  kind=$1 name=$2 port=$3
  shift 3
  if [ -d "$dir/database/$name" ]; then return; fi
  as_postgres pg_autoctl create "$kind" --pgdata "$dir/database/$name" --pgport "$port" --hostname 127.0.0.1 \
    --auth trust --no-ssl "$@" >"$dir/$name-new.log" 2>&1
}

start_database() {
  mkdir -p "$dir/database" "$dir/state"
  if [ "$(id -u)" = 0 ]; then chown postgres "$dir/database" "$dir/state"; fi
  if [ ! -d "$dir/database/monitor" ]; then
    new_database monitor monitor "$monitor_port"
    # How fast a dead primary is noticed. Leave the defaults, 20 s, where networks fail for seconds.
    for setting in health_check_period=1000 health_check_timeout=1000 health_check_retry_delay=500 \
      node_considered_unhealthy_timeout=3000 primary_demote_timeout=1000; do
      echo "pgautofailover.$setting" | as_postgres tee -a "$dir/database/monitor/postgresql.conf" >/dev/null
    done
  fi
  run_database monitor
  until_works ask "$monitor_port" autoctl_node "select 1" pg_auto_failover
  for name in first second; do
    new_database postgres $name "$sql" --name $name --username waypost --dbname waypost --listen 127.0.0.1 \
      --monitor "$monitor_url"
    run_database $name
    until_works ask "$sql" waypost "select 1" waypost
    sql=$((sql + 1))
  done
  sql=$((sql - 2))
  # From here on, a commit is answered when both have it.
  until_works is_followed
}

# has_ended <process>: it does, within 20 s.
has_ended() {
  for _ in $(seq 200); do
    if ! kill -0 "$1" 2>/dev/null; then return; fi
    sleep 0.1
  done
  return 1
}

# stop_database <name>: a keeper that has died stops nothing and leaves its server.
stop_database() {
  keeper=$(cat "$dir/$1.pid" 2>/dev/null || true)
  as_postgres pg_autoctl stop --pgdata "$dir/database/$1" --fast >/dev/null 2>&1 || true
  if [ -n "$keeper" ] && ! has_ended "$keeper"; then kill -9 "-$keeper" 2>/dev/null || true; fi
  server=$(head -1 "$dir/database/$1/postmaster.pid" 2>/dev/null || true)
  if [ -n "$server" ] && kill -0 "$server" 2>/dev/null; then
    as_postgres pg_ctl stop --pgdata "$dir/database/$1" --mode fast --timeout 20 >/dev/null 2>&1 || kill -9 "$server"
  fi
  rm -f "$dir/$1.pid"
}

# Settings of this machine come before those of node.toml.
export WAYPOST_STORES__MAIN__URLS="[\"postgres://waypost@127.0.0.1:$sql/waypost\", \"postgres://waypost@127.0.0.1:$((sql + 1))/waypost\"]"
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
  cp "$here/node.toml" "$dir/node.toml"
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
  if is_primary "$sql"; then
    dead=first other=second port=$((sql + 1))
  elif is_primary "$((sql + 1))"; then
    dead=second other=first port=$sql
  else
    echo "no primary answers at port $sql or $((sql + 1)): nothing was killed" >&2
    exit 1
  fi
  echo "the primary is $dead, and $other its standby"
  begun=$(date +%s%3N)
  kill -9 "-$(cat "$dir/$dead.pid")" "$(as_postgres head -1 "$dir/database/$dead/postmaster.pid")"
  until_works ask "$port" waypost "create temporary table writable ()" waypost
  echo "promoted after $(($(date +%s%3N) - begun)) ms"
  until_works curl -fsS "http://127.0.0.1:$public/readyz"
  echo "served after $(($(date +%s%3N) - begun)) ms"
  run_database "$dead"
  until_works is_followed
  echo "followed by $dead after $(($(date +%s%3N) - begun)) ms"
  ;;
stop)
  for name in proxy node-a node-b nats; do
    if [ -f "$dir/$name.pid" ]; then kill "$(cat "$dir/$name.pid")" 2>/dev/null || true; fi
    rm -f "$dir/$name.pid"
  done
  for name in second first monitor; do
    stop_database "$name"
  done
  ;;
*)
  echo "start, stop or failover" >&2
  exit 2
  ;;
esac
