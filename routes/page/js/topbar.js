/** The bar at the top: the conversation's title, the menu on a phone, settings. */

export function start(page) {}
