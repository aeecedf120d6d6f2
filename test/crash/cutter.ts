/**
 * A proxy between a client and a server that loses answers: the server executes the request, and
 * the connection ends before the client gets the answer.
 */
import type { Socket } from "bun";

export type Cutter = {
  readonly port: number;
  /**
   * The next so many requests that contain `text` are executed, and their answers are lost with the
   * connection.
   */
  readonly loseNextAnswers: (count: number, text?: string) => void;
  readonly lost: () => number;
  readonly close: () => Promise<void>;
};

type Pair = {
  client: Socket<Pair> | null;
  server: Socket<Pair> | null;
  early: Uint8Array[];
  losing: boolean;
};

/**
 * The first write of a kind on a connection says so; a connection that lost an answer begins again.
 */
const writeText = "as answer";

export async function openCutter(serverPort: number): Promise<Cutter> {
  let toLose = 0;
  let textToLose = writeText;
  let lost = 0;
  const end = (pair: Pair): void => {
    pair.client?.end();
    pair.server?.end();
  };
  const listener = Bun.listen<Pair>({
    hostname: "127.0.0.1",
    port: 0,
    socket: {
      async open(client) {
        const pair: Pair = { client, server: null, early: [], losing: false };
        client.data = pair;
        pair.server = await Bun.connect<Pair>({
          hostname: "127.0.0.1",
          port: serverPort,
          data: pair,
          socket: {
            data(_server, bytes) {
              // A ready server has committed: the last message of an answer says so.
              if (pair.losing && endsReady(bytes)) {
                lost++;
                end(pair);
              } else if (!pair.losing) pair.client?.write(bytes);
            },
            close: () => end(pair),
          },
        });
        for (const bytes of pair.early.splice(0)) pair.server.write(bytes);
      },
      data(client, bytes) {
        const pair = client.data;
        const text = Buffer.from(bytes).toString("latin1");
        if (toLose > 0 && text.includes(textToLose)) {
          toLose--;
          pair.losing = true;
        }
        if (pair.server === null) pair.early.push(new Uint8Array(bytes));
        else pair.server.write(bytes);
      },
      close: (client) => end(client.data),
    },
  });
  return {
    port: listener.port,
    loseNextAnswers: (count, given = writeText) => {
      textToLose = given;
      toLose = count;
    },
    lost: () => lost,
    close: async () => listener.stop(true),
  };
}

/** ReadyForQuery: `Z`, its length 5, and the state of the transaction. */
function endsReady(bytes: Uint8Array): boolean {
  const at = bytes.length - 6;
  return at >= 0 && bytes[at] === 0x5a && bytes[at + 4] === 5;
}
