/**
 * Opens xterm.js where the policy allows no inline styles (style-src 'self').
 *
 * While it is opened it makes <style> elements: here these put their text into constructed style sheets. When it draws
 * it sets `style` attributes of spans: here these become properties (CSSOM). The policy allows both, because only
 * scripts of this server can do that, and no markup. It stays as strict for all other text.
 */

/** Opens the terminal in the box. Returns a function that removes its styles. */
export function openStrictly(terminal, box) {
  HTMLSpanElement.prototype.setAttribute = setAttribute;
  const sheets = [];
  document.createElement = (tag, ...more) => (tag === "style" ? sheetElement(sheets) : create(tag, more));
  try {
    terminal.open(box);
  } finally {
    delete document.createElement;
  }
  return () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((sheet) => !sheets.includes(sheet));
  };
}

const create = (tag, more) => Document.prototype.createElement.call(document, tag, ...more);

function setAttribute(name, value) {
  if (name === "style") this.style.cssText = value;
  else Element.prototype.setAttribute.call(this, name, value);
}

/** Stands where a <style> would: its text is a style sheet. */
function sheetElement(sheets) {
  const sheet = new CSSStyleSheet();
  sheets.push(sheet);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  const made = create("template", []);
  Object.defineProperty(made, "textContent", { set: (text) => sheet.replaceSync(text) });
  return made;
}
