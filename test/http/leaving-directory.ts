/** A Directory that goes away in the middle of what a client does. */

/** A Directory before the nodes at `url` that is away after so many calls that change something. */
export function leavingDirectory(at: { readonly url: string }, writes: number) {
  let left = writes;
  let isAway = false;
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch: async (request) => {
      const { pathname, search } = new URL(request.url);
      const { method, headers } = request;
      if (method !== "GET") isAway ||= left-- === 0;
      if (isAway) return Response.json({ code: "not_here" }, { status: 404 });
      const body = method === "GET" ? null : await request.bytes();
      return fetch(`${at.url}${pathname}${search}`, { method, headers, body });
    },
  });
  const leave = () => {
    isAway = true;
  };
  const comeBack = () => {
    isAway = false;
  };
  return { url: `http://127.0.0.1:${server.port}`, leave, comeBack, stop: () => server.stop(true) };
}
