/**
 * The moments of a run: its events, when each was, and its rounds, calls and waits. The log has no times: they are
 * derived from what events say of durations, and from when the run began and ended.
 */

const DELTAS = new Set(["text.delta", "reasoning.delta", "tool.delta", "document.delta"]);
const OPENS = { "approval.required": "wait", "tool.started": "call" };
const CLOSES = { "approval.resolved": "wait", "tool.finished": "call" };
const WAIT = 400; // a wait of unknown length counts as so many characters of unknown speed
const MOST_PIECES = 4_096; // of a row, as the log joins them

export class Moments {
  rounds = []; // positions at which they begin
  spans = []; // `{kind, call, name, from, to}`, calls and waits by their positions; behind the last one is now

  /** `total`: the run's seconds, if known. */
  constructor(rows, total = 0) {
    this.events = eachEvent(rows);
    this.#read();
    const end = this.events.length;
    const isOpen = this.spans.some(({ to }) => to === end);
    this.seconds = derivedTimes(this.events, total, isOpen);
  }

  #read() {
    const open = new Map();
    const end = this.events.length;
    this.events.forEach(({ type, call, name }, at) => {
      if (type === "round.started") this.rounds.push(at);
      const own = call?.replace(/~[23]$/, "");
      const key = `${OPENS[type] ?? CLOSES[type]} ${own}`;
      if (OPENS[type]) {
        const span = { kind: OPENS[type], call: own, name, from: at, to: end };
        this.spans.push(span);
        open.set(key, span);
      } else if (open.has(key)) open.get(key).to = at;
    });
  }

  get last() {
    return this.events.length - 1;
  }

  /** Until now, or until the run has ended. */
  get length_s() {
    return this.seconds.at(-1);
  }

  /** The last event is now. */
  secondsAt(position) {
    return position === this.last ? this.length_s : this.seconds[position];
  }

  /** The position of the event with this number, or of those that the log has left out before it; -1 if there is none. */
  positionOf(seq) {
    return seq >= 1 ? this.events.findIndex((event) => event.seq >= seq) : -1;
  }

  /** The last position that is not later than so many seconds. */
  positionAt(seconds) {
    const at = this.seconds.findIndex((one) => one > seconds);
    return at < 0 ? this.last : Math.max(0, at - 1);
  }

  /** The number of rounds that have begun. */
  roundAt(position) {
    return this.rounds.filter((from) => from <= position).length;
  }

  /** The call that is open at a position, the one begun last; undefined if there is none. */
  callAt(position) {
    return this.spans.findLast(({ from, to }) => from <= position && position < to);
  }

  /** `usage` of the model at a position, and the tokens a second of the round there. */
  usageAt(position) {
    const { rounds, events } = this;
    const to = rounds.find((from) => from > position) ?? events.length;
    const isUsage = ({ type }) => type === "usage";
    const rate = events.slice(rounds[this.roundAt(position) - 1] ?? 0, to).find(isUsage)?.timing?.tokens_per_s;
    return { rate, ...events.slice(0, position + 1).findLast(isUsage) };
  }
}

/** The events of rows in which deltas may be joined: each of them has its number, and about its part of the text. */
function eachEvent(rows) {
  let seq = 0;
  return rows.flatMap((row) => {
    const count = Math.min(row.seq - seq, MOST_PIECES);
    seq = row.seq;
    if (count < 2 || !DELTAS.has(row.type)) return [row];
    const characters = [...row.text];
    const { name, ...fields } = row;
    const pieceOf = (at) => {
      const [from, to] = [at, at + 1].map((part) => Math.floor((part * characters.length) / count));
      const piece = { ...fields, seq: row.seq - count + 1 + at, text: characters.slice(from, to).join("") };
      return at || name === undefined ? piece : { ...piece, name };
    };
    return Array.from({ length: count }, (_, at) => pieceOf(at));
  });
}

/** The seconds of each event, and of now. `isOpen`: a call or a wait goes on until now. */
function derivedTimes(events, total, isOpen) {
  const steps = [...events, null].map(() => 0); // known seconds before each event, and before now
  const shares = [...events.map(() => 0), isOpen ? WAIT : 0]; // parts of the seconds that nothing tells of
  const began = new Map(); // calls
  let now = 0,
    round = []; // positions of its deltas
  const take = (at, seconds) => {
    steps[at] += Math.max(0, seconds);
    now += Math.max(0, seconds);
  };
  events.forEach((event, at) => {
    const { type, call } = event;
    if (type === "round.started") round = [];
    else if (DELTAS.has(type)) {
      round.push(at);
      shares[at] = event.text.length;
    } else if (type === "approval.resolved") shares[at] = WAIT;
    else if (type === "tool.started") began.set(call, now);
    else if (began.has(call)) take(at, began.get(call) + (event.elapsed_s ?? event.duration_s ?? 0) - now);
    else if (type === "usage" && event.timing && round.length) spread(event, round, shares, take);
  });
  const rest = Math.max(0, total - now) / (shares.reduce((sum, one) => sum + one, 0) || 1);
  const scale = total && now > total ? total / now : 1; // what was measured for each part overlaps
  let sum = 0;
  return steps.map((step, at) => (sum += scale * step + rest * shares[at]));
}

/** The deltas of a round share the time in which its tokens came, behind that until the first one. */
function spread({ completion_tokens: tokens, timing }, round, shares, take) {
  const { preparation_s = 0, first_token_s = 0, tokens_per_s } = timing;
  take(round[0], preparation_s + first_token_s);
  if (!tokens_per_s) return;
  const length = round.reduce((sum, at) => sum + shares[at], 0) || 1;
  for (const at of round) {
    take(at, ((tokens / tokens_per_s) * shares[at]) / length);
    shares[at] = 0;
  }
}
