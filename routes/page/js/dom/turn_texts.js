/** The texts of a conversation, which come with its modules (routes/page/joined.py): before all others of them. */

import english from "../../texts/en.turns.json" with { type: "json" };
import { addEnglish, ownTexts } from "./texts.js";

await ownTexts();
addEnglish(english);
