/**
 * The chat page: an identity in IndexedDB, what arrives as a list, and a line to send. `index.html`
 * next to it loads the bundle (`bun build examples/chat/chat.ts --outfile examples/chat/chat.js`),
 * from any server of files (`python3 -m http.server --bind 127.0.0.1 --directory examples/chat`);
 * `?node=<url>&name=<identity>`.
 */
import { ClientError, indexedDbKeys, Waypost } from "waypost/client";

const asked = new URLSearchParams(location.search);
const element = <T extends HTMLElement>(id: string, kind: new () => T): T => {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`the page has no ${id}`);
  return found;
};
const status = element("status", HTMLElement);
const list = element("messages", HTMLUListElement);
const form = element("send", HTMLFormElement);
const to = element("to", HTMLInputElement);
const words = element("words", HTMLInputElement);

function show(line: string, kind: string): void {
  const item = document.createElement("li");
  item.className = kind;
  item.textContent = line;
  list.append(item);
  item.scrollIntoView();
}

const me = await Waypost.open({
  url: asked.get("node") ?? "http://127.0.0.1:7400",
  keys: indexedDbKeys(),
  name: asked.get("name") ?? "me",
});
element("did", HTMLElement).textContent = me.did;
me.on((event) => {
  if (event.type === "connected") status.textContent = "connected";
  if (event.type === "disconnected") status.textContent = "reconnecting";
  if (event.type === "unreadable")
    show(`a message that can't be opened: ${event.reason}`, "problem");
});

form.addEventListener("submit", (submitted) => {
  submitted.preventDefault();
  const text = words.value;
  words.value = "";
  void send(text);
});

async function send(text: string): Promise<void> {
  try {
    await me.send(to.value.trim(), text, { retries: 20 });
    show(text, "sent");
  } catch (error) {
    if (!(error instanceof ClientError)) throw error;
    show(`not sent: ${error.message}`, "problem");
    words.value = text;
  }
}

for await (const message of me.messages()) {
  if (to.value === "" && message.from !== null) to.value = message.from;
  const sender = message.verified ? "" : "unverified: ";
  show(`${sender}${message.text ?? `a file, ${message.name}`}`, "received");
  await message.ack();
}
