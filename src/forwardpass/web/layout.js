// JSON on several lines, every number and text exactly as it came; a short list of plain values stays on one line.

const TEXTS_CHARACTERS_MAX = 100;

export function indented(text) {
  let shown = "";
  let depth = 0;
  const tokens = tokensOf(text);
  for (let place = 0; place < tokens.length; place += 1) {
    const token = tokens[place];
    const end = token === "[" ? plainEnd(tokens, place) : 0;
    if (end > 0) {
      shown += tokens.slice(place, end + 1).map((each) => (each === "," ? ", " : each)).join("");
      place = end;
    } else if (token === "[" || token === "{") {
      depth += 1;
      shown += isBracket(tokens[place + 1], "]}") ? token : token + line(depth);
    } else if (token === "]" || token === "}") {
      depth -= 1;
      shown += isBracket(tokens[place - 1], "[{") ? token : line(depth) + token;
    } else {
      shown += { ",": `,${line(depth)}`, ":": ": " }[token] ?? token;
    }
  }
  return shown;
}

// The members of a JSON object by name, each as the text it has there. The text must be valid JSON.
export function members(text) {
  const found = new Map();
  const tokens = tokensOf(text);
  let depth = 0;
  let name = null;
  for (let place = 0; place < tokens.length; place += 1) {
    const token = tokens[place];
    if (isBracket(token, "]}")) depth -= 1;
    if (depth === 1 && name === null && token.startsWith('"')) {
      name = JSON.parse(token);
      found.set(name, "");
      place += 1; // its colon
    } else if (depth === 1 && token === ",") {
      name = null;
    } else if (depth > 0 && name !== null) {
      found.set(name, found.get(name) + token);
    }
    if (isBracket(token, "[{")) depth += 1;
  }
  return found;
}

function tokensOf(text) {
  return text.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g) ?? [];
}

function line(depth) {
  return `\n${"  ".repeat(depth)}`;
}

function isBracket(token, brackets) {
  return token !== undefined && token.length === 1 && brackets.includes(token);
}

// Where a list of numbers, or of texts that are short together, ends that starts there; 0 for any other list.
function plainEnd(tokens, start) {
  let characters = 0;
  for (let place = start + 1; place < tokens.length; place += 1) {
    const token = tokens[place];
    if (token === "]") return place;
    if (isBracket(token, "[{:")) return 0;
    if (token.startsWith('"')) characters += token.length;
    if (characters > TEXTS_CHARACTERS_MAX) return 0;
  }
  return 0;
}
