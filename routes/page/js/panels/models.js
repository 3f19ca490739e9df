/** The available models, and the one selected for each conversation. */

import { get } from "../feed/api.js";
import { announce } from "../dom/elements.js";
import { writeStored, readStored } from "../dom/storage.js";
import { t } from "../dom/texts.js";

const CHOICE_KEY = "model."; // followed by the session: its selected model
const SOON_MS = 5_000; // between two requests for an unknown context window

let asked_at = 0;

export function start(page) {
  page.store.watch("session", (session) => page.store.set({ model: readStored(CHOICE_KEY + (session ?? "new")) }));
  page.store.watch("connection", ({ state }) => state === "open" && refresh(page));
  page.store.watch("server", () => page.store.get("endpoints") && refresh(page));
  page.store.watch("usage", (usage) => {
    if (page.store.get("me")?.role === "guest") return; // guests do not receive context windows
    if (!usage.restored && !windowOf(page, usage.model) && Date.now() - asked_at > SOON_MS) refresh(page);
  });
}

/** Fetches the available models. Never raises: on errors the previous list stays. */
export async function refresh(page) {
  asked_at = Date.now();
  try {
    page.store.set({ endpoints: await get("/endpoints") });
  } catch (error) {
    if (typeof error.status !== "number") throw error;
    if (!page.store.get("endpoints"))
      page.store.set({ endpoints: { endpoints: [], aliases: {}, problem: error.message } });
  }
}

/** Selects a model for the open conversation; null for the server's default. */
export function chooseModel(page, model) {
  writeStored(CHOICE_KEY + (page.store.get("session") ?? "new"), model);
  page.store.set({ model });
  announce(model ? t("models.chosen", { model }) : t("models.chosen.default"));
}

/** Moves the selection made before a conversation had an id to its session. */
export function moveChoice(session) {
  writeStored(CHOICE_KEY + session, readStored(`${CHOICE_KEY}new`));
  writeStored(`${CHOICE_KEY}new`, null);
}

/** Selects the same model, or another one, for a branch of a conversation. */
export function copyChoice(session, branch, model = readStored(CHOICE_KEY + session)) {
  writeStored(CHOICE_KEY + branch, model);
}

/** The model of the next message: `{name, endpoint}`. */
export function currentModel(page) {
  const server = page.store.get("server") ?? {};
  const known = page.store.get("endpoints");
  const picked = page.store.get("model");
  if (!picked) return { name: server.model, endpoint: server.endpoint };
  const meant = known?.aliases?.[picked] ?? picked;
  const [head, ...rest] = meant.split("/");
  if (rest.length && known?.endpoints.some(({ name }) => name === head))
    return { name: rest.join("/"), endpoint: head };
  return { name: meant, endpoint: "" };
}

/** The context window of a model in tokens; null if unknown. */
export function windowOf(page, model) {
  const found = page.store
    .get("endpoints")
    ?.endpoints.flatMap(({ name, models }) => models.map((one) => ({ ...one, of: name })));
  const fits = found?.filter((one) => one.window && one.name === model) ?? [];
  const { endpoint } = currentModel(page);
  return (fits.find(({ of }) => of === endpoint) ?? fits[0])?.window ?? null;
}
