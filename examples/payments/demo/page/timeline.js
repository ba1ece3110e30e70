// The requests as lanes on one clock.

const SHORTEST_MS = 2500;

const WORDS = {
  flight: "in flight",
  claimed: "claimed",
  charging: "claimed, charging",
};

export class Timeline {
  constructor(list, empty, axis) {
    this.list = list;
    this.empty = empty;
    this.axis = axis;
    this.reset();
    const tick = () => {
      this.paint();
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  reset() {
    this.lanes = [];
    this.began = 0;
    this.isStill = true;
    this.list.replaceChildren();
    this.empty.hidden = false;
    this.axis.hidden = true;
  }

  /** Begin a request, on a lane of its own or behind another one. */
  begin(who, behind = null) {
    const now = performance.now();
    if (!this.lanes.length) this.began = now;
    this.empty.hidden = true;
    this.axis.hidden = false;
    const row = behind?.row ?? this.row(who);
    const bar = document.createElement("span");
    row.querySelector(".track").append(bar);
    const lane = { row, bar, from: now, to: null, marks: [], how: null };
    this.lanes.push(lane);
    this.say(lane, "flight", WORDS.flight);
    this.list.scrollTop = this.list.scrollHeight;
    this.isStill = false;
    return lane;
  }

  row(who) {
    const row = document.createElement("li");
    row.className = "lane";
    row.innerHTML = '<span class="who"></span><span class="track"></span><span class="told"></span>';
    row.querySelector(".who").textContent = who;
    this.list.append(row);
    return row;
  }

  /** Say how a request stands. */
  say(lane, tone, words) {
    lane.bar.className = `bar ${tone}${lane.to === null ? " open" : ""}`;
    const told = lane.row.querySelector(".told");
    told.className = `told ${tone}`;
    told.textContent = words;
  }

  /** Put a mark where something happened. */
  mark(lane, words) {
    const dash = document.createElement("i");
    dash.className = "mark";
    dash.title = words;
    lane.row.querySelector(".track").append(dash);
    lane.marks.push([dash, performance.now()]);
  }

  end(lane, tone, words) {
    lane.to = performance.now();
    this.say(lane, tone, words);
  }

  paint() {
    if (this.isStill || !this.lanes.length) return;
    const now = performance.now();
    const open = this.lanes.some((lane) => lane.to === null);
    const last = open ? now : Math.max(...this.lanes.map((lane) => lane.to));
    const span = Math.max(SHORTEST_MS, last - this.began) * 1.02;
    const place = (moment) => `${(100 * (moment - this.began)) / span}%`;
    this.axis.querySelector("#elapsed").textContent = `${(span / 1000).toFixed(1)} s`;
    for (const lane of this.lanes) {
      lane.bar.style.left = place(lane.from);
      lane.bar.style.width = `${(100 * ((lane.to ?? now) - lane.from)) / span}%`;
      for (const [dash, moment] of lane.marks) dash.style.left = place(moment);
    }
    this.isStill = !open;
  }
}

export { WORDS };
