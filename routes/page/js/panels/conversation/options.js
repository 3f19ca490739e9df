/**
 * What the person has set for the open conversation, as the store's `options`: `{profile, options}`. A new one begins
 * with the person's defaults; its first message sends them, and the conversation keeps them.
 */

import { get } from "../../feed/api.js";

const NONE = { profile: null, options: {}, plan: false };

export function start(page) {
  const { store } = page;
  const draw = () => {
    const session = store.get("session");
    const row = (store.get("sessions") ?? []).find(({ id }) => id === session);
    if (!session) store.set({ options: { ...(store.get("defaults") ?? NONE) } });
    else if (row) store.set({ options: { profile: row.profile, options: row.options } });
  };
  store.watch("session", draw);
  store.watch("sessions", () => store.get("session") && draw());
  store.watch("defaults", () => store.get("session") || draw());
  store.watch("connection", ({ state }) => {
    if (state !== "open" || store.get("defaults")) return;
    get("/preferences").then(
      (defaults) => store.set({ defaults }),
      () => null, // the next connection asks again
    );
  });
}

/** The number of values that differ from those of the server. */
export const changedValues = ({ profile, options } = NONE) => Object.keys(options).length + (profile ? 1 : 0);

/** The fields of POST /chat for the first message of a conversation with these options. */
export function fieldsOf({ profile, options: { instructions, ...others } }) {
  return { profile, ...(instructions && { system: instructions }), ...others };
}
