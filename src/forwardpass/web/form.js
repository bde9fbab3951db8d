// A form made of a JSON Schema. The text of the JSON body is what is sent; fields and text follow each other.

import { indented, members } from "./layout.js";

const JSON_NUMBER = /^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$/;

export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made && typeof value !== "string") made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// The schema that a reference leads to.
export function resolved(whole, schema) {
  while (schema && schema.$ref) {
    schema = schema.$ref.slice(2).split("/").reduce((part, name) => part[name], whole);
  }
  return schema ?? {};
}

// The first way a body can be written as an object with named members; none where it has no such form.
export function objectForm(whole, schema) {
  const found = resolved(whole, schema);
  if (found.properties) return found;
  for (const option of found.anyOf ?? []) {
    const form = objectForm(whole, option);
    if (form) return form;
  }
  return null;
}

function isType(schema, type) {
  return schema.type === type || (Array.isArray(schema.type) && schema.type.includes(type));
}

function kindOf(schema) {
  if (schema.enum) return "choice";
  if (isType(schema, "boolean") && !isType(schema, "integer")) return "truth";
  if (schema.contentEncoding === "base64") return "file";
  if (isType(schema, "number") || isType(schema, "integer")) return "number";
  if (isType(schema, "string")) return "text";
  return "json";
}

function fieldSchema(whole, schema) {
  const found = resolved(whole, schema);
  const first = found.anyOf ? resolved(whole, found.anyOf[0]) : found;
  return found.anyOf && isType(first, "string") ? { ...first, description: found.description } : found;
}

function select(options, shown) {
  return element("select", {}, ...options.map((each) => element("option", { value: JSON.stringify(each) }, shown(each))));
}

// One field. `json` gives its value as JSON, undefined when it is left out; a file is in `file`.
// Numbers and JSON are sent as they were written: JavaScript's own numbers hold no INT64.
function field(whole, name, given, required) {
  const schema = fieldSchema(whole, given);
  const kind = kindOf(schema);
  const id = `field-${name}`;
  let input;
  let file = null;
  let kept; // a file's base64 from an example, until another one is chosen
  const note = element("p", { class: "note" });
  if (kind === "choice" || kind === "truth") {
    const options = kind === "truth" ? [true, false] : schema.enum;
    input = select(required ? options : [undefined, ...options], (each) => (each === undefined ? "" : String(each)));
  } else if (kind === "number") {
    input = element("input", { type: "number", step: isType(schema, "number") ? "any" : "1" });
    if (schema.minimum !== undefined) input.min = schema.minimum;
    if (schema.maximum !== undefined) input.max = schema.maximum;
  } else if (kind === "file") {
    input = element("input", { type: "file", accept: schema.contentMediaType ?? "" });
  } else {
    input = element("textarea", { rows: kind === "text" ? 2 : 4, spellcheck: false });
    if (kind === "json") input.className = "code";
  }
  input.id = id;
  const label = element("label", { for: id }, name, required ? "" : element("span", { class: "optional" }, " optional"));
  const box = element("div", { class: "field" }, label, input, note);
  note.textContent = schema.description ?? "";

  function json() {
    if (kind === "file") return JSON.stringify(kept);
    if (input.value === "") return kind === "text" && required ? '""' : undefined;
    if (kind === "number") return JSON_NUMBER.test(input.value) ? input.value : String(Number(input.value));
    if (kind === "text") return JSON.stringify(input.value);
    if (input.value === "undefined") return undefined;
    JSON.parse(input.value);
    return input.value.trim();
  }

  // The value and the text that it has in the body.
  function write(value, given) {
    file = null;
    kept = undefined;
    if (kind === "file") {
      kept = typeof value === "string" ? value : undefined;
      input.value = "";
      note.textContent = kept ? `The example's ${kept.length} characters of base64, or a file of your own.` : note.textContent;
    } else if (kind === "text") {
      input.value = value ?? "";
    } else if (kind === "number") {
      input.value = typeof value === "number" ? given : "";
    } else if (kind === "json") {
      input.value = given ?? "";
    } else {
      input.value = JSON.stringify(value) ?? "undefined";
    }
  }

  // Whether the field can show this value.
  function takes(value) {
    if (value === undefined || value === null || kind === "json") return true;
    if (kind === "choice") return schema.enum.includes(value);
    return typeof value === { truth: "boolean", number: "number" }[kind] || (typeof value === "string" && "text file".includes(kind));
  }

  if (kind === "file") {
    input.addEventListener("change", () => {
      file = input.files[0] ?? null;
      note.textContent = file ? `${file.name}, ${file.size} bytes` : (schema.description ?? "");
    });
  }
  return { name, kind, box, input, required, json, write, takes, file: () => file };
}

