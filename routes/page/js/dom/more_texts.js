/**
 * The texts of what is opened later: modules that come on demand import `t` from here, those that are joined into a
 * file (routes/page/joined.py) from texts.js. `python -m tests.tasks.page_texts` sets the right one.
 */

import english from "../../texts/en.more.json" with { type: "json" };
import * as first from "./texts.js";

await first.ownTexts();
first.addEnglish(english);

export * from "./texts.js";
