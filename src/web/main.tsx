/** The entry of the chat app. */
import { render } from "preact";
import { App } from "./app.tsx";
import { keepInstalled } from "./install.ts";
import { start, update } from "./session.ts";

const place = document.getElementById("app");
if (place !== null) render(<App />, place);
void start();
// An app that can't be kept still works as a page.
void keepInstalled((takeNewVersion) => update({ takeNewVersion })).catch(() => undefined);
