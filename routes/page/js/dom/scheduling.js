/** Splits long work into short slices, between which the page can draw, scroll and handle input. */

const SLICE_MS = 12;

/** Yields to the browser, until it has no more urgent work. */
export function yieldToBrowser() {
  if (globalThis.scheduler?.yield) return scheduler.yield();
  return new Promise((resolve) => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => {
      channel.port1.close();
      resolve();
    };
    channel.port2.postMessage(null);
  });
}

/** Calls `each` for all items in order. Stops early, with false, once `wanted()` is false. */
export async function forEachInSlices(items, each, wanted = () => true) {
  let began = performance.now();
  for (const item of items) {
    if (performance.now() - began > SLICE_MS) {
      await yieldToBrowser();
      began = performance.now();
    }
    if (!wanted()) return false;
    each(item);
  }
  return true;
}
