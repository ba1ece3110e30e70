// The phone in the customer's hand, and the page that watches what its requests do.

import { Machine } from "/lab/machine.js";
import { Timeline, WORDS } from "/lab/timeline.js";

const CENTS = 4200;
const PATIENT_MS = 15000;
const IMPATIENT_MS = 1300;
const SLOW_BANK_MS = 3000;
const TRIES = 60;

const $ = (id) => document.getElementById(id);
const is = (id) => $(id).checked;
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const random = (bytes) => [...crypto.getRandomValues(new Uint8Array(bytes))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
const freshKey = () => random(16).replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
const money = (cents) => `${cents < 0 ? "−" : ""}${(Math.abs(cents) / 100).toFixed(2)}`;
const short = (text, length = 13) => (text.length > length ? `${text.slice(0, length)}…` : text);

const machine = new Machine($("machine"));
const timeline = new Timeline($("lanes"), $("no-lanes"), $("axis"));
let order;

function newOrder() {
  order?.stream.close();
  order = { invoice: `inv_${random(4)}`, key: freshKey(), session: random(8), lanes: new Map(), taps: 0, open: 0, runs: 0, faults: new Set(), snapshot: null, answers: [], worker: null };
  $("invoice").textContent = order.invoice;
  $("key").textContent = short(order.key, 18);
  timeline.reset();
  machine.reset();
  listen(order);
  show({ record: null, charges: [], ledger: [], outbox: [], receipts: [] });
  verdict("", "Tap as often as you like: one order, one key.");
  document.body.dataset.state = "idle";
  document.body.classList.toggle("off", is("without"));
}

function verdict(mood, words) {
  $("verdict").dataset.mood = mood;
  $("verdict").textContent = words;
}

// What the phone does.

/** Let something go wrong once per order, with whichever request comes first. */
function once(mine, fault) {
  if (mine.faults.has(fault)) return false;
  mine.faults.add(fault);
  return true;
}

function faultOf(mine) {
  if (is("crash") && once(mine, "crash")) return "crash";
  if ((is("lose") || is("fresh")) && once(mine, "lose")) return "lose";
  return "";
}

async function request(mine, { who, key, cents, behind }) {
  const path = is("without") ? "/v1/lab/unprotected" : is("fresh") ? "/v1/lab/invoices" : "/v1/payments";
  const fault = faultOf(mine);
  const number = String(mine.lanes.size + 1);
  const lane = timeline.begin(who, behind);
  mine.lanes.set(number, lane);
  const patience = fault === "lose" || is("slow") ? IMPATIENT_MS : PATIENT_MS;
  try {
    const answer = await fetch(path, {
      method: "POST",
      headers: {
        Authorization: "Bearer demo-alice",
        "Content-Type": "application/json",
        "Idempotency-Key": key,
        "X-Lab-Session": mine.session,
        "X-Lab-Lane": number,
        "X-Lab-Fault": fault,
      },
      body: JSON.stringify({ invoice_id: mine.invoice, amount_cents: cents, currency: "USD", card: "4242424242424242" }),
      signal: AbortSignal.timeout(patience),
    });
    const body = await answer.json();
    return { lane, ...settle(mine, lane, answer, body) };
  } catch (error) {
    const gaveUp = error.name === "TimeoutError";
    timeline.end(lane, "lost", gaveUp ? (fault === "lose" ? "answer lost" : "gave up waiting") : fault === "crash" ? "server died" : "no connection");
    return { lane, isFinal: false, waitMs: gaveUp ? 150 : 600 };
  }
}

function settle(mine, lane, answer, body) {
  const isReplay = answer.headers.get("Idempotency-Replayed") === "true";
  const code = (body.type ?? "").split(":").pop();
  if (answer.status === 201) {
    const isRecovery = ["taken_over", "resumed"].includes(lane.how);
    mine.runs += 1;
    const ran = !is("without") ? ["claimed", "ran once"] : mine.runs === 1 ? ["claimed", "charged"] : ["rejected", "charged again"];
    const [tone, words] = isReplay ? ["replayed", "replayed"] : isRecovery ? ["recovered", "recovered"] : ran;
    timeline.end(lane, tone, `201 ${words}`);
    return { isFinal: true, status: 201, body };
  }
  if (answer.status === 422) {
    timeline.end(lane, "rejected", "422 key reused");
    return { isFinal: true, status: 422, body };
  }
  if (answer.status === 409 && code === "in-flight") {
    timeline.end(lane, "flight", "409 in flight");
    const after = Number(answer.headers.get("Retry-After") ?? 1) * 1000;
    return { isFinal: false, waitMs: Math.min(after, 900) + 300 * Math.random() };
  }
  if (answer.status >= 500 || answer.status === 409) {
    timeline.end(lane, "lost", `${answer.status} ${code || "error"}`);
    return { isFinal: false, waitMs: 700 };
  }
  timeline.end(lane, "rejected", `${answer.status} ${code}`);
  return { isFinal: true, status: answer.status, body };
}

/** Send until there is a definite answer, as a good client does. */
async function insist(mine, name, { cents = CENTS, key = mine.key } = {}) {
  let behind = null;
  for (let number = 1; number <= TRIES && mine === order; number += 1) {
    const who = number === 1 ? name : `retry ${number - 1}`;
    const told = await request(mine, { who, cents, key, behind });
    if (is("ten")) behind = told.lane; // Ten lanes can be read, forty cannot.
    if (told.isFinal) return told;
    if (is("fresh")) key = freshKey();
    await pause(told.waitMs);
  }
  return null;
}

async function tap(mine) {
  mine.taps += 1;
  const told = await insist(mine, `tap ${mine.taps}`);
  if (told) mine.answers.push(told);
  if (told?.status === 201 && is("change") && mine === order && once(mine, "change")) {
    await insist(mine, "changed", { cents: CENTS + 1000 });
  }
}

async function pay() {
  const mine = order;
  mine.open += 1;
  document.body.dataset.state = "busy";
  verdict("", "Paying …");
  if (is("slow")) await behave({ delay_ms: SLOW_BANK_MS });
  const taps = is("ten") ? 10 : 1;
  await Promise.all(Array.from({ length: taps }, async (_, index) => {
    await pause(index * 45);
    await tap(mine);
  }));
  mine.open -= 1;
  if (mine === order && mine.open === 0) await sumUp(mine);
}

/** Wait until what the answers say is also in the books, then say what became of it. */
async function sumUp(mine) {
  for (let look = 0; look < 50 && mine === order && !isBooked(mine); look += 1) await pause(100);
  if (mine !== order || mine.open > 0) return;
  const count = mine.snapshot?.charges?.length ?? 0;
  const requests = mine.lanes.size;
  if (count > 1) {
    verdict("bad", `Charged ${count === 2 ? "twice" : `${count} times`}. Nothing remembered the first request.`);
  } else {
    const same = new Set(mine.answers.filter((told) => told.status === 201).map((told) => told.body.charge_id)).size === 1;
    verdict("good", `Charged once. ${requests === 1 ? "One request, one answer." : `${requests} requests${same ? ", one and the same payment" : ""}.`}`);
  }
  document.body.dataset.state = "settled";
}

function isBooked({ snapshot, answers }) {
  const booked = new Set(snapshot?.charges?.map((charge) => charge.charge_id));
  const isAnswered = answers.every((told) => told.status !== 201 || booked.has(told.body.charge_id));
  return isAnswered && booked.size > 0 && snapshot.receipts.length >= 1 && (is("crash") || snapshot.receipts.length === booked.size);
}

async function behave(behaviour) {
  try {
    await fetch("/lab/gateway", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(behaviour) });
  } catch {
    // The server is being restarted; the gateway is as it was.
  }
}

