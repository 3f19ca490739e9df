/** Resources and prompts of an MCP server, in its panel. Their names, descriptions and contents are untrusted text. */

import { get, post } from "../feed/api.js";
import { announce, buttonRow, fill, h, stack } from "../dom/elements.js";
import { actionButton, field, Outcome, runOnce, submitting } from "../dom/forms.js";
import { escapeLine } from "../text/exact_text.js";
import { t } from "../dom/more_texts.js";

const EXTENSIONS = { "text/plain": ".txt", "text/markdown": ".md", "application/json": ".json", "image/png": ".png" };
const PARTS = { resources, prompts };

/** The parts of the features that the server has; those that `old`, the server's element, has are kept as they are. */
export function offersOf(at, { name, features = [] }, composer, old) {
  return features
    .filter((feature) => feature in PARTS)
    .map((feature) => old.querySelector(`[data-part="${feature}"]`) ?? part(feature, { at, name, composer }));
}

/** A collapsible section that is listed again each time it is opened. */
function part(feature, server) {
  const list = stack();
  const outcome = new Outcome();
  const summary = h("summary", {}, t(`mcp.offers.${feature}`));
  const body = h("div", { class: "folded" }, list, outcome.element);
  const details = h("details", { dataset: { part: feature } }, summary, body);
  details.addEventListener("toggle", () => {
    if (!details.open) return;
    runOnce(summary, outcome, async () => {
      const offers = await get(`${server.at}/${feature}`);
      fill(list, PARTS[feature](offers, server, outcome), noteLines(offers.notes));
    });
  });
  return details;
}

const noteLines = (notes) => notes.map((note) => h("p", { class: "faint", dir: "auto" }, note));

function resources({ resources, templates }, server, outcome) {
  const rows = resources.map((one) => resourceRow(one, server, outcome));
  return [h("ul", { class: "offers" }, rows), templates.length > 0 && uriForm(templates, server, outcome)];
}

function resourceRow({ uri, name, description, mime_type }, server, outcome) {
  const attach = () => attachResource(uri, server, outcome);
  const facts = [description, mime_type].filter(Boolean).map(escapeLine).join(" · ");
  const shown = escapeLine(name || uri);
  return h(
    "li",
    { dir: "auto" },
    h("span", { class: "offer-name", title: escapeLine(uri) }, shown),
    facts && h("span", { class: "faint" }, facts),
    actionButton(t("mcp.attach"), outcome, attach, { "aria-label": t("mcp.attach.named", { name: shown }) }),
  );
}

/** For resources of which only the form of their URIs is known. */
function uriForm(templates, server, outcome) {
  const input = h("input", { required: true, maxlength: 4096, dir: "ltr", class: "mono", autocomplete: "off" });
  const forms = templates.map(({ uri_template }) => escapeLine(uri_template)).join(", ");
  const attach = h("button", { type: "submit" }, t("mcp.attach"));
  const entry = field(t("mcp.uri"), input, t("mcp.uri.patterns", { patterns: forms }));
  const onsubmit = submitting(attach, outcome, () => attachResource(input.value.trim(), server, outcome));
  return h("form", { class: "form", onsubmit }, entry, attach);
}

async function attachResource(uri, { at, name, composer }, outcome) {
  const { contents } = await get(`${at}/resources/read?uri=${encodeURIComponent(uri)}`);
  await composer.attachments.add(contents.map((content) => fileOf(content, name)));
  outcome.show(t(contents.length ? "mcp.attached" : "mcp.attached.nothing"), contents.length ? "good" : "problem");
}

/** The content as a file whose name says which server it comes from. */
function fileOf({ uri, mime_type: type, text, data }, server) {
  const path = uri.replace(/[?#].*$/, "");
  const last = path.split("/").findLast(Boolean) ?? "resource";
  const safe = `${server}-${last}`.replace(/[^\p{L}\p{N}._-]+/gu, "_");
  const plain = safe.slice(-100).replace(/^\.+/, "");
  const name = /\.\w{1,8}$/.test(last) ? plain : `${plain}${EXTENSIONS[type] ?? (text === undefined ? "" : ".txt")}`;
  const bytes = text ?? Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  return new File([bytes], name, { type });
}

function prompts({ prompts }, server, outcome) {
  return prompts.map((prompt) => promptForm(prompt, server, outcome));
}

function promptForm({ name, title, description, arguments: wanted }, { at, composer }, outcome) {
  const inputs = wanted.map((one) => [one, h("input", { required: one.required, dir: "auto", autocomplete: "off" })]);
  const label = t("prompts.use.named", { name: escapeLine(name) });
  const use = h("button", { type: "submit", "aria-label": label }, t("prompts.use"));
  const form = h(
    "form",
    { class: "form offer-prompt", "aria-label": escapeLine(name) },
    h("h4", { dir: "auto" }, escapeLine(title || name)),
    description && h("p", { class: "faint", dir: "auto" }, escapeLine(description)),
    inputs.map(([one, input]) =>
      field(escapeLine(one.name), input, one.description ? escapeLine(one.description) : null),
    ),
    buttonRow(use),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const given = inputs.filter(([, input]) => input.value).map(([one, input]) => [one.name, input.value]);
    const body = { arguments: Object.fromEntries(given) };
    const answer = await runOnce(use, outcome, () => post(`${at}/prompts/${encodeURIComponent(name)}`, body));
    if (!answer) return;
    composer.insert(answer.text);
    announce(t("prompts.inserted"));
  });
  return form;
}
