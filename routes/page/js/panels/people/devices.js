/** The browsers that stay signed in, of the person: each can be signed out, or all of them. */

import { get, remove } from "../../feed/api.js";
import { fill, h, stack } from "../../dom/elements.js";
import { actionButton, confirmButton, fillRows, Outcome } from "../../dom/forms.js";
import { locale, t } from "../../dom/more_texts.js";

const BROWSERS = [
  ["Edg/", "Edge"],
  ["OPR/", "Opera"],
  ["Firefox/", "Firefox"],
  ["Chrome/", "Chrome"],
  ["Safari/", "Safari"],
];
const SYSTEMS = ["Android", "iPhone", "iPad", "Windows", "Mac OS", "CrOS", "Linux"];

/** The list. Raises Refused. */
export async function devices() {
  const list = h("ul", { class: "tokens" });
  const outcome = new Outcome();
  const all = h("div", {});
  const end = async (id) => {
    await remove(id ? `/sign-ins/${encodeURIComponent(id)}` : "/sign-ins");
    await draw();
  };
  const draw = async () => {
    const { sign_ins: rows, days } = await get("/sign-ins");
    fillRows(list, rows, (row) => deviceRow(row, end), t(days ? "devices.none" : "devices.off"));
    const word = t("devices.all");
    fill(all, rows.length > 1 && confirmButton(word, t("devices.all.sure"), word, outcome, () => end()));
  };
  await draw();
  return stack(list, all, outcome.element);
}

function deviceRow({ id, device, seen, expires, current }, end) {
  const outcome = new Outcome();
  const date = (at) => new Date(at * 1000).toLocaleDateString(locale);
  const facts = t("devices.facts", { seen: date(seen), until: date(expires) });
  const name = nameOf(device);
  const label = { "aria-label": t("devices.end.named", { name }) };
  const badge = current && h("span", { class: "badge" }, t("devices.current"));
  const about = [h("strong", {}, name), badge, h("span", { class: "faint" }, facts)];
  const off = actionButton(t("devices.end"), outcome, () => end(id), label);
  return h("li", {}, h("span", { class: "person", title: device }, about), off, outcome.element);
}

/** A short name for a User-Agent, which only its browser has chosen. */
function nameOf(agent) {
  const browser = BROWSERS.find(([mark]) => agent.includes(mark))?.[1];
  const system = SYSTEMS.find((one) => agent.includes(one));
  return browser && system ? t("devices.name", { browser, system }) : agent.slice(0, 60) || t("devices.unknown");
}
