/**
 * The texts that `waypost init` writes beside a configuration. `examples/waypost.service` and
 * `examples/Caddyfile` are the same texts with example names; a test compares them.
 */

/** A hardened unit for systemd; `systemd-analyze security` rates it 1.5 ("OK"). */
export function unitFile({ config, data }: { readonly config: string; readonly data: string }): string {
  const isState = data.startsWith("/var/lib/");
  const state = isState
    ? [`StateDirectory=${data.slice("/var/lib/".length)}`, "StateDirectoryMode=0700"]
    : [`ReadWritePaths=${data}`];
  return `# A unit for systemd. Make the user first: useradd --system --home-dir ${data}
# --shell /usr/sbin/nologin waypost. Relative paths of the configuration start at WorkingDirectory.

[Unit]
Description=Waypost
Wants=network-online.target
After=network-online.target

[Service]
User=waypost
${state.join("\n")}
WorkingDirectory=${data}
ExecStart=/usr/local/bin/waypost serve --config ${config}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=2
# Longer than server.drain_timeout.
TimeoutStopSec=45
LimitNOFILE=65536
UMask=0077
# The native addon is unpacked into this private folder.
PrivateTmp=yes
PrivateDevices=yes
ProtectSystem=strict
ProtectHome=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
ProcSubset=pid
NoNewPrivileges=yes
CapabilityBoundingSet=
LockPersonality=yes
RemoveIPC=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM
# No MemoryDenyWriteExecute: the runtime compiles JavaScript to machine code.

[Install]
WantedBy=multi-user.target
`;
}

/** Caddy gets and renews the certificate by itself, and holds requests back while the node restarts. */
export function proxyFile(host: string, listen: string): string {
  return `# A proxy that ends TLS in front of all nodes. Caddy gets and renews the certificate by itself.

${host} {
  # At least limits.body_bytes_max.
  request_body {
    max_size 26MiB
  }
  reverse_proxy ${listen} {
    # A restart of the node is a short wait for clients, not a refusal.
    lb_try_duration 10s
    lb_try_interval 100ms
    # Streams of the Cache: nothing is held back.
    flush_interval -1
    # Replaces what a client claims about itself.
    header_up X-Forwarded-For {remote_host}
  }
}
`;
}
