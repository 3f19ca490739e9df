/** The time that passes, as words; and one timer for all who show it. */

const watching = new Set();
let timer = null;

/** Calls `tick` about every `every_ms` as long as it is on the page; `element` says whether it is. Returns how to stop. */
export function ticking(tick) {
  watching.add(tick);
  timer ??= setInterval(() => watching.forEach((one) => one()), 250);
  return () => {
    watching.delete(tick);
    if (!watching.size) {
      clearInterval(timer);
      timer = null;
    }
  };
}

/** `4.2 s`, `1:03`, `2:00:11`. */
export function span(seconds) {
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.floor(seconds);
  const two = (number) => String(number).padStart(2, "0");
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes}:${two(whole % 60)}`;
  return `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(whole % 60)}`;
}

/** `today 14:03`, `yesterday`, `12 Nov`. `at`: Unix time in seconds. */
export function when(at) {
  const date = new Date(at * 1000), now = new Date();
  const days = Math.round((new Date(now).setHours(0, 0, 0, 0) - new Date(date).setHours(0, 0, 0, 0)) / 86_400_000);
  if (days === 0) return date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  if (days === 1) return "yesterday";
  return date.toLocaleDateString([], { day: "numeric", month: "short", year: days > 300 ? "numeric" : undefined });
}
