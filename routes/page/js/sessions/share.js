/** Sharing a conversation by a link: what it shows, the link itself, and the links that there are, with revoke. */

import { get, post, remove } from "../feed/api.js";
import { announce, button, dialog, dialogButtons, fill, h, icon, stack } from "../dom/elements.js";
import { actionButton, field, Outcome, runOnce, select } from "../dom/forms.js";
import { formatDay } from "../dom/clock.js";
import { copyText } from "../dom/copy.js";
import { t } from "../dom/more_texts.js";

const DAY_S = 86_400;
const TERMS = [
  ["", "share.never"],
  [DAY_S, "share.day"],
  [7 * DAY_S, "share.week"],
  [30 * DAY_S, "share.month"],
];

/** The dialog of one conversation. */
export async function share({ id, title }) {
  const { shares, may_share } = await get("/shares");
  const own = shares.filter(({ session }) => session === id);
  await dialog(t("share.title"), (close) => {
    const list = stack();
    const draw = () => fill(list, linkList(own, t("share.existing.none")));
    const made = (link) => {
      own.unshift(link);
      draw();
    };
    draw();
    return stack(
      h("p", { class: "dialog-title", dir: "auto" }, title || t("list.untitled")),
      may_share ? shareForm(id, made) : h("p", { class: "problem" }, t("share.off")),
      h("h3", {}, t("share.existing")),
      list,
      dialogButtons(button(t("share.done"), () => close())),
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
  const expires = select(TERMS.map(([value, key]) => [value, t(key)]));
  const outcome = new Outcome();
  const create = h("button", { type: "submit", class: "primary" }, icon("link"), t("share.create"));
  const shown = stack();
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
  const copy = button([icon("copy"), t("share.copy")], async () => {
    if (await copyText(url)) announce(t("share.copied"));
    else input.focus();
  });
  fill(place, field(t("share.link"), input, t("share.once")), h("div", {}, copy));
  input.focus();
}

function linkList(shares, none, { titled = false, owned = false } = {}) {
  if (!shares.length) return h("p", { class: "faint" }, none);
  const rows = shares.map((one) => linkRow(one, none, { titled, owned }));
  return h("ul", { class: "share-list" }, rows);
}

function linkRow(one, none, { titled, owned }) {
  const at = `/shares/${encodeURIComponent(one.id)}`;
  const outcome = new Outcome();
  const facts = () => {
    const known = [
      t("share.created", { day: formatDay(one.created) }),
      one.updated > one.created && t("share.updated", { day: formatDay(one.updated) }),
      one.expires_at && t("share.until", { day: formatDay(one.expires_at) }),
      owned && t("share.owner", { name: one.owner }),
    ];
    return known.filter(Boolean).join(" · ");
  };
  const about = h("p", { class: "faint" }, facts());
  const update = actionButton(t("share.update"), outcome, async () => {
    Object.assign(one, await post(at, {}));
    fill(about, facts());
    announce(t("share.update.done"));
  });
  const away = async () => {
    await remove(at);
    announce(t("share.revoked"));
    const next = row.nextElementSibling ?? row.previousElementSibling;
    const focus = next?.querySelector("button") ?? row.closest("dialog, .panel")?.querySelector("button");
    const list = row.parentElement;
    row.remove();
    if (!list.childElementCount) list.replaceWith(h("p", { class: "faint" }, none));
    focus?.focus();
  };
  const revoke = actionButton(t("share.revoke"), outcome, away, { class: "danger" });
  const row = h(
    "li",
    { class: "share-row" },
    h("div", {}, titled && h("bdi", {}, one.title || t("list.untitled")), about, outcome.element),
    h("div", { class: "share-actions" }, owned ? null : update, revoke),
  );
  return row;
}
