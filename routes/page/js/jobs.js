/** Background jobs, with their tails, in the panel. */

export function start(page) {}
