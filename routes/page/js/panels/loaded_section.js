/** Sections of the panel whose content is fetched. */

import { fill, stack } from "../dom/elements.js";
import { Outcome, actionButton, collapsible, runOnce } from "../dom/forms.js";
import { t } from "../dom/more_texts.js";

/** A collapsible section whose content is fetched when it is first opened. */
export function loadedSection(title, load) {
  return collapsible(title, () => {
    const outcome = new Outcome();
    const ask = async () => fill(box, await load());
    const again = actionButton(t("settings.again"), outcome, ask);
    const box = stack(outcome.element, again);
    runOnce(again, outcome, ask);
    return box;
  });
}
