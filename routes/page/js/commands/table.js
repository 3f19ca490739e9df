/**
 * The commands of the message box: a row each. `run(page, rest)` gets the words behind the name; unless the command
 * `takesWords`, they stay in the box.
 */

import { announce, button, dialog, dialogButtons, h } from "../dom/elements.js";
import { t } from "../dom/more_texts.js";
import { post } from "../feed/api.js";
import { chooseModel } from "../panels/models.js";

const NAMES = [
  ...["new", "model", "plan", "compact", "undo", "retry", "stop", "timeline", "export", "options", "prompts", "help"],
];

const TAKE_WORDS = new Set(["new", "model", "export"]);

const RUNS = {
  new: (page, rest) => {
    page.sessions.begin();
    if (rest) page.composer.fill(rest);
  },
  model: async (page, rest) => {
    if (rest) return chooseModel(page, rest);
    return (await import("../panels/model_picker.js")).toggle(page, page.composer.text);
  },
  plan: (page, rest) => {
    const { plan } = page.composer;
    plan.checked = Boolean(rest) || !plan.checked; // with words it is for them
    announce(t(plan.checked ? "commands.plan.on" : "commands.plan.off"));
  },
  compact: async (page) => {
    const session = page.store.get("session");
    if (!session) return announce(t("commands.nothing"), { urgent: true });
    announce(t("commands.compact.begun"));
    const model = page.store.get("model");
    const path = `/sessions/${encodeURIComponent(session)}/compact`;
    const { summary } = await post(path, model ? { model } : {});
    return announce(summary ? t("commands.compact.done", { count: summary.messages }) : t("commands.compact.waits"));
  },
  undo: async (page) => {
    const asked = page.conversation.latest?.asked;
    if (!asked?.run) return announce(t("commands.nothing"), { urgent: true });
    return (await import("../chat/run_changes.js")).openChanges(asked);
  },
  retry: (page) => {
    const asked = page.conversation.latest?.asked;
    return asked?.message ? page.composer.resend(asked) : announce(t("commands.nothing"), { urgent: true });
  },
  stop: (page) => page.composer.stop(),
  timeline: async (page) => {
    const { latest } = page.conversation;
    if (!latest?.asked.run) return announce(t("commands.nothing"), { urgent: true });
    return (await import("../chat/replay/replay.js")).Replay.open(latest);
  },
  export: async (page, rest) => {
    const session = page.store.get("session");
    if (!session) return announce(t("commands.nothing"), { urgent: true });
    const { FORMATS, save } = await import("../sessions/export.js");
    return save(session, FORMATS.find((one) => rest && one.startsWith(rest.toLowerCase())) ?? FORMATS[0]);
  },
  options: async (page) => (await import("../panels/conversation/settings.js")).toggle(page, page.composer.text),
  prompts: async (page) => (await import("./library.js")).toggle(page, page.composer.text),
  help: () => help(),
};

export const COMMANDS = NAMES.map((name) => ({
  name,
  about: t(`commands.${name}`),
  takesWords: TAKE_WORDS.has(name),
  run: RUNS[name],
}));

function help() {
  const row = ({ name, about }) => h("div", {}, h("dt", {}, h("code", {}, `/${name}`)), h("dd", {}, about));
  return dialog(t("commands.help.title"), (close) => [
    h("dl", { class: "pairs" }, COMMANDS.map(row)),
    h("p", { class: "faint" }, t("commands.help.prompts")),
    dialogButtons(button(t("commands.close"), () => close())),
  ]);
}
