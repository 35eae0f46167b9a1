// The page of `policyctl playground`: asks the engine after each key, and draws what it answers.
import { createEditor } from "/editor.js";
import { NodeMap } from "/map.js";
import words from "/words.js";

const $ = (id) => document.getElementById(id);
const LEVELS = 7;
const PER_PAGE = 100;
const BURST_MS = 2000; // "change" compares with the verdict before a burst of keys: keys closer than this
const STEP_MS = 700;

const fragment = location.hash.slice(1);
const token = fragment.split("&")[0].includes("=") ? "" : fragment.split("&")[0];

const state = {
  cluster: null,
  names: [],
  namesVersion: null,
  position: new Map(), // node name -> position
  groups: { zone: null, rack: null },
  files: {},
  saved: {},
  file: "",
  other: null, // texts of the policies compared with
  pod: { key: null },
  subject: "pod", // what the policies that are shown decide: a pod, or the workload of a fleet
  fleet: null, // what they say about the workload and each cluster
  examples: [],
  colour: "total",
  values: null, // of the clause that colours the map
  otherValues: null,
  verdict: null,
  against: null,
  stale: false,
  before: null, // totals before the present burst of edits
  diagnostics: [],
  errors: [], // what came with the last verdict: errors, and what is wrong with the pod
  findings: [], // of the lint rules, which come after the verdict
  missing: [], // metrics without a value
  linted: {}, // the texts that they are about
  hovered: -1,
  focused: -1,
  pinned: -1,
  simulation: null,
  frame: 0,
  page: 0,
};

// --- asking the engine ---------------------------------------------------------------------------------

class Refused extends Error {}

