// The page: a list of what the document describes, and a form for the one that is chosen.

import { answerView, curlOf } from "./answer.js";
import { bodyEditor, element, objectForm, resolved } from "./form.js";

const METHODS = ["get", "post", "put", "delete"];
const main = document.getElementById("operation");
const list = document.getElementById("list");
const search = document.getElementById("search");
const key = document.getElementById("key"); // the caller's, in this field and nowhere else
let whole = {};
let operations = [];

function start() {
  search.addEventListener("input", showList);
  window.addEventListener("hashchange", showChosen);
  key.addEventListener("change", read); // Enter is a change too: nothing is ever submitted
  document.getElementById("key-box").addEventListener("submit", (event) => event.preventDefault());
  read();
}

async function read() {
  try {
    const answer = await fetch("openapi.json", { headers: keyHeader(), cache: "no-store" });
    if (answer.status === 401) {
      askForKey();
      return;
    }
    if (!answer.ok) throw new Error(`${answer.status}`);
    whole = await answer.json();
  } catch (error) {
    tell(`The document could not be read: ${error.message}`);
    return;
  }
  document.getElementById("version").textContent = whole.info.version;
  operations = Object.entries(whole.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]).map((method) => ({ path, method: method.toUpperCase(), ...item[method] })),
  );
  operations.sort((one, other) => isPlain(other) - isPlain(one)); // each pipeline's plain way in stands first
  showList();
  showChosen();
}

function askForKey() {
  document.getElementById("key-box").hidden = false;
  tell(key.value ? "This key is not accepted." : "What is served here is for those who have a key: enter yours above.");
  operations = [];
  list.replaceChildren();
  key.focus();
}

function tell(text) {
  main.replaceChildren(element("p", { class: "hint", role: "status" }, text));
}

function keyHeader() {
  return key.value ? { "X-API-Key": key.value } : {};
}

function isPlain(operation) {
  return Number(operation.operationId.startsWith("predict_") && operation.method === "POST");
}

function showList() {
  const wanted = search.value.trim().toLowerCase();
  const groups = (whole.tags ?? []).map((tag) => {
    const of = operations.filter((each) => each.tags[0] === tag.name && `${tag.name} ${each.path} ${each.summary}`.toLowerCase().includes(wanted));
    const links = of.filter((each) => each["x-version"] === undefined).map(link);
    const pinned = of.filter((each) => each["x-version"] !== undefined).map(link);
    if (pinned.length) links.push(element("details", { open: wanted !== "" }, element("summary", {}, "By version"), ...pinned));
    const inside = of.some((each) => each.operationId === location.hash.slice(1));
    return of.length ? element("details", { open: wanted !== "" || inside }, element("summary", { title: tag.description ?? "" }, tag.name), ...links) : "";
  });
  list.replaceChildren(...groups);
  if (wanted === "" && !list.querySelector("details[open]")) list.querySelector("details")?.setAttribute("open", "");
}

function link(each) {
  const made = element("a", { href: `#${each.operationId}`, title: each.summary }, badge(each.method), element("code", {}, each.path));
  if (each.operationId === location.hash.slice(1)) made.setAttribute("aria-current", "true");
  return made;
}

function badge(method) {
  return element("span", { class: `method ${method.toLowerCase()}` }, method);
}

function showChosen() {
  if (whole.paths === undefined) return; // it is not read yet
  const asked = operations.find((each) => each.operationId === location.hash.slice(1));
  const chosen = asked ?? operations.find((each) => each.tags[0] === whole.tags?.[0]?.name) ?? operations[0];
  for (const each of list.querySelectorAll("a")) {
    if (each.getAttribute("href") === `#${chosen?.operationId}`) each.setAttribute("aria-current", "true");
    else each.removeAttribute("aria-current");
  }
  if (!chosen) {
    main.replaceChildren(element("p", {}, "Nothing is served here."));
    return;
  }
  document.title = `${chosen.path} · forwardpass`;
  main.replaceChildren(...operationView(chosen));
  if (asked) main.focus();
}

