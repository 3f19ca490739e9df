/**
 * What is read beyond Markdown. `INLINE`: by first character, one of ``\ ` * _ ~ [ ] ! < & $``, readers
 * `(text, at, open)` of `{node, end}` or null, before Markdown's own; `open` text still grows. `BLOCKS`: readers of a
 * line that return null or `{kind: "code", formula, view}`: lines go to the view, a CodeView or alike, up to the line
 * that ends with `formula`.
 */

import { brackets, dollars, formula } from "./math.js";

export const INLINE = { $: [dollars], "\\": [brackets] };
export const BLOCKS = [formula];
