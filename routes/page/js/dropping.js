/** Files that are dropped anywhere on the page, instead of opening in its place. */

import { h } from "./dom.js";

const hasFiles = (event) => event.dataTransfer?.types.includes("Files");

/** `take(files)` for each drop; a veil says meanwhile that they may be dropped. */
export function dropZone(take) {
  const veil = h("div", { class: "drop-veil", hidden: true }, h("p", {}, "Drop files to attach them"));
  document.body.append(veil);
  let inside = 0; // each element that is crossed enters and leaves
  const on = (name, does) =>
    addEventListener(name, (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      does(event);
      veil.hidden = inside <= 0;
    });
  on("dragenter", () => inside++);
  on("dragleave", () => inside--);
  on("dragover", (event) => (event.dataTransfer.dropEffect = "copy"));
  on("drop", (event) => {
    inside = 0;
    take([...event.dataTransfer.files]);
  });
}
