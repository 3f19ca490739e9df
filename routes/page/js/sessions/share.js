/** Sharing a conversation by a link: what it shows, the link itself, and the links that there are, with revoke. */

import { get, post, remove } from "../feed/api.js";
import { announce, dialog, fill, h, icon } from "../dom/elements.js";
import { Outcome, field, runOnce } from "../dom/forms.js";
import { copyText } from "../dom/copy.js";
import { language, t } from "../dom/more_texts.js";

const DAY_S = 86_400;
const TERMS = [
  ["", "share.never"],
  [DAY_S, "share.day"],
  [7 * DAY_S, "share.week"],
  [30 * DAY_S, "share.month"],
];
const day = (at) => new Date(at * 1000).toLocaleDateString(language, { dateStyle: "medium" });

/** The dialog of one conversation. */
export async function share({ id, title }) {
  const { shares, may_share } = await get("/shares");
  const own = shares.filter(({ session }) => session === id);
  await dialog(t("share.title"), (close) => {
    const list = h("div", { class: "stack" });
    const draw = () => fill(list, linkList(own, t("share.existing.none")));
    const made = (link) => {
      own.unshift(link);
      draw();
    };
    draw();
    return h(
      "div",
      { class: "stack" },
      h("p", { class: "dialog-title", dir: "auto" }, title || t("list.untitled")),
      may_share ? shareForm(id, made) : h("p", { class: "problem" }, t("share.off")),
      h("h3", {}, t("share.existing")),
      list,
      h("div", { class: "dialog-buttons" }, h("button", { type: "button", onclick: () => close() }, t("share.done"))),
    );
  });
}

/** A section of the settings: your links; for admins those of all. */
export async function sharedLinks(admin) {
  const { shares } = await get(`/shares${admin ? "?all=true" : ""}`);
  return linkList(shares, t("share.mine.none"), { titled: true, owned: admin });
}

function shareForm(session, made) {
  const results = h("input", { type: "checkbox", checked: true });
  const files = h("input", { type: "checkbox" });
  const expires = h(
    "select",
    {},
    TERMS.map(([value, key]) => h("option", { value }, t(key))),
  );
  const outcome = new Outcome();
  const create = h("button", { type: "submit", class: "primary" }, icon("link"), t("share.create"));
  const shown = h("div", { class: "stack" });
  const onsubmit = async (event) => {
    event.preventDefault();
    const wanted = { tool_results: results.checked, attachments: files.checked };
    if (expires.value) wanted.expires_in_s = Number(expires.value);
    const link = await runOnce(create, outcome, () => post(`/sessions/${encodeURIComponent(session)}/shares`, wanted));
    if (!link) return;
    made(link);
    showLink(shown, link.url ?? new URL(link.path, location.origin).href);
  };
  const choice = (input, key) => h("label", { class: "label-choice" }, input, " ", t(key));
  return h(
    "form",
    { class: "stack", onsubmit },
    h("p", { class: "faint" }, t("share.about")),
    h("div", {}, choice(results, "share.results"), h("p", { class: "faint" }, t("share.results.hint"))),
    choice(files, "share.files"),
    field(t("share.expires"), expires),
    outcome.element,
    h("div", {}, create),
    shown,
  );
}

function showLink(place, url) {
  const input = h("input", { readonly: true, value: url, onfocus: () => input.select() });
  const copy = h("button", { type: "button" }, icon("copy"), t("share.copy"));
  copy.addEventListener("click", async () => {
    if (await copyText(url)) announce(t("share.copied"));
    else input.focus();
  });
  fill(place, field(t("share.link"), input, t("share.once")), h("div", {}, copy));
  input.focus();
}

function linkList(shares, none, { titled = false, owned = false } = {}) {
  if (!shares.length) return h("p", { class: "faint" }, none);
  return h(
    "ul",
    { class: "share-list" },
    shares.map((one) => linkRow(one, none, { titled, owned })),
  );
}

function linkRow(one, none, { titled, owned }) {
  const at = `/shares/${encodeURIComponent(one.id)}`;
  const outcome = new Outcome();
  const facts = () =>
    [
      t("share.created", { day: day(one.created) }),
      one.updated > one.created && t("share.updated", { day: day(one.updated) }),
      one.expires_at && t("share.until", { day: day(one.expires_at) }),
      owned && t("share.owner", { name: one.owner }),
    ]
      .filter(Boolean)
      .join(" · ");
  const about = h("p", { class: "faint" }, facts());
  const button = (key, kind, work) => {
    const element = h("button", { type: "button", class: kind }, t(key));
    element.addEventListener("click", () => runOnce(element, outcome, work));
    return element;
  };
  const update = button("share.update", "", async () => {
    Object.assign(one, await post(at, {}));
    fill(about, facts());
    announce(t("share.update.done"));
  });
  const revoke = button("share.revoke", "danger", async () => {
    await remove(at);
    announce(t("share.revoked"));
    const next = row.nextElementSibling ?? row.previousElementSibling;
    const focus = next?.querySelector("button") ?? row.closest("dialog, .panel")?.querySelector("button");
    const list = row.parentElement;
    row.remove();
    if (!list.childElementCount) list.replaceWith(h("p", { class: "faint" }, none));
    focus?.focus();
  });
  const row = h(
    "li",
    { class: "share-row" },
    h("div", {}, titled && h("bdi", {}, one.title || t("list.untitled")), about, outcome.element),
    h("div", { class: "share-actions" }, owned ? null : update, revoke),
  );
  return row;
}
