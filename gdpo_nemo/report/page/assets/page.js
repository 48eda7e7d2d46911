"use strict";
// Text from models reaches the page through textContent only. No markup is built from data here.
const data = JSON.parse(document.getElementById("data").textContent);
const dialog = document.getElementById("trace");

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

function fill(parent, ...children) {
  parent.replaceChildren(...children);
  return parent;
}

// ---- arms

const hiddenArms = new Set();

function showArms() {
  for (const element of document.querySelectorAll("#curves [data-arm]")) {
    element.toggleAttribute("hidden", hiddenArms.has(element.dataset.arm));
  }
}

for (const box of document.querySelectorAll(".arms input:not(:disabled)")) {
  box.checked = box.defaultChecked; // whatever a reload remembers
  if (!box.checked) hiddenArms.add(box.value);
  box.addEventListener("change", () => {
    if (box.checked) hiddenArms.delete(box.value);
    else hiddenArms.add(box.value);
    showArms();
  });
}

showArms();

// ---- a step of the curves

const stepper = document.getElementById("step");
const panels = [...document.querySelectorAll("#curves figure")];

function nearest(steps, wanted) {
  let best = 0;
  for (let i = 1; i < steps.length; i++) {
    if (Math.abs(steps[i] - wanted) < Math.abs(steps[best] - wanted)) best = i;
  }
  return best;
}

function readout(wanted) {
  document.getElementById("step-value").textContent = String(wanted);
  for (const figure of panels) {
    const panel = data.panels[Number(figure.dataset.panel)];
    const at = nearest(panel.steps, wanted);
    const axis = panel.axis;
    const x = axis.left + (panel.steps[at] - axis.first) / Math.max(axis.last - axis.first, 1) * (axis.right - axis.left);
    const cursor = figure.querySelector(".cursor");
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    cursor.removeAttribute("hidden");
    const lines = [];
    for (const [arm, values] of Object.entries(panel.arms)) {
      if (!values[at]) continue;
      const [low, middle, high] = values[at];
      const line = make("li");
      line.dataset.arm = arm;
      const span = low === high ? "" : ` [${low}, ${high}]`;
      line.append(make("span", undefined, `swatch arm${data.arms[arm].colour}`), `${data.arms[arm].label}: ${middle}${span}`);
      lines.push(line);
    }
    fill(figure.querySelector(".readout"), ...lines);
  }
  showArms();
}

if (stepper) {
  stepper.addEventListener("input", () => readout(Number(stepper.value)));
  for (const figure of panels) {
    const chart = figure.querySelector("svg");
    const follow = (event) => {
      const axis = data.panels[Number(figure.dataset.panel)].axis;
      const box = chart.getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width * axis.width;
      const share = Math.min(Math.max((x - axis.left) / (axis.right - axis.left), 0), 1);
      stepper.value = String(Math.round(axis.first + share * (axis.last - axis.first)));
      readout(Number(stepper.value));
    };
    chart.addEventListener("pointermove", follow);
    chart.addEventListener("pointerdown", follow);
  }
  readout(Number(stepper.value));
}

// ---- from a cell down to its samples

function valueText(value, codes) {
  if (value !== null && value !== undefined) return String(value);
  return codes?.includes("does_not_apply") ? "does not apply" : "ungraded";
}

function block(name, text) {
  const pre = make("pre", text);
  pre.tabIndex = 0;
  pre.dir = "auto";
  return [make("h4", name), pre];
}

