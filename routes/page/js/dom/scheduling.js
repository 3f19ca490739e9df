/** Long work in short pieces: between two of them the page draws, scrolls and takes keys. */

const SLICE_MS = 12;

/** The next moment at which the browser has nothing more urgent to do. */
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

/** Calls `each` for all items, in order. Ends early, with false, once `wanted()` no longer says true. */
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
