/** How a page comes to the next version of the app, over service workers that a test plays. */
import { expect, test } from "bun:test";
import { keepInstalled } from "../../../src/web/installed.ts";

type Given = {
  /** States of the worker that has the page, and of the one that is active. */
  readonly controller: ServiceWorkerState | null;
  readonly active: ServiceWorkerState | null;
};

const worker = (state: ServiceWorkerState) => Object.assign(new EventTarget(), { state });
type PlayedWorker = EventTarget & { state: ServiceWorkerState };

async function page({ controller, active }: Given) {
  const registration = Object.assign(new EventTarget(), {
    active: active === null ? null : worker(active),
    waiting: null as PlayedWorker | null,
    installing: null as PlayedWorker | null,
    update: async () => undefined,
  });
  const workers = Object.assign(new EventTarget(), {
    controller: controller === null ? null : worker(controller),
    register: async () => registration,
  });
  const seen: string[] = [];
  await keepInstalled({
    workers,
    script: "/worker.js",
    offer: () => void seen.push("offered"),
    reload: () => void seen.push("loaded anew"),
  });
  return {
    seen,
    /** A version comes and waits for the pages of the one before. */
    versionComes: () => {
      registration.installing = worker("installing");
      registration.dispatchEvent(new Event("updatefound"));
      registration.waiting = registration.installing;
      registration.installing.dispatchEvent(new Event("statechange"));
    },
    /** A worker takes the page. */
    claim: () => workers.dispatchEvent(new Event("controllerchange")),
  };
}

test("a page that the first worker has not claimed is offered the next version, and loads it", async () => {
  const { seen, versionComes, claim } = await page({ controller: null, active: "activated" });
  versionComes();
  expect(seen).toEqual(["offered"]);
  claim();
  expect(seen).toEqual(["offered", "loaded anew"]);
});

test("a page of a worker is offered the next version, and loads it", async () => {
  const { seen, versionComes, claim } = await page({
    controller: "activated",
    active: "activated",
  });
  versionComes();
  claim();
  expect(seen).toEqual(["offered", "loaded anew"]);
});

test("the first version of all is not offered, and begins with the page as it is", async () => {
  const { seen, versionComes, claim } = await page({ controller: null, active: null });
  versionComes();
  claim();
  expect(seen).toEqual([]);
  claim();
  expect(seen).toEqual(["loaded anew"]);
});

test("a page whose worker is just taking over is of the version before", async () => {
  const { seen } = await page({ controller: "activating", active: "activating" });
  expect(seen).toEqual(["loaded anew"]);
});