function sampleView(sample) {
  const question = data.questions[sample.question];
  const view = make("details");
  const head = make("summary", `${question.row_id} · ${sample.run}` + (sample.index ? ` · sample ${sample.index}` : ""));
  for (const [name, value] of Object.entries(sample.values)) head.append(make("span", `${name} ${valueText(value, sample.reasons[name])}`, "chip"));
  if (sample.truncated) head.append(make("span", "cut at the length limit", "chip"));
  view.append(head);
  view.addEventListener("toggle", () => {
    if (!view.open || view.querySelector(".said")) return;
    const said = make("div", undefined, "said");
    for (const [role, content] of question.messages) said.append(...block(`Prompt: ${role}`, content));
    const tokens = sample.length_tokens === null ? "" : ` (${sample.length_tokens} tokens)`;
    said.append(...block(`Response${tokens}`, sample.response), ...block("Reference", question.gold));
    for (const [name, codes] of Object.entries(sample.reasons)) {
      if (codes.length) said.append(make("p", `${name}: ${codes.join(", ")}`));
    }
    const place = make("p", undefined, "faint");
    place.append(make("code", sample.path));
    said.append(place);
    view.append(said);
  });
  return view;
}

function sampleOrder(trace, order) {
  const samples = trace.samples.map((i) => data.samples[i]);
  if (order === "drawn") return samples;
  const value = (sample) => sample.values[trace.score] ?? -Infinity;
  return samples.sort((a, b) => (order === "lowest" ? value(a) - value(b) : value(b) - value(a)) || 0);
}

function sampleList(trace) {
  const part = make("section");
  part.append(make("h3", "Samples"), make("p", trace.words, "faint"));
  const list = make("div");
  list.className = "samples";
  if (trace.samples.length > 1) {
    const label = make("label", "Order: ");
    const select = make("select");
    for (const [value, text] of [["drawn", "as drawn"], ["lowest", `lowest ${trace.score} first`], ["highest", `highest ${trace.score} first`]]) {
      const option = make("option", text);
      option.value = value;
      select.append(option);
    }
    select.addEventListener("change", () => fill(list, ...sampleOrder(trace, select.value).map(sampleView)));
    label.append(select);
    part.append(label);
  }
  fill(list, ...sampleOrder(trace, "drawn").map(sampleView));
  part.append(list);
  if (trace.files.length) {
    const files = make("ul", undefined, "faint");
    for (const path of trace.files) {
      const item = make("li");
      item.append(make("code", path));
      files.append(item);
    }
    part.append(make("p", "All of them:", "faint"), files);
  }
  return part;
}

function runTable(trace) {
  const part = make("section");
  part.append(make("h3", "Runs"));
  const scroll = make("div", undefined, "scroll");
  scroll.tabIndex = 0;
  const table = make("table");
  const head = make("tr");
  for (const name of ["run", "value", "state", "folder"]) head.append(make("th", name));
  table.append(fill(make("thead"), head));
  const body = make("tbody");
  for (const run of trace.runs) {
    const row = make("tr");
    row.append(make("th", run.name), make("td", run.value), make("td", run.state));
    const cell = make("td");
    cell.append(make("code", run.path));
    row.append(cell);
    body.append(row);
  }
  table.append(body);
  scroll.append(table);
  part.append(scroll);
  return part;
}

function openTrace(key) {
  const trace = data.traces[key];
  document.getElementById("trace-title").textContent = trace.title;
  const facts = make("dl", undefined, "facts");
  for (const [name, value] of trace.facts) facts.append(make("dt", name), make("dd", value));
  fill(document.getElementById("trace-body"), facts, runTable(trace), sampleList(trace));
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
}

let cameFromPage = false;

function follow() {
  const hash = location.hash.startsWith("#cell=") ? location.hash.slice(6) : null;
  let key = null;
  try {
    key = hash === null ? null : decodeURIComponent(hash);
  } catch (error) {
    if (!(error instanceof URIError)) throw error;
  }
  if (key !== null && Object.hasOwn(data.traces, key)) openTrace(key);
  else if (dialog.open) dialog.close();
}

for (const link of document.querySelectorAll('a[href^="#cell="]')) {
  link.addEventListener("click", () => { cameFromPage = true; });
}
dialog.addEventListener("close", () => {
  if (!location.hash.startsWith("#cell=")) return;
  if (cameFromPage) history.back();
  else history.replaceState(null, "", location.href.split("#")[0]);
  cameFromPage = false;
});
dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
document.getElementById("trace-close").addEventListener("click", () => dialog.close());
window.addEventListener("hashchange", follow);
follow();
