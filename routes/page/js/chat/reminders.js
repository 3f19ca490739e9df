/** The schedules that answer in the open conversation: a line each above the message box. */

import { formatMoment } from "../dom/clock.js";
import { fill, h } from "../dom/elements.js";
import { t } from "../dom/more_texts.js";

const SIMPLE = /^([0-5]?\d) ([01]?\d|2[0-3]) \* \* (\*|MON-FRI|1-5)$/i; // a time of every day, or of weekdays

let list = null;

export function start(page) {
  if (list) return;
  list = h("ul", { class: "reminders", "aria-label": t("reminders.title") });
  page.at("composer").before(list);
  const draw = () => {
    const here = page.store.get("session");
    const rows = page.store.get("reminders").filter(({ session }) => session === here);
    list.hidden = !rows.length;
    fill(list, rows.map(line));
  };
  page.store.watch("reminders", draw);
  page.store.watch("session", draw);
}

function line(one) {
  const next = t("reminders.next", { time: formatMoment(one.next), zone: one.time_zone });
  return h("li", { dir: "auto", title: next }, t("reminders.line", { name: one.name, times: times(one) }));
}

/** "every day at 17:00" */
export function times({ cron, every, next }) {
  const [, minute, hour, days] = SIMPLE.exec(cron ?? "") ?? [];
  if (hour) {
    const time = `${hour.padStart(2, "0")}:${minute.padStart(2, "0")}`;
    return t(days === "*" ? "reminders.daily" : "reminders.weekdays", { time });
  }
  if (every) return t("reminders.every", { span: every });
  return cron ? t("reminders.cron", { cron, time: formatMoment(next) }) : formatMoment(next);
}
