/**
 * What is read beyond Markdown, as rows.
 *
 * `INLINE`: by the first character, which is one of ``\ ` * _ ~ [ ] ! < & $``, readers `(text, at)` that return the
 * node of what begins there and its `end`, or null. They come before Markdown's own.
 *
 * `BLOCKS`: readers of a line as in block_starts.js. They return null or
 * `{kind: "code", formula, view}`: lines go to the view (`add`, `trial`, `draw`, `close`, as text/code.js has them) up
 * to the line that ends with `formula`.
 */

import { brackets, dollars, formula } from "./math.js";

export const INLINE = { $: [dollars], "\\": [brackets] };
export const BLOCKS = [formula];
