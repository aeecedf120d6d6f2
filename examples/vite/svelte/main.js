/**
 * A page with Svelte. `npm install <the packed SDK> svelte vite @sveltejs/vite-plugin-svelte`, and `npx vite` in this folder.
 */
import { mount } from "svelte";
import Page from "./Page.svelte";

mount(Page, { target: document.getElementById("page") });
