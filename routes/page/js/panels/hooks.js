/** The hooks of the server, for admins: which there are, and how often they failed. */

import { get } from "../feed/api.js";
import { h } from "../dom/elements.js";
import { factList, formatNumber } from "../dom/forms.js";

export async function hooks() {
  const { hooks: rows, failed, dropped } = await get("/hooks");
  if (!rows.length) return h("p", { class: "faint" }, "No hooks. They are rows of the server's configuration file.");
  return [
    factList([
      ["Hooks", formatNumber(rows.length)],
      ["Failed calls", formatNumber(failed)],
      ["Dropped", formatNumber(dropped)],
    ]),
    h(
      "ul",
      { class: "tokens", "aria-label": "Hooks" },
      rows.map((row) =>
        h("li", {}, h("strong", { dir: "auto" }, row.name), h("span", { class: "faint", dir: "auto" }, line(row))),
      ),
    ),
  ];
}

function line({ kind, on, tools, calls }) {
  const concerned = tools.includes("*") ? "" : ` of ${tools.join(", ")}`;
  return `${kind}, ${on}${concerned}: ${calls}`;
}
