/** Which model answers: the list to pick from, and a form that adds an endpoint after it has tried it. */

export function start(page) {}
