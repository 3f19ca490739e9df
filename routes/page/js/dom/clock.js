/** Durations and times as text; one shared timer for all elements that show elapsed time. */

import { guarded } from "./errors.js";
import { formatDecimal, language, locale } from "./texts.js";

const EVERY_MS = 250;
const tickers = new Set();
let timer = null;

/** Calls `tick` four times a second. Returns a function that stops it. */
export function startTicking(tick) {
  tickers.add(tick);
  timer ??= setInterval(() => tickers.forEach((one) => guarded(one)), EVERY_MS);
  return () => {
    tickers.delete(tick);
    if (tickers.size) return;
    clearInterval(timer);
    timer = null;
  };
}

/** `4.2 s`, `1:03`, `2:00:11`; negative durations (of differing clocks) count as zero. */
export function formatDuration(seconds) {
  if (!(seconds > 0)) return `${formatDecimal(0)} s`;
  if (seconds < 59.95) return `${formatDecimal(seconds)} s`;
  const whole = Math.round(seconds);
  const two = (number) => String(number).padStart(2, "0");
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes}:${two(whole % 60)}`;
  return `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(whole % 60)}`;
}

/** `14:03` of today, `yesterday`, `12 Nov`. `at`: Unix time in seconds. */
export function formatTime(at) {
  const date = new Date(at * 1000);
  const now = new Date();
  const days = Math.round((new Date(now).setHours(0, 0, 0, 0) - new Date(date).setHours(0, 0, 0, 0)) / 86_400_000);
  if (days === 0) return date.toLocaleTimeString(locale, { hour: "2-digit", minute: "2-digit" });
  if (days === 1) return new Intl.RelativeTimeFormat(language, { numeric: "auto" }).format(-1, "day");
  return date.toLocaleDateString(locale, { day: "numeric", month: "short", year: days > 300 ? "numeric" : undefined });
}

const atOf = (at, options) => new Date(at * 1000).toLocaleString(language, options);

/** `12 Nov 2026, 14:03`, in the reader's language. */
export const formatMoment = (at) => atOf(at, { dateStyle: "medium", timeStyle: "short" });

/** `12 Nov 2026`, in the reader's language. */
export const formatDay = (at) => atOf(at, { dateStyle: "medium" });

const SPANS = [
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
];

/** `5 min. ago`, `yesterday`, in the reader's language. `at`: Unix time in seconds. */
export function formatAgo(at) {
  const seconds = Math.max(0, Date.now() / 1000 - at);
  const [unit, span] = SPANS.find(([, span]) => seconds >= span) ?? ["second", 1];
  const words = new Intl.RelativeTimeFormat(language, { numeric: "auto", style: "short" });
  return words.format(-Math.floor(seconds / span), unit);
}
