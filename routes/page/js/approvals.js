/** Calls that wait for a person: shown whole, with why they are asked, and decided. */

export function start(page) {}