function operationView(operation) {
  const contents = operation.requestBody?.content ?? {};
  const media = contents["application/json"];
  const parameters = operation.parameters.map((each) => resolved(whole, each));
  const command = element("pre", { class: "command", tabindex: "0", "aria-label": "curl command" });
  const answer = element("section", { class: "answer", "aria-label": "Answer" });
  const controls = parameters.map(parameterControl);
  const editor = media ? bodyEditor(whole, media, changed) : null;
  const accept = acceptControl(operation);
  const send = element("button", { type: "submit", class: "send" }, "Send");
  const form = element("form", { class: "request", novalidate: true });

  function request() {
    let path = operation.path;
    const headers = {};
    const query = new URLSearchParams();
    for (const each of controls) {
      const value = each.input.value;
      if (each.where === "path") path = path.replace(`{${each.name}}`, encodeURIComponent(value));
      else if (value !== "" && each.where === "header") headers[each.name] = value;
      else if (value !== "") query.set(each.name, value);
    }
    if (accept && accept.value) headers.Accept = accept.value;
    const asked = query.toString();
    const relative = `.${path}` + (asked ? `?${asked}` : "");
    const made = { method: operation.method, url: new URL(relative, document.baseURI).href, headers };
    if (!editor) return made;
    if (editor.files().length && contents["multipart/form-data"]) return { ...made, parts: partsOf(editor) };
    return { ...made, headers: { "Content-Type": "application/json", ...headers }, body: editor.body() };
  }

  function changed() {
    command.textContent = curlOf(request(), key.value !== "");
  }

  for (const each of controls) each.input.addEventListener("input", changed);
  accept?.addEventListener("input", changed);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    send.disabled = true;
    answer.setAttribute("aria-busy", "true");
    try {
      answer.replaceChildren(element("h3", {}, "Answer"), ...(await ask(request())));
    } catch (error) {
      answer.replaceChildren(element("p", { class: "status bad", role: "alert" }, `No answer came: ${error.message}`));
    }
    answer.removeAttribute("aria-busy");
    send.disabled = false;
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });

  const inPath = controls.filter((each) => each.where === "path");
  const beside = controls.filter((each) => each.where !== "path");
  if (inPath.length) form.append(element("div", { class: "fields" }, ...inPath.map((each) => each.box)));
  if (editor) form.append(editor.box);
  const choices = element("div", { class: "fields" }, ...beside.map((each) => each.box));
  if (beside.length) form.append(element("details", {}, element("summary", {}, "Headers and query"), choices));
  if (accept) form.append(element("div", { class: "field" }, element("label", { for: accept.id }, "Answer as"), accept));
  form.append(element("div", { class: "bar" }, send, element("span", { class: "note" }, "or Ctrl+Enter")));
  const copy = element("button", { type: "button" }, "Copy");
  copy.addEventListener("click", () => copied(command.textContent, copy));
  changed();
  return [...heading(operation), form, element("section", { "aria-label": "The same with curl" }, element("div", { class: "bar" }, element("h3", {}, "curl"), copy), command), answer];
}

function heading(operation) {
  const tag = whole.tags.find((each) => each.name === operation.tags[0]);
  const parts = [
    element("p", { class: "tag" }, tag?.name ?? ""),
    element("h2", {}, badge(operation.method), element("code", {}, operation.path)),
    element("p", {}, operation.summary[0].toUpperCase() + operation.summary.slice(1) + "."),
  ];
  if (operation.description) parts.push(element("p", { class: "description" }, operation.description));
  const outputs = outputsOf(operation);
  if (outputs) parts.push(element("p", { class: "note" }, "Answers with ", outputs, "."));
  return parts;
}

function outputsOf(operation) {
  const content = operation.responses["200"]?.content?.["application/json"];
  const form = content && objectForm(whole, content.schema);
  const outputs = form?.properties.outputs && resolved(whole, form.properties.outputs);
  if (!outputs?.properties) return "";
  return Object.entries(outputs.properties).map(([name, each]) => (each.description ? `${name} (${each.description})` : name)).join(", ");
}

function parameterControl(parameter) {
  const id = `parameter-${parameter.in}-${parameter.name}`;
  const { schema } = parameter;
  const required = parameter.required === true;
  let input;
  if (schema.enum) {
    const options = required ? schema.enum : ["", ...schema.enum];
    input = element("select", { id }, ...options.map((each) => element("option", { value: each }, each)));
  } else {
    input = element("input", { id, type: schema.type === "integer" ? "number" : "text", autocomplete: "off" });
  }
  const label = element("label", { for: id }, parameter.name, required ? "" : element("span", { class: "optional" }, " optional"));
  const box = element("div", { class: "field" }, label, input, element("p", { class: "note" }, parameter.description ?? ""));
  return { name: parameter.name, where: parameter.in, input, box };
}

// Which form the answer has, where there are several to choose from.
function acceptControl(operation) {
  const kinds = Object.keys(operation.responses["200"]?.content ?? {}).filter((each) => each !== "application/octet-stream");
  if (kinds.length < 2) return null;
  return element("select", { id: "accept" }, ...kinds.map((each, place) => element("option", { value: place ? each : "" }, each)));
}

// A part for each field that has a value: a file as it is, a text as it is, everything else as JSON.
function partsOf(editor) {
  return editor.fields().flatMap((each) => {
    if (each.file()) return [[each.name, each.file()]];
    const json = each.json();
    if (json === undefined) return [];
    const text = json.startsWith('"') ? JSON.parse(json) : json;
    return [[each.name, each.kind === "file" ? fileOf(each.name, text) : text]];
  });
}

function fileOf(name, base64) {
  return new File([Uint8Array.from(atob(base64), (each) => each.charCodeAt(0))], name);
}

async function ask(request) {
  let { body } = request;
  if (request.parts) {
    body = new FormData();
    for (const [name, value] of request.parts) body.append(name, value);
  }
  const started = performance.now();
  const response = await fetch(request.url, { method: request.method, headers: { ...request.headers, ...keyHeader() }, body });
  const blob = await response.blob();
  return answerView(response, blob, performance.now() - started);
}

async function copied(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select the text to copy it";
  }
  setTimeout(() => (button.textContent = "Copy"), 2000);
}

start();
