// How an answer is shown, and the command that asks for the same.

import { element } from "./form.js";
import { indented } from "./layout.js";

const SHOWN_MAX = 200_000;
const BASE64 = /^[A-Za-z0-9+/]{64,}={0,2}$/;
const BEGINNINGS = [
  ["iVBORw0KGgo", "image/png"],
  ["/9j/", "image/jpeg"],
  ["UklGR", "audio/wav"],
  ["SUQz", "audio/mpeg"],
  ["T2dnUw", "audio/ogg"],
  ["ZkxhQw", "audio/flac"],
];

function mediaOf(value) {
  if (!BASE64.test(value)) return "";
  return BEGINNINGS.find(([beginning]) => value.startsWith(beginning))?.[1] ?? "";
}

// Every picture or sound in a JSON value, with the names that lead to it.
function* mediaIn(value, place = "") {
  if (typeof value === "string") {
    const media = mediaOf(value);
    if (media) yield [place, media, value];
  } else if (value && typeof value === "object") {
    for (const [name, each] of Object.entries(value)) yield* mediaIn(each, place ? `${place}.${name}` : name);
  }
}

function figure(media, source, caption) {
  const shown = media.startsWith("image/")
    ? element("img", { src: source, alt: caption })
    : element("audio", { src: source, controls: true });
  return element("figure", {}, shown, element("figcaption", {}, caption));
}

function shortened(text) {
  return text.replace(/[A-Za-z0-9+/=]{200,}/g, (found) => `${found.slice(0, 48)}… (${found.length} characters)`);
}

async function bodyOf(blob, type) {
  const kept = element("div");
  if (blob.size === 0) return element("p", { class: "note" }, "The body is empty.");
  if (type.startsWith("image/") || type.startsWith("audio/")) {
    return figure(type, URL.createObjectURL(blob), `${type}, ${blob.size} bytes`);
  }
  if (!/json|text|javascript/.test(type)) {
    const link = element("a", { href: URL.createObjectURL(blob), download: "answer" }, `Save ${blob.size} bytes`);
    return element("p", {}, link);
  }
  let text = await blob.text();
  if (type.includes("json")) {
    try {
      for (const [place, media, value] of mediaIn(JSON.parse(text))) {
        kept.append(figure(media, `data:${media};base64,${value}`, place));
      }
      text = indented(text);
    } catch {
      // It is shown as it came.
    }
  }
  text = shortened(text);
  const cut = text.length > SHOWN_MAX;
  kept.append(element("pre", { class: "body", tabindex: "0", "aria-label": "Body of the answer" }, cut ? text.slice(0, SHOWN_MAX) : text));
  if (cut) kept.append(element("p", { class: "note" }, `${text.length - SHOWN_MAX} characters more are not shown.`));
  return kept;
}

// The answer as a part of the page.
export async function answerView(response, blob, milliseconds) {
  const rows = [...response.headers].map(([name, value]) => element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, value)));
  const state = element("p", { class: response.ok ? "status good" : "status bad", role: "status" });
  state.append(
    element("strong", {}, `${response.status} ${response.statusText}`.trim()),
    ` ${milliseconds.toFixed(milliseconds < 10 ? 1 : 0)} ms, ${blob.size} bytes`,
  );
  const headers = element("details", { class: "headers" }, element("summary", {}, `${rows.length} headers`), element("table", {}, element("tbody", {}, ...rows)));
  return [state, await bodyOf(blob, response.headers.get("content-type") ?? ""), headers];
}

function quoted(text) {
  return /^[\w./:=@%+,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

// The curl command for a request: {method, url, headers, body, parts}, parts being [name, value or file].
// The command; a key is named by where the commands of the server's own look for it, never shown.
export function curlOf(request, withKey) {
  const words = [];
  if (request.method !== (request.body !== undefined || request.parts ? "POST" : "GET")) words.push(["-X", request.method]);
  for (const [name, value] of Object.entries(request.headers)) words.push(["-H", quoted(`${name}: ${value}`)]);
  if (withKey) words.push(["-H", '"X-API-Key: $FORWARDPASS_KEY"']);
  for (const [name, value] of request.parts ?? []) {
    words.push(value instanceof File ? ["-F", quoted(`${name}=@${value.name}`)] : ["--form-string", quoted(`${name}=${value}`)]);
  }
  if (request.body !== undefined) words.push(["--data-binary", quoted(request.body)]);
  return [`curl ${quoted(request.url)}`, ...words.map((each) => each.join(" "))].join(" \\\n  ");
}