// What the page sees.

function listen(mine) {
  mine.stream = new EventSource(`/lab/stream/${mine.session}/${mine.invoice}`);
  mine.stream.addEventListener("happened", (message) => mine === order && happened(mine, JSON.parse(message.data)));
  mine.stream.addEventListener("snapshot", (message) => {
    if (mine !== order) return;
    mine.snapshot = JSON.parse(message.data);
    show(mine.snapshot);
    server("up", `server ${mine.snapshot.pid}`);
  });
  mine.stream.addEventListener("error", () => mine === order && server("down", "server restarting"));
}

function server(state, words) {
  $("server").dataset.state = state;
  $("server").lastElementChild.textContent = words;
}

const HAPPENED = {
  AttemptStarted: (lane, event) => {
    lane.how = event.how;
    const isNew = event.how === "new";
    if (event.how === "taken_over" || event.how === "resumed") machine.takeOver();
    if (isNew) machine.go("clean");
    timeline.say(lane, isNew ? "claimed" : "recovered", isNew ? WORDS.claimed : "taking over");
    return isNew ? "claimed" : "took over";
  },
  EffectIntended: (lane) => {
    machine.go("dirty");
    if (lane.how === "new") timeline.say(lane, "claimed", WORDS.charging);
    return "charge intended";
  },
  EffectKnown: () => "charge known",
  Completed: () => {
    machine.go("completed");
    return "committed";
  },
};

