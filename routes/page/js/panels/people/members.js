/** Members of bots' chats: those that the person has linked to the account, and for admins those of one bot. */

import { get, post, remove } from "../../feed/api.js";
import { fill, h, stack } from "../../dom/elements.js";
import { actionButton, confirmButton, fillRows, Outcome } from "../../dom/forms.js";
import { locale, t } from "../../dom/more_texts.js";

/** The links of the account, and a code for each bot. Raises Refused. */
export async function links() {
  const list = h("ul", { class: "tokens" });
  const codes = h("div", {});
  const outcome = new Outcome();
  const unlinkable = (row) => {
    const sure = t("members.unlink.sure", { member: row.member });
    return memberRow(row, `/member-links/${row.bot}`, { word: t("members.unlink"), sure }, draw);
  };
  const draw = async () => {
    const { links: rows, bots } = await get("/member-links");
    fillRows(list, rows, unlinkable, t("members.none"));
    fill(codes, ...bots.map((bot) => actionButton(t("members.code", { bot }), outcome, () => makeCode(bot))));
  };
  const makeCode = async (bot) => {
    const { code, expires } = await post("/member-codes", { bot });
    const time = new Date(expires * 1000).toLocaleTimeString(locale, { timeStyle: "short" });
    outcome.show(t("members.made", { code, bot, time }));
  };
  await draw();
  return stack(list, codes, outcome.element);
}

/** Those for whom a bot speaks. Raises Refused. */
export async function members(bot) {
  const list = h("ul", { class: "tokens" });
  const path = `/tokens/${encodeURIComponent(bot)}/members`;
  const deletable = (row) => {
    const sure = t("members.delete.sure", { member: row.member });
    return memberRow(row, path, { word: t("members.delete"), sure }, draw);
  };
  const draw = async () => {
    const { members: rows } = await get(path);
    fillRows(list, rows, deletable, t("members.empty"));
  };
  await draw();
  return list;
}

function memberRow({ member, principal, bot, account }, path, { word, sure }, draw) {
  const outcome = new Outcome();
  const end = async () => {
    const [, name] = principal.split("/");
    await remove(`${path}/${name}`);
    await draw();
  };
  const name = h("strong", { dir: "auto" }, `${bot}: ${member}`);
  const about = h("span", { class: "person" }, name, account && h("span", { class: "faint" }, account));
  return h("li", {}, about, confirmButton(word, sure, word, outcome, end), outcome.element);
}
