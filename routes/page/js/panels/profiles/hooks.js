/** The hooks of the server, for admins: which there are, and how often they failed. */

import { get } from "../../feed/api.js";
import { h } from "../../dom/elements.js";
import { factList, formatNumber } from "../../dom/forms.js";
import { t } from "../../dom/more_texts.js";

export async function hooks() {
  const { hooks: rows, failed, dropped } = await get("/hooks");
  if (!rows.length) return h("p", { class: "faint" }, t("hooks.none"));
  const facts = factList([
    [t("hooks.title"), formatNumber(rows.length)],
    [t("hooks.failed"), formatNumber(failed)],
    [t("hooks.dropped"), formatNumber(dropped)],
  ]);
  const items = rows.map((row) =>
    h("li", {}, h("strong", { dir: "auto" }, row.name), h("span", { class: "faint", dir: "auto" }, line(row))),
  );
  return [facts, h("ul", { class: "tokens", "aria-label": t("hooks.title") }, items)];
}

function line({ kind, on, tools, calls }) {
  return tools.includes("*") ? `${kind}, ${on}: ${calls}` : `${kind}, ${on} (${tools.join(", ")}): ${calls}`;
}