function happened(mine, event) {
  const lane = mine.lanes.get(event.lane);
  if (!lane || !HAPPENED[event.kind]) return;
  if (lane.to !== null) timeline.mark(lane, event.kind);
  else timeline.mark(lane, HAPPENED[event.kind](lane, event));
}

function show(snapshot) {
  const { record, charges, ledger, outbox, receipts } = snapshot;
  if (charges) {
    $("charge-count").textContent = charges.length;
    mood("charges", charges.length);
    fill("charges", charges.map((charge) => [short(charge.charge_id, 11), `$${money(charge.amount_cents)}`]));
  }
  $("ledger-count").textContent = ledger.length;
  $("ledger-sum").textContent = money(ledger.reduce((sum, entry) => sum + entry.amount_cents, 0));
  mood("ledger", ledger.length / 2);
  fill("ledger", ledger.map((entry) => [entry.account, money(entry.amount_cents)]));
  $("outbox-count").textContent = outbox.length;
  mood("outbox", outbox.length);
  fill("outbox", outbox.map((message) => [message.topic, ["pending", "parked", "published", "discarded"][message.state]]));
  $("receipt-count").textContent = receipts.length;
  mood("receipts", receipts.length);
  fill("receipts", receipts.map((receipt) => [short(receipt.receipt_id, 13), "sent"]));
  if (record) recorded(record);
  else facts(null);
}

function mood(tile, number) {
  $(tile).dataset.mood = number > 1 ? "bad" : number === 1 ? "good" : "";
}

function fill(tile, rows) {
  $(tile).querySelector("ul").replaceChildren(...rows.map((cells) => {
    const item = document.createElement("li");
    for (const cell of cells) item.append(Object.assign(document.createElement("span"), { textContent: cell }));
    return item;
  }));
}

function recorded(record) {
  const node = { in_progress: record.is_dirty ? "dirty" : "clean", in_doubt: "doubt" }[record.state] ?? record.state;
  if (machine.here !== node) machine.go(node);
  if (record.recoveries > 0 && !order.worker) {
    machine.takeOver();
    order.worker = timeline.begin("worker");
    timeline.say(order.worker, "recovered", "taking over");
  }
  if (order.worker && order.worker.to === null && record.state === "completed") timeline.end(order.worker, "recovered", "recovered");
  facts(record);
}

function facts(record) {
  const charge = record?.effects.find((effect) => effect.name === "charge");
  $("fact-id").textContent = record ? short(record.operation_id, 8) : "–";
  $("fact-attempts").textContent = record?.attempts ?? "–";
  $("fact-fence").textContent = record?.fence ?? "–";
  $("fact-effect").textContent = charge ? (charge.verdict ?? "intended") : "–";
  $("fact-effect").title = charge ? `key for the gateway: ${charge.key}` : "";
}

function lease() {
  const record = order.snapshot?.record;
  const isRunning = record?.state === "in_progress";
  const left = isRunning ? Math.max(0, (record.lease_until_ms - Date.now()) / 1000) : 0;
  $("lease").value = left;
  $("lease").hidden = !isRunning;
  $("fact-lease").textContent = !record ? "–" : isRunning ? `${left.toFixed(1)} s` : "not needed";
  const node = { none: "no record", clean: "in progress", dirty: isRunning && left === 0 ? "the lease is over: anybody may go on" : "in progress, dirty", completed: "completed", doubt: "in doubt" };
  const words = is("without") ? "nobody keeps one" : node[machine.here] ?? machine.here;
  if ($("now").textContent !== words) $("now").textContent = words;
}

// Switches, colours, and off we go.

for (const control of document.querySelectorAll('input[role="switch"]')) {
  control.checked = false;
  control.addEventListener("change", () => {
    if (control.id === "slow") behave({ delay_ms: control.checked ? SLOW_BANK_MS : 0 });
    newOrder();
  });
}
$("pay").addEventListener("click", pay);
$("new").addEventListener("click", newOrder);
addEventListener("pagehide", () => {
  if (is("slow")) navigator.sendBeacon("/lab/gateway", new Blob(['{"delay_ms": 0}'], { type: "application/json" }));
});

const THEMES = { "": ["Auto", "as the system has them"], light: ["Light", "light"], dark: ["Dark", "dark"] };
function theme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  localStorage.setItem("theme", name);
  $("theme").textContent = THEMES[name][0];
  $("theme").setAttribute("aria-label", `Colours: ${THEMES[name][1]}`);
}
$("theme").addEventListener("click", () => {
  const names = Object.keys(THEMES);
  theme(names[(names.indexOf(localStorage.getItem("theme") ?? "") + 1) % names.length]);
});
theme(localStorage.getItem("theme") in THEMES ? localStorage.getItem("theme") : "");

newOrder();
setInterval(lease, 100);
