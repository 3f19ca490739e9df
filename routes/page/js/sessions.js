/** The conversations at the side: list, search, rename, delete, export. The one that is open is in the address. */

export function start(page) {}

/** The session that the address names (`#ses_x`), or null: whatever else stands there goes into no request. */
export function fromLocation() {
  return /^#(ses_\w+)$/.exec(location.hash)?.[1] ?? null;
}
