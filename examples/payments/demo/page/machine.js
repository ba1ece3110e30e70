// The state machine, drawn twice: lying for wide screens, standing for phones.

const NODES = {
  none: ["no record", ""],
  clean: ["in progress", "nothing happened yet"],
  dirty: ["in progress", "card may be charged"],
  completed: ["completed", "the answer, for good"],
  available: ["available", "a retry may run"],
  doubt: ["in doubt", "nobody can prove it"],
  expired: ["expired", "after 24 hours"],
};

const WIDE = {
  box: "0 0 752 236",
  width: { none: 96 },
  usual: 146,
  at: { none: [50, 118], clean: [226, 118], dirty: [448, 118], completed: [677, 118], available: [226, 26], doubt: [448, 210], expired: [677, 26] },
};
const TALL = {
  box: "0 0 350 440",
  width: {},
  usual: 140,
  at: { none: [74, 26], clean: [74, 122], dirty: [74, 218], completed: [74, 318], expired: [74, 412], available: [276, 122], doubt: [276, 218] },
};
const HEIGHT = 48;

// From, to, the word on it, and the sides of the boxes where it leaves and arrives, lying and standing.
const EDGES = [
  ["none", "clean", "claim", "rl", "bt"],
  ["clean", "dirty", "intend", "rl", "bt"],
  ["dirty", "completed", "commit", "rl", "bt"],
  ["dirty", "dirty", "take over", "loop", "loop"],
  ["clean", "available", "release", "tb", "rl"],
  ["dirty", "doubt", "no proof", "bt", "rl"],
  ["doubt", "completed", "resolve", "rb", "br"],
  ["completed", "expired", "retention", "tb", "bt"],
];

const SVG = "http://www.w3.org/2000/svg";

function make(name, attributes, parent) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  parent.append(element);
  return element;
}

function side(drawing, name, which) {
  const [x, y] = drawing.at[name];
  const half = (drawing.width[name] ?? drawing.usual) / 2;
  return { l: [x - half, y], r: [x + half, y], t: [x, y - HEIGHT / 2], b: [x, y + HEIGHT / 2] }[which];
}

function loop(drawing, name) {
  if (drawing === WIDE) {
    const [x, y] = side(drawing, name, "t");
    return { d: `M${x - 24} ${y} C${x - 32} ${y - 42} ${x + 32} ${y - 42} ${x + 24} ${y}`, word: [x, y - 38] };
  }
  const [x, y] = side(drawing, name, "r");
  return { d: `M${x} ${y + 10} C${x + 34} ${y + 14} ${x + 22} ${y + 50} ${x - 22} ${y + HEIGHT / 2}`, word: [x + 42, y + 42] };
}

/** Return a line from box to box, straight or around one corner, and where its word stands beside it. */
function route(drawing, from, to, sides) {
  if (sides === "loop") return loop(drawing, from);
  const [[x1, y1], [x2, y2]] = [side(drawing, from, sides[0]), side(drawing, to, sides[1])];
  if (y1 === y2) return { d: `M${x1} ${y1} L${x2} ${y2}`, word: [(x1 + x2) / 2 - 2, y1 - 11] };
  if (x1 === x2) return { d: `M${x1} ${y1} L${x2} ${y2}`, word: [x1 + 38, (y1 + y2) / 2] };
  const [cx, cy] = "lr".includes(sides[0]) ? [x2, y1] : [x1, y2];
  return { d: `M${x1} ${y1} Q${cx} ${cy} ${x2} ${y2}`, word: [(x1 + 2 * cx + x2) / 4, (y1 + 2 * cy + y2) / 4 + 14] };
}

export class Machine {
  constructor(place) {
    this.place = place;
    this.seen = new Set(["none"]);
    this.taken = new Set();
    this.here = "none";
    this.isTall = matchMedia("(max-width: 559px)");
    this.isTall.addEventListener("change", () => this.draw());
    this.draw();
  }

  reset() {
    this.seen = new Set(["none"]);
    this.taken = new Set();
    this.here = "none";
    this.paint();
  }

  /** Move to a state, over every state that must lie in between: a snapshot may miss what took milliseconds. */
  go(state) {
    const path = ["none", "clean", "dirty", "completed"];
    const [from, to] = [path.indexOf(this.here), path.indexOf(state)];
    const steps = from >= 0 && to > from ? path.slice(from, to + 1) : [this.here, state];
    for (let index = 1; index < steps.length; index += 1) {
      if (steps[index - 1] !== steps[index]) this.taken.add(`${steps[index - 1]}-${steps[index]}`);
      this.seen.add(steps[index]);
    }
    this.here = state;
    this.paint();
  }

  takeOver() {
    this.taken.add("dirty-dirty");
    this.paint();
  }

  draw() {
    const drawing = this.isTall.matches ? TALL : WIDE;
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", drawing.box);
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", "The state machine of a record: no record, in progress, completed; available, in doubt, expired");
    const defs = make("defs", {}, svg);
    for (const kind of ["plain", "taken"]) {
      const marker = make("marker", { id: `head-${kind}`, class: kind, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6.5, markerHeight: 6.5, orient: "auto" }, defs);
      make("path", { d: "M0 0 L8 4 L0 8 Z" }, marker);
    }
    this.edges = new Map();
    for (const [from, to, word, lying, standing] of EDGES) {
      const { d, word: [x, y] } = route(drawing, from, to, drawing === WIDE ? lying : standing);
      const path = make("path", { d }, svg);
      const text = make("text", { x, y: y + 4, class: "word" }, svg);
      text.textContent = word;
      this.edges.set(`${from}-${to}`, [path, text]);
    }
    this.nodes = new Map();
    for (const [name, [title, sub]] of Object.entries(NODES)) {
      const [x, y] = drawing.at[name];
      const width = drawing.width[name] ?? drawing.usual;
      const group = make("g", { class: "node" }, svg);
      make("rect", { x: x - width / 2, y: y - HEIGHT / 2, width, height: HEIGHT, rx: 11 }, group);
      make("text", { x, y: sub ? y - 3 : y + 5 }, group).textContent = title;
      if (sub) make("text", { x, y: y + 14, class: "sub" }, group).textContent = sub;
      this.nodes.set(name, group);
    }
    this.place.replaceChildren(svg);
    this.paint();
  }

  paint() {
    for (const [name, group] of this.nodes) {
      group.classList.toggle("seen", this.seen.has(name));
      group.classList.toggle("here", this.here === name);
      group.classList.toggle("settled", name === "completed");
    }
    for (const [name, [path, text]] of this.edges) {
      const isTaken = this.taken.has(name);
      path.classList.toggle("taken", isTaken);
      text.classList.toggle("taken", isTaken);
      path.setAttribute("marker-end", `url(#head-${isTaken ? "taken" : "plain"})`);
    }
  }
}
