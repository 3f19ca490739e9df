/** What stands before the page: signing in where there are tokens. */

export function start(page) {}
