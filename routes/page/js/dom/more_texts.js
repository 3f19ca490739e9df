/**
 * The texts of what is opened later: modules that come on demand import `t` from here, those of the first load from
 * texts.js. `python -m tests.tasks.page_preloads` sets the right one.
 */

import english from "../../texts/en.more.json" with { type: "json" };
import { addTexts } from "./texts.js";

await addTexts(english, ".more");

export * from "./texts.js";
