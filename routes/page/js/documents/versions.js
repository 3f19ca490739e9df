/** The versions of a document: who wrote them when, and what each has changed. */

import { get } from "../feed/api.js";
import { fill, h } from "../dom/elements.js";
import { collapsible, problemLine } from "../dom/forms.js";
import { changeDiff } from "../text/diff.js";
import { path } from "./document_text.js";
import { locale, t, ts } from "../dom/more_texts.js";

const AUTHORS = ts("document.author", ["model", "person"]);

/** A list that is fetched when it is opened. */
export function versionList(id) {
  return collapsible(t("document.versions"), () => {
    const list = h("div", { class: "document-versions" }, t("loading.short"));
    show(id, list).catch((error) => fill(list, problemLine(error)));
    return list;
  });
}

async function show(id, list) {
  const { versions } = await get(`${path(id)}/versions`);
  fill(list, ...versions.map((one, at) => rowOf(id, one, versions[at + 1])));
}

function rowOf(id, { version, author, created }, before) {
  const when = new Date(created * 1000).toLocaleString(locale);
  const facts = { version: String(version), author: AUTHORS[author] ?? author, when };
  return collapsible(t("document.versions.one", facts), () => {
    const view = h("div", {}, t("loading.short"));
    const texts = [before, { version }].map((one) => (one ? textOf(id, one.version) : ""));
    Promise.all(texts).then(
      ([old, text]) => fill(view, changeDiff(old, text, t("document.versions.label", { version: String(version) }))),
      (error) => fill(view, problemLine(error)),
    );
    return view;
  });
}

const textOf = async (id, version) => (await get(`${path(id)}?version=${version}`)).text;