// The editor of a JSON body: fields where its schema names members, and the text itself.
// `changed` is called after every edit; `files` are those chosen, by name; `body` is the text to send.
export function bodyEditor(whole, media, changed) {
  const schema = objectForm(whole, media.schema);
  const text = element("textarea", { class: "code", rows: 14, spellcheck: false, "aria-label": "JSON body" });
  const problem = element("p", { class: "problem", role: "alert" });
  const fields = schema
    ? Object.entries(schema.properties).map(([name, each]) => field(whole, name, each, (schema.required ?? []).includes(name)))
    : [];
  const main = fields.filter((each) => each.required);
  const more = fields.filter((each) => !each.required);
  const grid = element("div", { class: "fields" }, ...main.map((each) => each.box));
  if (more.length) {
    const inside = element("div", { class: "fields" }, ...more.map((each) => each.box));
    grid.append(element("details", { open: main.length === 0 }, element("summary", {}, "More"), inside));
  }
  let asText = !schema;

  function fromFields() {
    const written = [];
    problem.textContent = "";
    for (const each of fields) {
      try {
        const found = each.json();
        if (found !== undefined) written.push(`${JSON.stringify(each.name)}:${found}`);
      } catch {
        problem.textContent = `${each.name} is not JSON`;
      }
    }
    text.value = indented(`{${written.join(",")}}`);
  }

  function toFields() {
    problem.textContent = "";
    try {
      const value = JSON.parse(text.value || "{}");
      const known = new Map(fields.map((each) => [each.name, each]));
      const wrong = Object.keys(value).find((name) => !known.get(name)?.takes(value[name]));
      if (wrong !== undefined) {
        problem.textContent = `the form has no place for "${wrong}" as it is; send it as JSON`;
        return false;
      }
      const given = members(text.value);
      for (const each of fields) each.write(value[each.name], given.get(each.name));
      return true;
    } catch (error) {
      problem.textContent = `the text is not JSON: ${error.message}`;
      return false;
    }
  }

  function edited() {
    fromFields();
    changed();
  }

  for (const each of fields) {
    each.input.addEventListener("input", edited);
    each.input.addEventListener("change", edited);
  }
  text.addEventListener("input", changed);

  const asForm = element("button", { type: "button", "aria-pressed": String(!asText) }, "Form");
  const asJson = element("button", { type: "button", "aria-pressed": String(asText) }, "JSON");
  const pane = element("div", {}, asText ? text : grid);
  function show(wanted) {
    if (!wanted && !toFields()) return;
    asText = wanted;
    asForm.setAttribute("aria-pressed", String(!asText));
    asJson.setAttribute("aria-pressed", String(asText));
    pane.replaceChildren(asText ? text : grid);
    changed();
  }
  asForm.addEventListener("click", () => show(false));
  asJson.addEventListener("click", () => show(true));

  const examples = Object.values(media.examples ?? {});
  const bar = element("div", { class: "bar" });
  if (schema) bar.append(element("span", { class: "switch", role: "group", "aria-label": "View of the body" }, asForm, asJson));
  function load(value) {
    text.value = value === undefined ? "{}" : indented(JSON.stringify(value));
    toFields();
    changed();
  }
  if (examples.length > 1) {
    const choose = element("select", { "aria-label": "Example" });
    examples.forEach((each, place) => choose.append(element("option", { value: String(place) }, each.summary ?? "example")));
    choose.addEventListener("change", () => load(examples[Number(choose.value)].value));
    bar.append(choose);
  }
  text.value = examples.length ? indented(JSON.stringify(examples[0].value)) : "{}";
  toFields();
  return {
    box: element("div", {}, bar, pane, problem),
    body: () => text.value,
    files: () => (asText ? [] : fields.filter((each) => each.file())),
    fields: () => fields,
  };
}
