/** The conversations at the side: list, search, rename, delete, export. The one that is open is in the address. */

export function start(page) {}

/** The session that the address names (`#ses_x`), or null. */
export function fromLocation() {
  return location.hash.slice(1) || null;
}
