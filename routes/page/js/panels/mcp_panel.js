/** The panel of MCP servers, for admins: their states, and tools that are held until an admin approves them. */

import { get, post } from "../feed/api.js";
import { fill, h, stack } from "../dom/elements.js";
import { collapsible, field, KeyedRows, sendForm } from "../dom/forms.js";
import { Server } from "./mcp_server.js";
import { isDown } from "./mcp_states.js";
import { showPanel } from "./panel.js";
import { t } from "../dom/more_texts.js";

/** Opens the panel, or closes it. */
export function toggle(page, button) {
  const build = (watch) => {
    const list = new ServerList(page);
    watch("mcp", () => list.refresh());
    return list.element;
  };
  return showPanel(page, "mcp", t("mcp.title"), build, button);
}

/** Servers that need an admin come first; else the order is by name. */
const urgencyOf = (server) => (server.held.length ? 2 : 0) + (isDown(server) ? 1 : 0);
const byUrgency = (one, other) => urgencyOf(other) - urgencyOf(one);

class ServerList {
  #rows;
  #asked = 0; // discards answers that arrive out of order

  constructor(page) {
    this.page = page;
    this.problem = h("p", { class: "problem", hidden: true, dir: "auto" });
    this.none = h("p", { class: "faint", hidden: true }, t("mcp.none"));
    this.list = h("div", { class: "servers" });
    const shown = new WeakMap(); // the server of an element
    this.#rows = new KeyedRows(this.list, (row, old) => {
      const server = shown.get(old) ?? new Server(this, row.name);
      shown.set(server.element, server);
      return server.show(row);
    });
    const adding = collapsible(t("mcp.add.title"), () => this.#addForm());
    this.element = stack(this.problem, this.none, this.list, adding);
  }

  /** `told`: an earlier problem to show together with the current state. */
  async refresh(told = null) {
    const asked = ++this.#asked;
    try {
      const { servers, problem } = await get("/mcp/servers");
      if (asked === this.#asked) this.#draw(servers, told ?? problem);
    } catch (error) {
      if (typeof error.status !== "number") throw error;
      this.#draw(null, error.message);
    }
  }

  #draw(servers, problem) {
    fill(this.problem, problem);
    this.problem.hidden = !problem;
    if (!servers) return;
    this.none.hidden = servers.length > 0;
    this.#rows.show(servers.toSorted(byUrgency), ({ name }) => name);
  }

  #addForm() {
    const url = h("input", {
      type: "url",
      required: true,
      maxlength: 4096,
      dir: "ltr",
      class: "mono",
      autocomplete: "off",
      placeholder: "https://hub.example.com/mcp",
    });
    const name = h("input", { required: true, maxlength: 128, dir: "ltr", autocomplete: "off" });
    const secret = h("input", { type: "password", maxlength: 4096, autocomplete: "off", dir: "ltr" });
    const fields = [
      field(t("mcp.address"), url),
      field(t("mcp.name"), name),
      field(t("mcp.bearer"), secret, t("mcp.bearer.hint")),
    ];
    const send = () => {
      const headers = secret.value ? { headers: { Authorization: `Bearer ${secret.value.trim()}` } } : {};
      return post("/mcp/servers", { name: name.value.trim(), url: url.value.trim(), ...headers });
    };
    const add = h("button", { type: "submit", class: "primary" }, t("mcp.add"));
    return sendForm(fields, add, send, (added, outcome) => {
      outcome.show(t("mcp.added", { name: added.name }), "good");
      this.refresh();
    });
  }
}