async function ask(what, body = {}) {
  let answer;
  try {
    answer = await fetch(`/api/${what}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
      body: JSON.stringify(body),
    });
  } catch {
    throw new Refused("no answer: policyctl playground was ended; start it again and open the address that it prints");
  }
  const read = await answer.json().catch(() => ({ error: `the answer has status ${answer.status}` }));
  if (!answer.ok) throw Object.assign(new Refused(read.error || `status ${answer.status}`), { status: answer.status, read });
  return read;
}

// Offsets of the engine count characters, those of the editor count UTF-16 units; most texts have no difference.
const WIDE = /[\ud800-\udbff]/;
function toEngine(text, offset) {
  return WIDE.test(text) ? [...text.slice(0, offset)].length : offset;
}
function toEditor(text, offset) {
  return WIDE.test(text) ? [...text].slice(0, offset).join("").length : offset;
}

// --- texts and numbers ---------------------------------------------------------------------------------

const whole = (number) => Math.round(number).toLocaleString("en");
const value = (number) => (number === null || number === undefined ? "–" : Math.abs(number) >= 1000 ? whole(number) : number.toFixed(Math.abs(number) >= 100 ? 0 : Math.abs(number) >= 10 ? 1 : 2));
const signed = (number) => (number > 0 ? "+" : number < 0 ? "−" : "±") + value(Math.abs(number));
const many = (number, one, more = `${one}s`) => `${whole(number)} ${number === 1 ? one : more}`;

function make(tag, given = {}, ...inside) {
  const made = document.createElement(tag);
  for (const [name, each] of Object.entries(given)) {
    if (name === "on") for (const [event, act] of Object.entries(each)) made.addEventListener(event, act);
    else if (name in made && name !== "list") made[name] = each;
    else made.setAttribute(name, each);
  }
  made.append(...inside.filter((each) => each !== null && each !== undefined));
  return made;
}

const button = (text, act, given = {}) => make("button", { type: "button", textContent: text, on: { click: act }, ...given });

function say(text, tone = "") {
  const shown = $("verdict");
  if (shown.textContent !== text) shown.textContent = text;
  shown.className = `verdict ${tone}`;
}

async function tried(work) {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    say(error.message, "bad");
  }
}

// --- evaluation: at most one is under way, the newest text is next -------------------------------------

const PAGE = crypto.randomUUID(); // several pages may ask one server: of each, the newest evaluation counts
let number = 0; // of the evaluation
let running = false;
let again = false;
let edited = 0; // when the oldest edit that is not under way was made
let lastEdit = -BURST_MS;

function changed() {
  const now = performance.now();
  if (now - lastEdit > BURST_MS) state.before = state.verdict;
  lastEdit = now;
  edited ||= now;
  // what waits for a pause waits for the next one
  for (const timer of [linting, explaining, showing, testing]) clearTimeout(timer);
  if (state.colour === "time") {
    play(false);
    state.colour = "total";
  }
  evaluate();
}

async function evaluate() {
  if (running) {
    again = true;
    return;
  }
  running = true;
  do {
    again = false;
    const from = edited;
    edited = 0;
    const clause = /^clause:/.test(state.colour) ? Number(state.colour.slice(7)) : null;
    const files = { ...state.files };
    try {
      number++;
      const asked = { id: number, page: PAGE, files, pod: state.pod, namesVersion: state.namesVersion, workload: workload() };
      if (clause !== null) asked.clause = clause;
      if (state.other) asked.against = { ...files, ...state.other };
      const found = await ask("evaluate", asked);
      if (again && !from) continue;
      take(found, files, clause);
      await painted();
      if (from) {
        performance.measure("edit to picture", { start: from, end: performance.now() });
        performance.clearMeasures("edit to picture");
      }
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (error.status !== 409) {
        state.stale = true;
        say(error.message, "bad");
        draw();
      }
    }
  } while (again);
  running = false;
  lintLater();
  explainLater();
  testLater();
}

let linting = 0;
function lintLater() {
  clearTimeout(linting);
  linting = setTimeout(() => tried(lint), 100); // the next key must not wait for it
}
async function lint() {
  const files = { ...state.files };
  const found = await ask("lint", { files, page: PAGE });
  if (!found.diagnostics || running || Object.keys(files).some((name) => files[name] !== state.files[name])) return;
  const place = (each) => JSON.stringify([each.file, each.start, each.code]);
  const known = new Set(state.errors.map(place));
  state.linted = files;
  state.findings = found.diagnostics.filter((each) => !known.has(place(each)));
  showAll(files);
}

/** Return the last findings, moved with the text around what was edited since; those within it are left out. */
function keptFindings(files) {
  const edits = new Map();
  for (const name of new Set(state.findings.map((each) => each.file))) {
    const before = state.linted[name], now = files[name];
    if (now === undefined || ((WIDE.test(before) || WIDE.test(now)) && before !== now)) continue;
    const most = Math.min(before.length, now.length);
    let start = 0, end = 0;
    while (start < most && before[start] === now[start]) start++;
    while (end < most - start && before[before.length - 1 - end] === now[now.length - 1 - end]) end++;
    edits.set(name, { start, end: before.length - end, by: now.length - before.length });
  }
  const moved = (each) => {
    const edit = edits.get(each.file);
    if (!edit || (each.end >= edit.start && each.start <= edit.end && edit.start < edit.end + Math.abs(edit.by))) return null;
    const by = each.start >= edit.end ? edit.by : 0;
    return { ...each, start: each.start + by, end: each.end + by };
  };
  return state.findings.flatMap((each) => {
    const fixes = each.fixes.map((fix) => ({ ...fix, edits: fix.edits.map(moved) })).filter((fix) => fix.edits.every(Boolean));
    const found = moved(each);
    return found ? [{ ...found, fixes }] : [];
  });
}

function showAll(files) {
  const names = Object.keys(files);
  const order = (each) => names.indexOf(each.file);
  state.diagnostics = [...state.errors, ...keptFindings(files)].sort((a, b) => order(a) - order(b) || a.start - b.start || a.end - b.end);
  showDiagnostics(files);
}

const painted = () => new Promise((done) => requestAnimationFrame(() => {
  draw();
  done();
}));

function take(found, files, clause) {
  state.errors = found.diagnostics;
  state.ms = found.ms;
  setSubject(found.subject);
  state.stale = !(found.verdict ?? found.fleet);
  if (found.fleet) state.fleet = found.fleet;
  if (found.verdict) {
    const renamed = found.verdict.names;
    const former = renamed ? null : state.verdict;
    state.verdict = found.verdict;
    if (renamed) setNames(renamed, found.verdict.namesVersion);
    // another page opened another cluster
    if (renamed && found.verdict.namesVersion !== state.clusterVersion) tried(async () => renew(await ask("state")));
    state.before = renamed ? null : (state.before ?? former);
    showGang(former?.gang);
    if (clause !== null) {
      const shown = found.verdict.clauses[clause];
      if (shown) state.values = shown.values;
      else state.colour = "total";
      state.otherValues = found.against?.clauses[clause]?.values ?? null;
    }
    state.summaries = null;
  }
  state.against = found.against;
  state.missing = found.problems;
  sums.clear();
  showAll(files);
  showNotes();
  showColours();
  tell();
}

let telling = 0;
function tell() {
  // one sentence after the typing has paused: screen readers are not interrupted at each key
  clearTimeout(telling);
  const wrong = state.errors.filter((each) => each.severity === "error");
  const problems = wrong.length, elsewhere = wrong.find((each) => each.file !== state.file && (each.file in state.files || state.subject === "fleet"));
  const isFleet = state.subject === "fleet", verdict = isFleet ? state.fleet : state.verdict;
  let text, tone;
  if (state.stale) {
    text = problems ? `${many(problems, "error")}${elsewhere ? `, in ${elsewhere.file}` : ""}${verdict ? `: the ${isFleet ? "table" : "map"} shows the last ${elsewhere?.file === FLEET_FILE ? "fleet" : "policy"} without errors` : ""}.` : "No policy governs this pod.";
    tone = problems ? "bad" : "warn";
  } else if (isFleet) {
    text = outcome(verdict);
    tone = verdict.placed ? "good" : "warn";
    if (state.against) text += ` B: ${outcome(state.against)}`;
  } else {
    const rejected = verdict.rejectedBy.reduce((sum, each) => sum + (each >= 0), 0);
    text = verdict.chosen
      ? `${verdict.chosen} is chosen, of ${many(verdict.total.length - rejected, "node")} that fit; ${whole(rejected)} rejected.`
      : verdict.message || "No node fits.";
    tone = verdict.chosen ? "good" : "warn";
    if (state.against) text += ` B: ${state.against.chosen ? `${state.against.chosen} is chosen.` : "no node fits."}`;
  }
  telling = setTimeout(() => say(text, tone), performance.now() - lastEdit < 1000 ? 350 : 0);
}

// --- the editor: files, problems, notes ----------------------------------------------------------------

/** Make an editor whose text can be reached, and so scrolled, by keys in every browser. */
function makeEditor(host, given) {
  const made = createEditor(host, given);
  host.shadowRoot.querySelector(".cm-content").tabIndex = 0;
  return made;
}

const mine = makeEditor($("mine"), {
  words,
  label: "Policy",
  change(text) {
    state.files[state.file] = text;
    showFiles();
    keepDrafts();
    changed();
  },
  complete: (offset) => asking("complete", offset),
  hover: (offset) => asking("hover", offset),
});
let other = null;

async function asking(what, offset) {
  const text = state.files[state.file];
  try {
    const found = await ask(what, { files: state.files, file: state.file, offset: toEngine(text, offset), fleet: state.subject === "fleet" ? $("fleet-yaml").value : "" });
    if (!found) return null;
    if (what === "hover") return { ...found, start: toEditor(text, found.start), end: toEditor(text, found.end) };
    return found.items.map((each) => ({ ...each, start: toEditor(text, each.start) }));
  } catch (error) {
    if (error instanceof Refused) return null;
    throw error;
  }
}

function showFile(name) {
  state.file = name;
  mine.open(name, state.files[name]);
  if (state.other) other.open(name, state.other[name] ?? state.files[name]);
  showFiles();
  showDiagnostics(state.files);
  showNotes();
  if (state.pod.key !== null && Object.keys(state.files).length > 1) evaluate(); // it may be about workloads, the one before about pods
}

function showFiles() {
  const names = Object.keys(state.files);
  const key = JSON.stringify([names, state.file, names.map((name) => state.files[name] !== state.saved[name])]);
  if ($("files").dataset.key === key) return;
  $("files").dataset.key = key;
  $("files").replaceChildren(...names.map((name) => button(
    name.split("/").pop() + (state.files[name] !== state.saved[name] ? " •" : ""),
    () => showFile(name),
    { "aria-current": String(name === state.file), title: state.files[name] !== state.saved[name] ? `${name}, not saved` : name },
  )));
  const isEdited = (name) => state.files[name] !== state.saved[name];
  $("save-button").disabled = !isEdited(state.file);
  $("revert-button").hidden = !isEdited(state.file);
  $("save-all-button").hidden = names.filter(isEdited).length < 2;
}

function apply(edits) {
  for (const name of new Set(edits.map((each) => each.file))) {
    if (!(name in state.files)) continue;
    const found = edits.filter((each) => each.file === name);
    if (name !== state.file) showFile(name);
    const text = state.files[name];
    mine.edit(found.map((each) => ({ text: each.text, start: toEditor(text, each.start), end: toEditor(text, each.end) })));
  }
  mine.focus();
}

function showDiagnostics(files) {
  const text = files[state.file] ?? "";
  const own = state.diagnostics.filter((each) => each.file === state.file);
  if (text === mine.text) {
    mine.setDiagnostics(own.map((each) => ({
      ...each,
      start: toEditor(text, each.start),
      end: toEditor(text, each.end),
      fixes: each.fixes.map((fix) => ({ title: fix.title, apply: () => apply(fix.edits) })),
    })));
  }
  const elsewhere = state.diagnostics.filter((each) => !(each.file in files));
  $("pod-error").textContent = elsewhere.filter((each) => each.file !== FLEET_FILE).map((each) => each.message).join("\n");
  showFleetErrors(elsewhere.filter((each) => each.file === FLEET_FILE));
  listed = state.diagnostics.filter((each) => each.file in files);
  showProblems(files);
}

const MOST_LISTED = 50;
let listed = []; // what is wrong, with places in the present texts

/** List problems. A row that says the same as before stays: its place in the text may have moved. */
function showProblems(files) {
  const starts = new Map(); // of the lines, by file
  for (const name of new Set(listed.map((each) => each.file))) {
    starts.set(name, [0]);
    for (let at = files[name].indexOf("\n"); at >= 0; at = files[name].indexOf("\n", at + 1)) starts.get(name).push(at + 1);
  }
  const rows = listed.slice(0, MOST_LISTED).map((found, at) => {
    const start = toEditor(files[found.file], found.start);
    const of = starts.get(found.file);
    let low = 0, high = of.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (of[middle] <= start) low = middle;
      else high = middle;
    }
    const place = `${Object.keys(files).length > 1 ? `${found.file.split("/").pop()}:` : ""}${low + 1}:${start - of[low] + 1}`;
    const key = JSON.stringify([found.file, place, found.severity, said(found), found.fixes.map((fix) => fix.title)]);
    return [key, () => problem(found, at, place)];
  });
  const missing = state.missing.map((each) => `no value of the metric ${each}`);
  rows.unshift(...missing.map((text) => [`metric ${text}`, () => make("li", { className: "metric" }, make("span", { className: "tag warn", textContent: "warning" }), make("span", { className: "text", textContent: text }))]));
  const quiet = (text) => [text, () => make("li", { className: "quiet", textContent: text })];
  if (!rows.length) rows.push(quiet("None."));
  if (listed.length > MOST_LISTED) rows.push(quiet(`and ${whole(listed.length - MOST_LISTED)} more`));
  const list = $("problems");
  rows.forEach(([key, made], at) => {
    const shown = list.children[at];
    if (shown?.dataset.key === key) return;
    const row = made();
    row.dataset.key = key;
    if (shown) shown.replaceWith(row);
    else list.append(row);
  });
  while (list.children.length > rows.length) list.lastChild.remove();
}

const said = (found) => [found.message, ...(found.notes || []), found.help].filter(Boolean).join("\n");
/** Return the parts of a text; what stands in backticks is code. */
const coded = (text) => text.split(/`([^`\n]+)`/).map((part, at) => at % 2 ? make("code", { textContent: part }) : part);
const TONES = { error: "bad", warning: "warn", information: "quiet" };
function problem(found, at, place) {
  return make("li", {},
    button(place, () => {
      const { file, start, end } = listed[at];
      if (file !== state.file) showFile(file);
      mine.select(toEditor(state.files[file], start), toEditor(state.files[file], end));
    }, { className: "place", "aria-label": `Go to ${place}` }),
    make("span", { className: `tag ${TONES[found.severity]}`, textContent: found.severity === "information" ? "hint" : found.severity }),
    make("span", { className: "text" }, ...coded(said(found))),
    ...found.fixes.map((fix, number) => button(fix.title, () => apply(listed[at].fixes[number].edits), { className: "fix" })),
  );
}

function showNotes() {
  const isFleet = state.subject === "fleet", clauses = (isFleet ? state.fleet : state.verdict)?.clauses;
  if (!clauses) return;
  if (!state.stale) {
    const found = clauses.filter((each) => each.file === state.file && each.line && each.note);
    mine.setNotes(found.map((each) => ({ line: each.line, text: each.note, kind: noteKind(each) })));
  }
  const rules = clauses.filter((each) => !each.line && each.rejects);
  $("rules").hidden = !rules.length;
  $("rules").replaceChildren(isFleet ? "Karmada's own filters: " : "Kubernetes' own filters: ", ...rules.map((each) => make("span", { className: "tag", textContent: `${each.text} ${each.note}` })));
}
function noteKind(clause) {
  if (clause.kind === "filter") return clause.rejects ? "filter" : "";
  return clause.note.startsWith("+") ? "more" : "";
}

$("format-button").addEventListener("click", () => tried(format));
async function format() {
  const { text } = await ask("format", { files: state.files, file: state.file });
  if (text !== state.files[state.file]) mine.setText(text, true);
}

$("save-button").addEventListener("click", () => tried(() => save(state.file)));
$("save-all-button").addEventListener("click", () => tried(saveAll));
async function saveAll() {
  const names = Object.keys(state.files).filter((name) => state.files[name] !== state.saved[name]);
  for (const name of names) if (!(await save(name))) return;
  say(`Saved ${many(names.length, "file")}.`, "good");
}
$("revert-button").addEventListener("click", () => mine.setText(state.saved[state.file], true));
/** Save a file; returns whether it is saved by now. */
async function save(name) {
  const text = state.files[name];
  if (text === state.saved[name]) return true;
  try {
    await ask("save", { file: name, text, replaced: state.saved[name] });
  } catch (error) {
    if (error.status !== 412) throw error;
    $("changed-text").textContent = `${error.message}.`;
    $("changed").returnValue = "";
    $("changed").onclose = () => tried(() => changedOnDisk(name, error.read.text));
    $("changed").showModal();
    return false;
  }
  state.saved[name] = text;
  showFiles();
  keepDrafts();
  say(`Saved ${name}.`, "good");
  return true;
}
async function changedOnDisk(name, onDisk) {
  const chosen = $("changed").returnValue;
  if (chosen !== "replace" && chosen !== "take") return;
  state.saved[name] = onDisk;
  if (state.file !== name) showFile(name);
  if (chosen === "replace") return void (await save(name));
  mine.setText(onDisk, true);
  showFiles();
}

// --- the tests beside the policies ----------------------------------------------------------------------

const PASSES = new Set(["pass", "skip", "todo"]);
const TEST_TONES = { pass: "good", fail: "bad", error: "bad", skip: "quiet", todo: "quiet" };
let testing = 0;
let wanted = 0; // of the texts whose tests are asked for
function testLater() {
  clearTimeout(testing);
  if (!state.stale) testing = setTimeout(() => tried(runTests), 600); // the next key must not wait for it
}
async function runTests() {
  const asked = ++wanted;
  let found;
  try {
    found = (await ask("tests", { files: state.files })).files;
  } catch (error) {
    if (error.status === 503) return testLater(); // earlier tests are under way
    throw error;
  }
  if (asked !== wanted) return;
  $("tests").hidden = !found.length;
  const cases = found.flatMap((file) => file.cases);
  const failed = cases.filter((each) => !PASSES.has(each.state)).length + found.filter((file) => file.problem).length;
  $("tests-summary").textContent = failed ? `${whole(failed)} of ${many(cases.length, "case")} failed` : `${many(cases.length, "case")} passed`;
  $("tests-summary").className = `small ${failed ? "bad" : "good"}`;
  const row = (tone, word, text, report) => make("li", {}, make("span", { className: `tag ${tone}`, textContent: word }), make("span", { textContent: text }), report ? make("pre", { textContent: report, tabIndex: 0 }) : null);
  const rows = found.flatMap((file) => [
    ...(file.problem ? [row("bad", "error", file.name, file.problem)] : []),
    ...file.cases.map((each) => row(TEST_TONES[each.state], each.state, `${file.name} › ${each.name}`, each.report)),
    ...(file.leftOut ? [row("quiet", "not run", `${file.name}: ${many(file.leftOut, "more case")}`)] : []),
  ]);
  // what fails comes first
  $("tested").replaceChildren(...rows.sort((a, b) => Number(!a.querySelector(".bad")) - Number(!b.querySelector(".bad"))));
}

// --- drafts: what is not saved survives a reload of this tab, and nothing else does -----------------------

const DRAFTS = "drafts";
function keepDrafts() {
  const edited = Object.keys(state.files).filter((name) => name in state.saved && state.files[name] !== state.saved[name]);
  try {
    sessionStorage.setItem(DRAFTS, JSON.stringify(edited.map((name) => [name, state.saved[name], state.files[name]])));
  } catch {
    // no room, or the browser keeps nothing: the drafts are lost with the page
  }
}
/** Put back drafts of files that are what they were when the drafts began. */
function takeDrafts() {
  let kept = [];
  try {
    kept = JSON.parse(sessionStorage.getItem(DRAFTS) ?? "[]");
  } catch {
    return; // not ours
  }
  for (const [name, saved, text] of kept) if (state.saved[name] === saved) state.files[name] = text;
}

// --- two policies side by side -------------------------------------------------------------------------

$("compare-button").addEventListener("click", compare);
function compare() {
  const on = !state.other;
  state.other = on ? { ...state.files } : null;
  for (const id of ["mine-title", "other-side", "map-mine-title", "map-other-side"]) $(id).hidden = !on;
  $("compare-button").setAttribute("aria-pressed", String(on));
  if (on && !other) {
    other = makeEditor($("other"), {
      words,
      label: "Policy to compare with",
      change(text) {
        state.other[state.file] = text;
        changed();
      },
      complete: () => null,
      hover: () => null,
    });
  }
  if (on) {
    if (state.colour === "time") state.colour = "total";
    other.forget();
    other.open(state.file, state.other[state.file]);
  } else state.against = null;
  refit();
  evaluate();
}

// --- the map -------------------------------------------------------------------------------------------

const map = new NodeMap($("map-mine"));
const otherMap = new NodeMap($("map-other"));
const tip = make("span", { id: "tip", hidden: true });
$("map-mine").append(tip);
const cell = make("span", { className: "unseen", id: "cell", role: "status", "aria-live": "polite" });
$("nodes").append(cell);

let tints = null;
function colours() {
  if (tints) return tints;
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  tints = {
    heat: Array.from({ length: 11 }, (_, at) => read(`heat-${at}`)),
    series: Array.from({ length: 6 }, (_, at) => read(`series-${at + 1}`)),
    paper: read("paper"), panel: read("panel"), ink: read("ink"), line: read("line"), quiet: read("quiet"), good: read("good"), bad: read("bad"), warn: read("warn"), accent: read("accent"),
  };
  return tints;
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  tints = null;
  draw();
});

function setNames(names, version) {
  state.names = names;
  state.namesVersion = version;
  state.position = new Map(names.map((name, at) => [name, at]));
  arrange();
}

/** Return what is said of a domain of the gang that the pod is of: taken, or how much room it has. */
function roomOf(label) {
  const gang = state.verdict?.gang;
  if (!gang || $("group").value !== "gang") return "";
  if (label === gang.taken) return "★ taken by the gang";
  const found = gang.rooms.find((each) => each.domain === label);
  return found ? `room for ${whole(found.room)} of ${many(found.needed, "pod")}` : "";
}

/** Show the domains of the pod's gang as groups, once the pod has one; the group that was chosen before comes back. */
function showGang(former) {
  const gang = state.verdict?.gang ?? null, select = $("group");
  const option = [...select.options].find((each) => each.value === "gang");
  const same = JSON.stringify(former ?? null) === JSON.stringify(gang);
  if (same) return;
  state.groups.gang = gang?.domains ?? null;
  option.hidden = option.disabled = !gang;
  if (gang) option.textContent = `gang: ${gang.key}`;
  if (gang && former?.key !== gang.key && select.value !== "gang") {
    state.groupBefore = select.value;
    select.value = "gang";
  } else if (!gang && select.value === "gang") select.value = state.groupBefore ?? "none";
  arrange();
}

function arrange() {
  const by = state.groups[$("group").value];
  const all = Array.from({ length: state.names.length }, (_, at) => at);
  let groups = [{ label: "", nodes: all }];
  if (by) {
    const what = $("group").value === "gang" ? state.verdict.gang.key : $("group").value;
    groups = by.names.map((label) => ({ label: label || `no ${what}`, note: label ? roomOf(label) : "", nodes: [] }));
    for (const at of all) groups[by.of[at]]?.nodes.push(at);
    groups = groups.filter((group) => group.nodes.length).sort((a, b) => a.label.localeCompare(b.label, "en", { numeric: true }));
  }
  for (const each of [map, otherMap]) each.arrange(groups);
  draw();
}

function refit() {
  map.width = otherMap.width = 0;
  draw();
}

/** Return what colours a side: kinds by node, styles, and the legend as [style, text]. */
function look(verdict, values, before) {
  const tint = colours();
  const count = state.names.length;
  const kinds = new Uint8Array(count);
  const hatched = { fill: tint.panel, ink: `${tint.quiet}80`, pattern: "falling" };
  const bySize = $("patterns").checked;
  const ramp = tint.heat.slice(0, LEVELS).map((fill, at) => ({ fill, size: bySize ? 0.35 + (0.65 * at) / (LEVELS - 1) : 1 }));

  if (state.colour === "time" && state.simulation) {
    const used = state.simulation.used[state.frame] || [];
    for (let node = 0; node < count; node++) kinds[node] = used[node] === null || used[node] === undefined ? 11 : Math.min(10, Math.max(0, Math.floor(used[node] * 10 + 1e-9)));
    const styles = [...tint.heat.map((fill, at) => ({ fill, size: bySize ? 0.35 + 0.065 * at : 1 })), { fill: tint.line }];
    return { kinds, styles, legend: [[styles[0], "free"], [styles[5], "half used"], [styles[7], "over 70 %"], [styles[10], "full"]] };
  }
  if (!verdict) return { kinds, styles: [{ fill: tint.line }], legend: [] };

  if (state.colour === "rejected") {
    const counts = new Map();
    for (const by of verdict.rejectedBy) counts.set(by, (counts.get(by) || 0) + 1);
    const order = [...counts.keys()].filter((by) => by >= 0).sort((a, b) => counts.get(b) - counts.get(a));
    const hatches = ["falling", "rising", "dots", "crossed", "lying", "standing", "grid"];
    const styles = [{ fill: tint.heat[1] }, ...order.slice(0, 12).map((_, at) => ({ fill: tint.paper, ink: tint.series[at % 6], pattern: hatches[at % 7] })), { fill: tint.line }];
    const kindOf = new Map(order.map((by, at) => [by, Math.min(at + 1, styles.length - 1)]));
    for (let node = 0; node < count; node++) kinds[node] = verdict.rejectedBy[node] < 0 ? 0 : kindOf.get(verdict.rejectedBy[node]);
    return {
      kinds, styles,
      legend: [[styles[0], `fits: ${whole(counts.get(-1) || 0)}`], ...order.slice(0, 12).map((by, at) => [styles[at + 1], `${shortText(verdict.clauses[by])}: ${whole(counts.get(by))}`])],
    };
  }
  if (state.colour === "change") {
    const styles = [{ fill: tint.line }, hatched, { fill: tint.heat[6], ink: tint.paper, pattern: "standing" }, { fill: tint.heat[8], ink: tint.paper, pattern: "lying" }, { fill: tint.good, ink: tint.paper, pattern: "rising" }, { fill: tint.bad, ink: tint.paper, pattern: "crossed" }];
    const counts = [0, 0, 0, 0, 0, 0];
    for (let node = 0; node < count; node++) {
      const now = verdict.total[node], then = before ? before.total[node] : now;
      const kind = now === null && then === null ? 1 : then === null ? 4 : now === null ? 5 : now - then > 1e-4 ? 2 : then - now > 1e-4 ? 3 : 0;
      kinds[node] = kind;
      counts[kind]++;
    }
    const texts = ["same", "rejected as before", "higher", "lower", "fits now", "rejected now"];
    return { kinds, styles, legend: styles.map((style, at) => [style, `${texts[at]}: ${whole(counts[at])}`]).filter((_, at) => counts[at]) };
  }

  const clause = /^clause:/.test(state.colour) ? verdict.clauses[Number(state.colour.slice(7))] : null;
  if (clause && clause.kind !== "score" && values) {
    const styles = [{ fill: tint.heat[4] }, { fill: tint.paper, ink: tint.bad, pattern: "falling" }, { fill: tint.line }];
    let passes = 0;
    for (let node = 0; node < count; node++) {
      kinds[node] = values[node] === null ? 2 : values[node] > 0 ? 0 : 1;
      passes += kinds[node] === 0;
    }
    return { kinds, styles, legend: [[styles[0], `passes: ${whole(passes)}`], [styles[1], `rejected: ${whole(count - passes)}`]] };
  }
  const shown = clause ? values || [] : verdict.total;
  let low = Infinity, high = -Infinity;
  for (const each of shown) {
    if (each === null) continue;
    if (each < low) low = each;
    if (each > high) high = each;
  }
  const styles = [...ramp, hatched];
  const span = high - low;
  let rejected = 0;
  for (let node = 0; node < count; node++) {
    const each = shown[node];
    if (each === null || each === undefined) {
      kinds[node] = LEVELS;
      rejected++;
    } else kinds[node] = span > 0 ? Math.min(LEVELS - 1, Math.floor(((each - low) / span) * LEVELS)) : LEVELS - 1;
  }
  const legend = low <= high ? (span > 0 ? [[styles[0], `lowest ${value(low)}`], [styles[3], value(low + span / 2)], [styles[LEVELS - 1], `highest ${value(high)}`]] : [[styles[LEVELS - 1], `all ${value(low)}`]]) : [];
  if (rejected) legend.push([hatched, `rejected: ${whole(rejected)}`]);
  return { kinds, styles, legend };
}

const shortText = (clause) => (clause ? (clause.text.length > 44 ? `${clause.text.slice(0, 43)}…` : clause.text) : "?");

function draw() {
  if (state.subject === "fleet") {
    showStale(state.stale);
    showClusters();
    return;
  }
  if (!state.names.length) return;
  const height = Math.max(320, Math.min(460, window.innerHeight * 0.5));
  const tint = colours();
  const side = look(state.verdict, state.values, state.before);
  map.fit(height);
  map.paint(side.kinds, side.styles, tint.quiet);
  showStale(state.stale && state.colour !== "time");
  const second = state.other ? look(state.against, state.otherValues, state.verdict) : null;
  if (second) {
    otherMap.fit(height);
    otherMap.paint(second.kinds, second.styles, tint.quiet);
  }
  showLegend(side.legend, second?.legend);
  mark();
  if (!$("table").hidden) showTable();
  showNode();
}

function showStale(isStale) {
  document.querySelector("main").classList.toggle("stale", isStale);
  mine.setStale(isStale);
  $("remedies").inert = isStale; // their edits are of another text
}

function mark() {
  const tint = colours();
  const chosen = state.colour === "time" ? -1 : (state.position.get(state.verdict?.chosen) ?? -1);
  const marked = [
    { node: chosen, colour: tint.good, ground: tint.paper, shape: "star" },
    { node: state.pinned, colour: tint.warn, ground: tint.paper, shape: "pin" },
    { node: pointed(), colour: tint.ink, ground: tint.paper, shape: "ring" },
  ];
  map.mark(marked);
  if (!state.other) return;
  const differ = [];
  if (state.against && state.verdict && state.colour !== "time") {
    for (let node = 0; node < state.names.length && differ.length < 2000; node++) {
      if ((state.verdict.total[node] === null) !== (state.against.total[node] === null)) differ.push({ node, colour: tint.series[3], ground: tint.paper, shape: "ring" });
    }
  }
  const theirs = state.position.get(state.against?.chosen) ?? -1;
  otherMap.mark([...differ, { node: state.colour === "time" ? -1 : theirs, colour: tint.good, ground: tint.paper, shape: "star" }, ...marked.slice(1)]);
}

function swatch(style) {
  const canvas = make("canvas", { width: 28, height: 28, "aria-hidden": "true" });
  const small = new NodeMap(document.createElement("div"));
  small.cells = canvas;
  Object.assign(small, { width: 14, size: 15.5, blocks: [], place: new Float32Array([0, 0]) });
  canvas.getContext("2d").setTransform(2, 0, 0, 2, 0, 0);
  small.paint(new Uint8Array(1), [style], "");
  return canvas;
}

function showLegend(found, theirs) {
  const marks = state.colour !== "time" && state.verdict?.chosen ? [`★ chosen: ${state.verdict.chosen}`] : [];
  if (state.other && state.against && state.colour !== "time") marks.push("outlined in B: fits in one of both only");
  const key = JSON.stringify([found, theirs, marks]);
  if ($("legend").dataset.key === key) return;
  $("legend").dataset.key = key;
  const entries = (side) => side.map(([style, text]) => make("li", {}, swatch(style), text));
  const letter = (text) => make("li", {}, make("strong", { textContent: text }));
  const sides = theirs && JSON.stringify(theirs) !== JSON.stringify(found) ? [letter("A"), ...entries(found), letter("B"), ...entries(theirs)] : entries(found);
  $("legend").replaceChildren(...sides, ...marks.map((text) => make("li", { textContent: text })));
}

function showColours() {
  const clauses = (state.verdict?.clauses || []).filter((each) => each.kind === "score" || each.rejects !== null);
  const wanted = [["total", "total"], ["rejected", "who rejected"], ["change", state.other ? "difference A to B" : "change since the last edit"]];
  if (state.simulation) wanted.push(["time", "use over time"]);
  for (const each of clauses) wanted.push([`clause:${each.index}`, `${each.line ? `line ${each.line}: ` : ""}${shortText(each)}`]);
  const key = JSON.stringify(wanted);
  const select = $("colour");
  if (select.dataset.key !== key) {
    select.dataset.key = key;
    select.replaceChildren(...wanted.map(([name, text]) => make("option", { value: name, textContent: text })));
  }
  if (!wanted.some(([name]) => name === state.colour)) state.colour = "total";
  select.value = state.colour;
}

$("colour").addEventListener("change", () => setColour($("colour").value));
async function setColour(name) {
  state.colour = name;
  state.values = state.otherValues = null;
  showColours();
  if (/^clause:/.test(name)) {
    await tried(async () => {
      const clause = Number(name.slice(7));
      const [own, theirs] = await Promise.all([
        ask("values", { files: state.files, pod: state.pod, clause }),
        state.against && clause < state.against.clauses.length ? ask("values", { files: { ...state.files, ...state.other }, pod: state.pod, clause, side: "against" }) : null,
      ]);
      if (state.colour !== name) return;
      state.values = own.values;
      state.otherValues = theirs?.values ?? null;
    });
  }
  draw();
}
$("group").addEventListener("change", arrange);
$("patterns").addEventListener("change", draw);
let fitting = 0;
new ResizeObserver(() => {
  cancelAnimationFrame(fitting);
  fitting = requestAnimationFrame(draw);
}).observe($("maps"));

// --- a node under the pointer, focused, pinned ----------------------------------------------------------

const sums = new Map();
const pointed = () => (state.hovered >= 0 ? state.hovered : state.focused);

function nodeLine(node) {
  const verdict = state.verdict;
  const name = state.names[node];
  if (state.colour === "time" && state.simulation) {
    const used = state.simulation.used[state.frame]?.[node];
    return used === null || used === undefined ? name : `${name}: ${Math.round(100 * used)} % used`;
  }
  if (!verdict) return name;
  const by = verdict.rejectedBy[node];
  return by >= 0 ? `${name}: rejected by ${shortText(verdict.clauses[by])}` : `${name}: ${value(verdict.total[node])}`;
}

function pointAt(node, x = 0, y = 0) {
  if (node !== state.hovered) {
    state.hovered = node;
    mark();
    showNode();
  }
  tip.hidden = node < 0;
  if (node < 0) return;
  tip.textContent = nodeLine(node);
  const room = map.width - tip.offsetWidth;
  tip.style.left = `${Math.max(0, Math.min(room, x + 12))}px`;
  tip.style.top = `${y > 40 ? y - 30 : y + 20}px`;
}

$("map-mine").addEventListener("pointermove", (event) => {
  const box = $("map-mine").getBoundingClientRect();
  pointAt(map.at(event.clientX - box.left, event.clientY - box.top), event.clientX - box.left, event.clientY - box.top);
});
$("map-mine").addEventListener("pointerleave", () => pointAt(-1));
$("map-mine").addEventListener("click", () => pin(state.hovered));
$("map-mine").addEventListener("focus", () => {
  if ($("map-mine").matches(":focus-visible")) focusNode(state.focused >= 0 ? state.focused : (state.position.get(state.verdict?.chosen) ?? map.beside(-1, "first")));
});
$("map-mine").addEventListener("blur", () => {
  state.focused = -1;
  mark();
});
const WAYS = { ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down", Home: "first", End: "last" };
$("map-mine").addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (WAYS[event.key]) focusNode(map.beside(state.focused, WAYS[event.key]));
  else if (event.key === "Enter" || event.key === " ") pin(state.focused);
  else if (event.key === "t") toggleTable();
  else if (event.key === "Escape") pin(-1);
  else return;
  event.preventDefault();
});

function focusNode(node) {
  state.focused = node;
  mark();
  showNode();
  if (node < 0) return;
  const where = map.position(node);
  cell.textContent = `${nodeLine(node)}${where.label ? `; ${where.label}` : ""}, row ${where.row}, column ${where.column}`;
}

function pin(node) {
  state.pinned = node === state.pinned ? -1 : node;
  mark();
  showNode();
}

let showing = 0;
/** Return the node that is told about: the pinned one, the one that is pointed at, else the one that is chosen. */
function shownNode() {
  if (state.pinned >= 0) return state.pinned;
  return pointed() >= 0 ? pointed() : (state.position.get(state.verdict?.chosen) ?? -1);
}

function showNode() {
  const node = shownNode();
  if (state.stale) return;
  clearTimeout(showing);
  if (node < 0 || node >= state.names.length) return void putHint();
  const name = state.names[node];
  const known = sums.get(name);
  if (known) return void putNode(node, known);
  showing = setTimeout(() => tried(async () => {
    const asked = number;
    const found = await ask("node", { files: state.files, pod: state.pod, node: name });
    if (asked !== number) return;
    sums.set(name, found);
    if (shownNode() === node) putNode(node, found);
  }), 60);
}

function putHint() {
  if ($("node").dataset.key === "") return;
  $("node").dataset.key = "";
  $("node").replaceChildren(make("p", { className: "quiet", textContent: "Point at a node for its sum; click or press Enter to pin it." }));
}

function putNode(node, found) {
  const pinned = node === state.pinned;
  const key = JSON.stringify([found, pinned]);
  if ($("node").dataset.key === key) return;
  $("node").dataset.key = key;
  const name = state.names[node];
  const by = state.verdict?.rejectedBy[node] ?? -1;
  const parts = [make("h3", { textContent: name })];
  parts.push(make("span", { className: found.passes ? "good" : "bad", textContent: found.passes ? `total ${value(found.total)}${found.rank ? `, rank ${whole(found.rank)}` : ""}` : "rejected" }));
  parts.push(" ", button(pinned ? "Unpin" : "Pin", () => {
    state.pinned = pinned ? -1 : node;
    mark();
    putNode(node, found);
  }));
  if (!found.passes && by >= 0) parts.push(make("p", {}, "by ", make("code", { textContent: state.verdict.clauses[by].text })));
  if (found.needs?.length) {
    parts.push(make("p", {}, make("strong", { textContent: "What would it need?" })));
    parts.push(make("ul", {}, ...found.needs.map((each) => make("li", { textContent: each }))));
  }
  if (found.sum.length) {
    const rows = found.sum.map((each) => {
      const line = state.verdict?.clauses[each.clause]?.line;
      const text = make("code", { textContent: each.text });
      return make("tr", {}, make("td", {}, text), make("td", { className: "quiet", textContent: line ? `line ${line}` : "" }), make("td", { className: "number", textContent: signed(each.value) + (each.unit ? ` ${each.unit}` : "") }));
    });
    if (found.total !== null) rows.push(make("tr", { className: "total" }, make("td", { textContent: "total" }), make("td"), make("td", { className: "number", textContent: value(found.total) })));
    parts.push(make("table", { "aria-label": `Sum of ${name}` }, make("tbody", {}, ...rows)));
  }
  if (pinned) {
    const facts = [["free", Object.entries(found.free || {}).map(([what, much]) => `${what} ${much}`).join(", ")], ["taints", (found.taints || []).join(", ")], ["labels", Object.entries(found.labels || {}).map(([a, b]) => `${a}=${b}`).join(", ")]];
    for (const [what, text] of facts) if (text) parts.push(make("p", { className: "quiet" }, `${what}: `, make("code", { textContent: text })));
  }
  $("node").replaceChildren(...parts);
}

// --- nodes as a table ------------------------------------------------------------------------------------

$("table-button").addEventListener("click", toggleTable);
function toggleTable() {
  const on = $("table").hidden;
  $("table").hidden = !on;
  $("maps").hidden = on;
  $("legend").hidden = on;
  $("table-button").setAttribute("aria-pressed", String(on));
  if (on) {
    showTable();
    $("find").focus();
  } else {
    refit();
    $("map-mine").focus();
  }
}
$("find").addEventListener("input", () => {
  state.page = 0;
  showTable();
});
$("earlier").addEventListener("click", () => turn(-1));
$("later").addEventListener("click", () => turn(1));
function turn(by) {
  state.page += by;
  showTable();
}

/** Return the rank of each total over all nodes: one more than there are nodes with a higher one. */
function rankByTotal(verdict) {
  const ranks = new Map();
  const totals = verdict.total.filter((each) => each !== null).sort((a, b) => b - a);
  totals.forEach((total, at) => ranks.has(total) || ranks.set(total, at + 1));
  return ranks;
}

function showTable() {
  const verdict = state.verdict;
  if (!verdict) return;
  const wanted = $("find").value.trim().toLowerCase();
  const order = [];
  for (let node = 0; node < state.names.length; node++) if (!wanted || state.names[node].toLowerCase().includes(wanted)) order.push(node);
  const of = (node) => verdict.total[node] ?? -Infinity;
  const chosen = state.position.get(verdict.chosen) ?? -1;
  order.sort((a, b) => of(b) - of(a) || Number(b === chosen) - Number(a === chosen) || a - b);
  const ranks = rankByTotal(verdict);
  const pages = Math.max(1, Math.ceil(order.length / PER_PAGE));
  state.page = Math.max(0, Math.min(state.page, pages - 1));
  const from = state.page * PER_PAGE;
  const zone = state.groups.zone;
  const rows = order.slice(from, from + PER_PAGE).map((node) => {
    const total = verdict.total[node], then = state.before?.total[node];
    const change = total !== null && then !== null && then !== undefined ? total - then : null;
    const by = verdict.rejectedBy[node];
    return make("tr", { className: state.names[node] === verdict.chosen ? "chosen" : "" },
      make("td", { className: "number", textContent: total === null ? "–" : whole(ranks.get(total)) }),
      make("th", { scope: "row" }, button(state.names[node], () => pin(node), { "aria-pressed": String(node === state.pinned) })),
      make("td", { textContent: zone ? zone.names[zone.of[node]] : "" }),
      make("td", { className: "number", textContent: value(total) }),
      make("td", { className: "number", textContent: change === null || Math.abs(change) < 1e-4 ? "" : signed(change) }),
      make("td", { textContent: by >= 0 ? shortText(verdict.clauses[by]) : "" }));
  });
  const kept = document.activeElement?.closest("#rows") ? document.activeElement.textContent : null;
  $("rows").replaceChildren(...rows);
  if (kept) [...$("rows").querySelectorAll("button")].find((each) => each.textContent === kept)?.focus();
  $("range").textContent = order.length ? `${whole(from + 1)} to ${whole(Math.min(order.length, from + PER_PAGE))} of ${whole(order.length)}` : "none";
  $("earlier").disabled = !state.page;
  $("later").disabled = state.page >= pages - 1;
}

// --- the workload and the clusters of a fleet -----------------------------------------------------------

const FLEET_FILE = "fleet.yaml";
const workload = () => ({ yaml: $("fleet-yaml").value, file: state.file });

/** Show what the policies decide: a pod on nodes, or a workload on clusters; null: what was shown before. */
function setSubject(subject) {
  if (!subject || subject === state.subject) return;
  state.subject = subject;
  const isFleet = subject === "fleet";
  document.querySelector("main").classList.toggle("fleet", isFleet);
  for (const id of ["nodes", "pod", "time", "inputs-button", "command-button"]) $(id).hidden = isFleet;
  for (const id of ["clusters", "workload"]) $(id).hidden = !isFleet;
  $("share-cluster").closest("p").hidden = isFleet;
  play(false);
  showWhere();
  if (!isFleet) refit();
}

const shares = (clusters) => Object.entries(clusters).map(([name, replicas]) => (replicas ? `${name} ${whole(replicas)}` : name)).join(", ");
/** Return what is decided for the workload, in a sentence. */
function outcome(fleet) {
  if (!fleet) return "the policies have errors.";
  const by = fleet.policy === null ? "No policy governs this workload; its Placement decides" : `Policy ${fleet.policy}`;
  return fleet.placed ? `${by}: ${shares(fleet.clusters) || "nowhere"}.` : `${by}: ${fleet.message}`;
}

function showFleetErrors(found) {
  const text = $("fleet-yaml").value;
  const line = (each) => text.slice(0, toEditor(text, each.start)).split("\n").length;
  $("fleet-error").textContent = found.map((each) => `line ${line(each)}: ${said(each)}`).join("\n");
  $("fleet-yaml").setAttribute("aria-invalid", String(found.length > 0));
}

const FACTS = ["region", "zone", "provider", "price", "cpu", "mem", "pods", "labels"]; // in the order of the headings
/** What a cluster has free is said in the cell of what it has: the name of the resource by the key of the cell. */
const MOST_CLUSTERS = 200; // rows of the table, those that have or get replicas before others
const FREE = { cpu: "cpu", mem: "memory", pods: "pods" };

function showClusters() {
  const fleet = state.fleet;
  if (!fleet) return;
  showWhere();
  for (const field of workloadFields()) if (field !== document.activeElement) field.value = fleet.workload[field.name];
  const key = JSON.stringify([fleet.rows, state.against?.clusters ?? null, Boolean(state.other)]);
  if ($("cluster-rows").dataset.key === key) return;
  $("cluster-rows").dataset.key = key;
  $("other-gets").hidden = !state.other;
  const kept = document.activeElement?.closest("#cluster-rows") ? document.activeElement.getAttribute("aria-label") : null;
  const counts = (row) => row.gets || row.has;
  const rest = MOST_CLUSTERS - fleet.rows.filter(counts).length;
  let others = 0;
  const rows = fleet.rows.filter((row) => counts(row) || others++ < rest).slice(0, MOST_CLUSTERS);
  $("cluster-rows").replaceChildren(...rows.map(clusterRow));
  $("clusters-left").textContent = rows.length < fleet.rows.length ? `and ${many(fleet.rows.length - rows.length, "more cluster")}: edit them in the text, and see below what becomes of them` : "";
  if (kept) [...$("cluster-rows").querySelectorAll("input")].find((each) => each.getAttribute("aria-label") === kept)?.focus();
}

function clusterRow(row) {
  const number = (text) => make("td", { className: "number", textContent: text });
  const why = row.rejectedBy ? [make("span", { className: "bad", textContent: "rejected by " }), make("code", { textContent: row.rejectedBy }), `: ${row.why}`] : [row.why];
  const cells = FACTS.map((key) => {
    const free = row.free[FREE[key]];
    return make("td", { className: key }, fact(row, key), free ? make("span", { className: "quiet small", textContent: `${free} free` }) : null);
  });
  const theirs = state.other ? number(whole(state.against?.clusters?.[row.cluster] ?? 0)) : null;
  const room = row.room === null ? "–" : `${whole(row.room)} (${row.roomBy || "nobody counted"})`;
  return make("tr", { className: row.gets ? "chosen" : "" },
    make("th", { scope: "row", textContent: row.cluster }),
    number(whole(row.gets)), theirs, number(whole(row.has)), number(room), scoreCell(row),
    make("td", { className: "why" }, ...why),
    make("td", {}, make("input", { type: "checkbox", checked: row.ready, "aria-label": `${row.cluster} is ready`, on: { change: (event) => editCluster(row.cluster, "ready", String(event.target.checked)) } })),
    ...cells);
}

/** Return the score of a cluster, with what each clause adds to it if several do. */
function scoreCell(row) {
  const short = (value) => String(Number(value.toPrecision(6)));
  const parts = row.score === null ? [] : Object.entries(row.points);
  const text = parts.map(([clause, points]) => `${clause}: ${short(points)}`).join("\n");
  return make("td", { className: "number" }, row.score === null ? "–" : short(row.score), parts.length > 1 ? make("span", { className: "quiet small points", textContent: text }) : null);
}

function fact(row, key) {
  const text = row.facts[key];
  if (text === null) return make("span", { className: "quiet", textContent: "several, in the text" });
  return make("input", { type: "text", value: text, autocomplete: "off", spellcheck: false, "aria-label": `${key} of ${row.cluster}`, on: { change: (event) => editCluster(row.cluster, key, event.target.value) } });
}

let editing = Promise.resolve(); // edits of the table and the fields, one after the other: each is of the text that the one before left
function editCluster(cluster, key, text, error = "cluster-error") {
  editing = editing.then(async () => {
    try {
      const before = $("fleet-yaml").value;
      const { yaml } = await ask("edit-fleet", { yaml: before, cluster, key, value: text });
      if ($("fleet-yaml").value !== before) throw new Refused("the text was changed meanwhile: edit the value again");
      $("fleet-yaml").value = yaml;
      $(error).textContent = "";
      changed();
    } catch (refused) {
      if (!(refused instanceof Refused)) throw refused;
      $(error).textContent = refused.message;
    }
  });
}
const workloadFields = () => $("workload-fields").querySelectorAll("input");
for (const field of workloadFields()) field.addEventListener("change", () => editCluster(null, field.name, field.value, "workload-error"));
let writingFleet = 0;
$("fleet-yaml").addEventListener("input", () => {
  clearTimeout(writingFleet);
  writingFleet = setTimeout(changed, 60);
});

// --- the pod and why --------------------------------------------------------------------------------------

$("pods").addEventListener("change", () => {
  choosePod($("pods").value);
  if (!$("pods").value) $("yaml").focus();
});
async function choosePod(key) {
  if (!key) {
    $("pods").value = "";
    state.pod = { yaml: $("yaml").value };
  } else {
    $("pods").value = key;
    state.pod = { key };
    await tried(async () => {
      const listed = state.pods.find((each) => each.key === key);
      $("yaml").value = listed?.yaml ?? (await ask("pod", { key })).yaml;
    });
  }
  state.before = null;
  evaluate();
}
let writing = 0;
$("yaml").addEventListener("input", () => {
  state.pod = { yaml: $("yaml").value };
  $("pods").value = "";
  clearTimeout(writing);
  writing = setTimeout(changed, 60);
});

let explaining = 0;
function explainLater() {
  clearTimeout(explaining);
  explaining = setTimeout(() => tried(explain), 400); // the next key must not wait for it
}
async function explain() {
  const asked = number, isFleet = state.subject === "fleet";
  if (isFleet && state.stale) return void $("reason").replaceChildren(make("p", { className: "lead", textContent: "The policies or the fleet have errors: correct them first." }));
  const found = isFleet ? { text: state.fleet.text, remedies: [] } : await ask("why", { files: state.files, pod: state.pod });
  if (asked !== number) return;
  // sentences wrap, tables do not
  const at = found.text.indexOf("\n\n");
  const [sentences, tables] = at < 0 ? [found.text, ""] : [found.text.slice(0, at), found.text.slice(at + 2)];
  $("reason").replaceChildren(make("p", { className: "lead", textContent: sentences }), ...(tables ? [make("pre", { textContent: tables })] : []));
  $("remedies").replaceChildren(...found.remedies.map(remedy));
}
function remedy(found) {
  let act = null;
  if (found.edits?.length) act = button(found.title, () => apply(found.edits));
  else if (found.yaml) {
    act = button(found.title, () => {
      $("yaml").value = found.yaml;
      $("yaml").dispatchEvent(new Event("input"));
    });
  } else act = button(`Copy: ${found.title}`, () => copy(found.command, `Copied: ${found.command}`), { title: found.command });
  return make("li", {}, act, make("span", { className: "quiet", textContent: found.detail || "" }));
}

// --- time ---------------------------------------------------------------------------------------------------

$("simulate-button").addEventListener("click", () => tried(simulate));
async function simulate() {
  $("simulate-button").disabled = true;
  $("summary").textContent = "Simulating…";
  try {
    state.simulation = await ask("simulate", { page: PAGE, files: state.files, seed: Number($("seed").value) || 0 });
  } catch (error) {
    $("summary").textContent = "";
    throw error;
  } finally {
    $("simulate-button").disabled = false;
  }
  const frames = state.simulation.frames.length;
  $("track").hidden = $("player").hidden = !frames;
  $("when").max = Math.max(0, frames - 1);
  const { arrived, placed, evicted, waiting, reasons } = state.simulation.summary;
  const counts = [`${many(arrived, "pod")} arrived`, `${whole(placed)} placed`, `${whole(evicted)} evicted`, `${whole(waiting)} pending in the end`];
  $("summary").textContent = [counts.join(", "), ...Object.entries(reasons || {}).map(([text, pods]) => `Rejected ${many(pods, "pod")}: ${text}`)].join(". ");
  state.colour = "time";
  showColours();
  toFrame(0);
}

function toFrame(at) {
  const { frames } = state.simulation;
  state.frame = Math.max(0, Math.min(frames.length - 1, at));
  const frame = frames[state.frame];
  if (!frame) return;
  $("when").value = state.frame;
  const gone = frame.gone?.length ? `, ${many(frame.gone.length, "pod")} gone` : "";
  const text = `${clock(frame.at)}: ${many(frame.bound.length, "pod")} bound${gone}; step ${whole(state.frame + 1)} of ${whole(frames.length)}`;
  $("moment").textContent = text;
  $("when").setAttribute("aria-valuetext", text);
  const events = [...frame.bound.map(([pod, node]) => `${pod} → ${node}`), ...(frame.gone || []).map((pod) => `${Array.isArray(pod) ? pod[0] : pod} gone`)];
  $("events").replaceChildren(...events.slice(0, 200).map((each) => make("li", { textContent: each })));
  if (events.length > 200) $("events").append(make("li", { className: "quiet", textContent: `and ${whole(events.length - 200)} more` }));
  if (state.colour !== "time") {
    state.colour = "time";
    showColours();
  }
  draw();
}
const clock = (seconds) => {
  const at = Math.round(seconds);
  return at < 3600 ? `${Math.floor(at / 60)}:${String(at % 60).padStart(2, "0")}` : `${Math.floor(at / 3600)}:${String(Math.floor((at % 3600) / 60)).padStart(2, "0")}:${String(at % 60).padStart(2, "0")}`;
};

let playing = 0;
function play(on = !playing) {
  clearInterval(playing);
  playing = 0;
  if (on && state.simulation) {
    if (state.frame >= state.simulation.frames.length - 1) toFrame(0);
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    playing = setInterval(() => {
      if (state.frame >= state.simulation.frames.length - 1) play(false);
      else toFrame(state.frame + 1);
    }, still ? 2 * STEP_MS : STEP_MS / 2);
  }
  $("play").textContent = playing ? "Pause" : "Play";
  $("play").setAttribute("aria-pressed", String(Boolean(playing)));
  $("moment").setAttribute("aria-live", playing ? "off" : "polite");
}
$("play").addEventListener("click", () => play());
$("back").addEventListener("click", () => toFrame(state.frame - 1));
$("forward").addEventListener("click", () => toFrame(state.frame + 1));
$("when").addEventListener("input", () => toFrame(Number($("when").value)));

// --- sharing, tests, commands ---------------------------------------------------------------------------------

async function copy(text, said) {
  try {
    await navigator.clipboard.writeText(text);
    say(said, "good");
  } catch {
    say(text);
  }
}
$("command-button").addEventListener("click", () => tried(async () => copy((await ask("command", { files: state.files, pod: state.pod })).command, "Copied the command.")));

const MOST_SHARED = 4_000_000;
async function expand(packed) {
  try {
    const bytes = Uint8Array.from(atob(packed.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0));
    const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
    const parts = [];
    let size = 0;
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      size += part.value.length;
      if (size > MOST_SHARED) throw new Refused("the link holds more than 4 MB");
      parts.push(part.value);
    }
    return await new Blob(parts).text();
  } catch (error) {
    if (error instanceof Refused) throw error;
    throw new Refused("this is not a link of the playground");
  }
}

let shared = "";
$("share-button").addEventListener("click", () => tried(share));
async function share() {
  const found = await ask("share", { files: state.files, pod: state.pod, cluster: state.subject === "pod" && $("share-cluster").checked, fleet: state.subject === "fleet" ? $("fleet-yaml").value : "" });
  shared = found.file;
  $("share-link").value = found.link || "";
  $("share-copy").disabled = !found.link;
  $("share-note").textContent = found.link
    ? "The receiver opens the link in a playground: Open…, What somebody shared."
    : "A link would be longer than many programs take: save the file.";
  if (!$("share").open) $("share").showModal();
}
$("share-cluster").addEventListener("change", () => tried(share));
$("share-copy").addEventListener("click", () => tried(async () => {
  $("share-link").select();
  await navigator.clipboard.writeText($("share-link").value).then(() => ($("share-note").textContent = "Copied."), () => document.execCommand("copy"));
}));
$("share-save").addEventListener("click", () => {
  const link = make("a", { href: URL.createObjectURL(new Blob([shared], { type: "application/json" })), download: "playground.json" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
});

async function takeShared(text) {
  let read;
  try {
    read = JSON.parse(text);
  } catch {
    read = null;
  }
  const files = read?.files;
  const listed = Array.isArray(files) ? Object.fromEntries(files.map((each) => [each.name, each.text])) : files;
  if (!listed || typeof listed !== "object" || !Object.keys(listed).length || Object.values(listed).some((each) => typeof each !== "string")) throw new Refused("this is not a file of the playground: it has no `files`");
  state.files = { ...listed };
  if (typeof read.fleet === "string" && read.fleet) $("fleet-yaml").value = read.fleet;
  mine.forget();
  showFile(Object.keys(listed)[0]);
  if (typeof read.pod?.yaml === "string") {
    $("yaml").value = read.pod.yaml;
    $("pods").value = "";
    state.pod = { yaml: read.pod.yaml };
  } else if (read.pod?.key && state.pods.some((each) => each.key === read.pod.key)) {
    $("pods").value = read.pod.key;
    await choosePod(read.pod.key);
  }
  changed();
}

$("open-button").addEventListener("click", () => {
  $("open-error").textContent = "";
  $("open").showModal();
});
$("open").addEventListener("submit", (event) => {
  if (event.submitter?.id !== "open-do") return;
  event.preventDefault();
  open().then(() => $("open").close(), (error) => {
    if (!(error instanceof Refused)) throw error;
    $("open-error").textContent = error.message;
  });
});
async function open() {
  if ($("open-live").checked) {
    const found = await ask("open", { live: true });
    return begin({ ...found, files: Object.entries(state.files).map(([name, text]) => ({ name, text })) }, state.saved);
  }
  const file = $("open-file").files[0], link = $("open-link").value.trim(), path = $("open-path").value.trim();
  const example = state.examples[Number($("open-example").value) - 1];
  if (example) {
    state.files = { ...example.files };
    $("open-example").value = "";
    mine.forget();
    showFile(Object.keys(example.files)[0]);
    changed();
  } else if (file) {
    if (file.size > MOST_SHARED) throw new Refused("the file has more than 4 MB");
    await takeShared(await file.text());
  } else if (link) {
    const packed = /[#&]share=([\w-]+)/.exec(link);
    if (!packed) throw new Refused("the link has no `#share=`");
    await takeShared(await expand(packed[1]));
  } else if (path) {
    const found = await ask("open", { path });
    begin({ ...found, files: Object.entries(state.files).map(([name, text]) => ({ name, text })) }, state.saved);
  } else throw new Refused("choose an example or your cluster, name a snapshot, choose a file, or paste a link");
}

$("inputs-button").addEventListener("click", () => tried(async () => {
  const found = await ask("inputs", { files: state.files });
  $("inputs-now").value = found.now;
  $("inputs-metrics").value = found.metrics;
  $("inputs-error").textContent = "";
  $("inputs").showModal();
}));
$("inputs").addEventListener("submit", (event) => {
  if (event.submitter?.id !== "inputs-do") return;
  event.preventDefault();
  ask("assume", { now: $("inputs-now").value.trim(), metrics: $("inputs-metrics").value }).then((found) => {
    $("inputs").close();
    renew(found);
  }, (error) => {
    if (!(error instanceof Refused)) throw error;
    $("inputs-error").textContent = error.message;
  });
});

$("test-button").addEventListener("click", () => {
  $("test-error").textContent = "";
  $("test-text").hidden = true;
  $("test-path").value ||= `${(state.file || "playground").replace(/\.policy$/, "")}.test.yaml`;
  $("test").showModal();
});
$("test").addEventListener("submit", (event) => {
  if (event.submitter?.id !== "test-do") return;
  event.preventDefault();
  $("test-error").textContent = "";
  $("test-do").disabled = true;
  $("test-do").textContent = "Finding the smallest test…";
  const asked = { files: state.files, pod: state.pod, workload: state.subject === "fleet" ? workload() : null, path: $("test-path").value, replace: $("test-replace").checked };
  ask("save-test", asked).then((found) => {
    $("test-text").textContent = found.text;
    $("test-text").hidden = false;
    if (found.saved) say(`Saved ${found.path}.`, "good");
    else $("test-error").textContent = "not saved";
  }, (error) => {
    $("test-error").textContent = error.message;
  }).finally(() => {
    $("test-do").disabled = false;
    $("test-do").textContent = "Save";
  });
});

// --- keyboard --------------------------------------------------------------------------------------------------

/** The parts of the page, and how each is entered. */
const PANES = [
  ["policy", () => mine.focus()],
  ["workload", () => $("fleet-yaml").focus()],
  ["clusters", () => $("cluster-table").focus()],
  ["nodes", () => ($("table").hidden ? $("map-mine") : $("find")).focus()],
  ["pod", () => $("yaml").focus()],
  ["why", () => $("reason").focus()],
  ["time", () => $("simulate-button").focus()],
];
function pane(by) {
  const shown = PANES.filter(([id]) => !$(id).hidden);
  const now = shown.findIndex(([id]) => $(id).contains(document.activeElement));
  shown[now < 0 ? 0 : (now + by + shown.length) % shown.length][1]();
}
const inText = () => document.activeElement?.closest(".editor, textarea, input, select, dialog") !== null;

/** Keys: [what is shown, does it apply?, act, what it does]. */
const KEYS = [
  ["?", (event) => event.key === "?" && !inText(), () => $("help").showModal(), "show these shortcuts"],
  ["F1", (event) => event.key === "F1", () => $("help").showModal(), "the same, also while you write"],
  ["F6, Shift+F6", (event) => event.key === "F6", (event) => pane(event.shiftKey ? -1 : 1), "next, previous part of the page"],
  ["Ctrl+S", (event) => mod(event, "s"), () => tried(() => save(state.file)), "save the policy file"],
  ["Ctrl+Space", () => false, null, "complete"],
  ["Ctrl+.", (event) => mod(event, "."), () => $("problems").querySelector(".fix")?.click(), "apply the first quick fix"],
  ["F8", (event) => event.key === "F8", () => mine.next(), "next problem"],
  ["Shift+Alt+F", (event) => event.shiftKey && event.altKey && event.code === "KeyF", () => tried(format), "format"],
  ["Alt+1 … Alt+9", (event) => event.altKey && /^Digit[1-9]$/.test(event.code), (event) => {
    const name = Object.keys(state.files)[Number(event.code.slice(5)) - 1];
    if (name) showFile(name);
  }, "show a file"],
  ["Alt+C", (event) => event.altKey && event.code === "KeyC", () => {
    const select = $("colour");
    setColour(select.options[(select.selectedIndex + 1) % select.options.length].value);
  }, "colour the map by the next thing"],
  ["Alt+B", (event) => event.altKey && event.code === "KeyB", compare, "compare two policies"],
  ["Alt+T", (event) => event.altKey && event.code === "KeyT", toggleTable, "nodes as a table or as a map"],
  ["Arrows, Home, End", () => false, null, "on the map: go to another node"],
  ["Enter, Escape", () => false, null, "on the map: pin the node, unpin it"],
  ["Alt+P", (event) => event.altKey && event.code === "KeyP", () => (state.simulation ? play() : tried(simulate)), "simulate; then play, pause"],
  ["Alt+, Alt+.", (event) => event.altKey && (event.code === "Comma" || event.code === "Period") && state.simulation, (event) => toFrame(state.frame + (event.code === "Comma" ? -1 : 1)), "one step back, on"],
];
const mod = (event, key) => (event.ctrlKey || event.metaKey) && !event.altKey && event.key === key;
document.addEventListener("keydown", (event) => {
  const found = KEYS.find(([, applies]) => applies(event));
  if (!found) return;
  event.preventDefault();
  found[2](event);
}, true);
$("shortcuts").replaceChildren(...KEYS.map(([keys, , , does]) => make("tr", {}, make("th", { scope: "row" }, make("kbd", { textContent: keys })), make("td", { textContent: does }))));
$("help-button").addEventListener("click", () => $("help").showModal());

// --- the beginning ---------------------------------------------------------------------------------------------

const SOURCES = { fixture: "example", snapshot: "snapshot, read-only", live: "live, read-only" };

function begin(found, saved) {
  state.verdict = state.against = state.before = state.simulation = null;
  state.pinned = state.focused = state.hovered = -1;
  state.groups.gang = null;
  state.pod = { key: null };
  play(false);
  $("track").hidden = $("player").hidden = true;
  state.files = Object.fromEntries(found.files.map((each) => [each.name, each.text]));
  state.saved = saved || { ...state.files };
  if (!saved) takeDrafts();
  setCluster(found);
  state.examples = found.examples;
  $("open-example").replaceChildren(make("option", { value: "", textContent: "none" }), ...found.examples.map((each, at) => make("option", { value: String(at + 1), textContent: each.title })));
  $("fleet-yaml").value ||= found.fleet;
  if ($("group").selectedOptions[0].disabled || (state.groups.zone?.names.length ?? 0) < 2) $("group").value = state.groups.zone && state.groups.zone.names.length > 1 ? "zone" : "none";
  setNames(found.names, found.namesVersion);
  mine.forget();
  showFile(Object.keys(state.files)[0]);
  showColours();
  if (found.pod?.yaml) $("yaml").value = found.pod.yaml;
  return choosePod(found.pod ? found.pod.key ?? "" : found.pods[0]?.key ?? "");
}

function setCluster(found) {
  state.cluster = found.cluster;
  state.clusterVersion = found.namesVersion;
  state.pods = found.pods;
  state.groups.zone = found.zones || null;
  state.groups.rack = found.racks || null;
  const { source } = found.cluster;
  showWhere();
  for (const option of $("group").options) option.hidden = option.disabled = option.value !== "none" && !state.groups[option.value];
  $("pods").replaceChildren(...found.pods.map((each) => make("option", { value: each.key, textContent: `${each.key} (${each.node ? `on ${each.node}` : each.phase.toLowerCase()})` })), make("option", { value: "", textContent: "a pod that you write" }));
  $("pods").value = state.pod.key ?? "";
  $("follow-label").hidden = source !== "live";
  if (source !== "live") follow(false);
  state.read = performance.now();
  state.unreachable = null;
  showAge();
}

/** Say where it is decided: in which cluster, or on how many clusters. */
function showWhere() {
  const { name, nodes, pods, source } = state.cluster;
  const where = state.subject === "fleet" ? many(state.fleet?.rows.length ?? 0, "cluster") : `${name ? `${name}: ` : ""}${many(nodes, "node")}, ${many(pods, "pod")} `;
  const tag = state.subject === "fleet" ? null : make("span", { className: "tag", textContent: SOURCES[source] || source });
  $("cluster").replaceChildren(where, ...(tag ? [tag] : []));
  $("freshness").hidden = state.subject === "fleet" || !state.cluster.again;
}

// --- how old the cluster is ------------------------------------------------------------------------------------

const FOLLOW_MS = 10_000;
const ago = (seconds) => (seconds < 90 ? `${whole(seconds)} s` : seconds < 5400 ? `${whole(seconds / 60)} min` : seconds < 129600 ? `${whole(seconds / 3600)} h` : many(Math.round(seconds / 86400), "day"));
function showAge() {
  const cluster = state.cluster;
  if (!cluster) return;
  const now = performance.now();
  const age = cluster.age === null ? "" : `${cluster.source === "live" ? "listed" : "taken"} ${ago(cluster.age + (now - state.read) / 1000)} ago`;
  const trouble = state.unreachable && `not reachable for ${ago((now - state.unreachable.since) / 1000)}${following ? ", trying again" : ""}: ${state.unreachable.why}`;
  $("age").textContent = [age, trouble].filter(Boolean).join("; ");
  $("age").className = trouble ? "bad" : "quiet";
}
setInterval(showAge, 5000);

let reading = false;
async function readAgain() {
  if (reading) return;
  reading = true;
  $("again").disabled = true;
  try {
    renew(await ask("refresh"));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    state.unreachable = { since: state.unreachable?.since ?? performance.now(), why: error.message };
    showAge();
  } finally {
    reading = false;
    $("again").disabled = false;
  }
}
/** Show the same cluster as it is by now; what was chosen stays. */
function renew(found) {
  const pinned = state.names[state.pinned];
  const same = found.names.length === state.names.length && found.names.every((name, at) => name === state.names[at]);
  setCluster(found);
  if (same) {
    state.namesVersion = found.namesVersion;
    arrange();
  } else {
    state.hovered = state.focused = -1;
    state.pinned = found.names.indexOf(pinned);
    play(false);
    state.simulation = null;
    $("track").hidden = $("player").hidden = true;
    if (state.colour === "time") state.colour = "total";
    if (state.stale) {
      state.verdict = null; // it is of other nodes
      setNames(found.names, found.namesVersion);
    }
  }
  sums.clear();
  state.before = state.verdict;
  if (state.pod.key && !state.pods.some((each) => each.key === state.pod.key)) choosePod(state.pods[0]?.key ?? "");
  else evaluate();
}
let following = 0;
function follow(on) {
  clearInterval(following);
  following = on ? setInterval(() => document.hidden || readAgain(), FOLLOW_MS) : 0;
  $("follow").checked = on;
  showAge();
}
$("again").addEventListener("click", readAgain);
$("follow").addEventListener("change", () => {
  follow($("follow").checked);
  if (following) readAgain();
});

async function start() {
  if (!token) throw new Refused("this address has no token: start policyctl playground, and open the address that it prints; a link is opened there with Open…");
  await begin(await ask("state"));
  const packed = /&share=([\w-]+)/.exec(fragment);
  if (packed) await takeShared(await expand(packed[1]));
}
addEventListener("beforeunload", (event) => {
  if (Object.entries(state.files).some(([name, text]) => name in state.saved && text !== state.saved[name])) event.preventDefault();
});
tried(start);
