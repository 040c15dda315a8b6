// What a message means, as gpusetup doctor tells it: a scan for the catalogue's texts, and expressions around each find.
// It knows no message: they come as data, which tools/explorer/messages.py writes. Nothing leaves the browser.
"use strict";

const Doctor = (data, similar) => {
  const AROUND = 4, FAR = 1200, SHORT = 200, LONG = 14, FEW = 40;
  const made = new Map();
  const expression = (text, flags = "u") => {
    const key = flags + text;
    if (!made.has(key)) made.set(key, new RegExp(text, flags));
    return made.get(key);
  };
  const has = (text, within) => expression(text).test(within);
  const strip = (text, letters) => {
    let begin = 0, end = text.length;
    while (begin < end && letters.includes(text[begin])) begin += 1;
    while (end > begin && letters.includes(text[end - 1])) end -= 1;
    return text.slice(begin, end);
  };
  const own = (table, name) => (Object.hasOwn(table, name) ? table[name] : undefined);

  // Texts are looked for without their digits, as the program does: the order of its finds is the order of its answers.
  const shape = (text) => text.replace(/[1-9]/g, "0");
  const shapes = new Map();
  const names = Object.keys(data.causes), signs = Object.entries(data.short);
  const eitherCase = (_, run) => run.replace(/[a-z]/g, (letter) => `[${letter.toUpperCase()}${letter}]`);
  const whole = (text) => signs.reduce((told, [sign, meant]) => told.replaceAll(sign, meant), text)
    .replace(/«(.*?)»/g, eitherCase);
  const kinds = data.outside.map(([id, title, advice, always, form, framed]) => [id, title, advice, always, whole(form), whole(framed)]);
  let counted = 0;
  const known = data.patterns.map(([further, finds, text = "", alone = 0]) => [names[counted += further], data.lists[finds] ?? finds.split("\n"), whole(text), alone]);
  known.forEach(([, finds], pattern) => finds.forEach((find) => {
    const key = shape(find);
    if (!shapes.has(key)) shapes.set(key, []);
    shapes.get(key).push([pattern, find]);
  }));

  // -- a line without what a log put before it ----------------------------------------------------------------------

  const plain = (line) => line.replace(expression(data.prefix), "");

  const lines = (text) => text.split(/\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]/);
  const oneLine = (text) => lines(text).map(plain).join(" ").split(/\s+/).filter(Boolean).join(" ");

  // -- what a family's name or number stands for --------------------------------------------------------------------

  const { means } = data;

  function cuda(groups) {
    let found = own(means.cudaNames, strip((groups.cuda_text ?? "").toLowerCase().replaceAll("_", " "), " .'\""));
    if (!found && groups.cuda_name) {
      found = own(means.cudaNames, groups.cuda_name);
      if (!found) return groups.cuda_name.startsWith("CUDA_ERROR_") ? "cuda-error" : "";
    }
    const given = groups.cuda_number || groups.cuda_old_number;
    if (!found && given) {
      const number = Number(given), now = () => (own(means.cudaNumbers, number) === undefined ? undefined : number);
      const before = () => own(means.cudaOld, number);
      const real = "cuda_old_number" in groups ? before() ?? now() : now() ?? before();
      if (real === undefined) return "";
      found = real;
    }
    if (!found) return "cuda-error";
    delete groups.cuda_old_number;
    groups.cuda_number = String(found);
    return means.cudaNumbers[found] || "cuda-error";
  }

  function status(groups) {
    if (groups.status) return own(means.names, groups.status) ?? (groups.status.startsWith("CUFFT_") ? "" : "cuda-error");
    const family = own(means.numbers, groups.library.toLowerCase());
    return (family && own(family, Number(groups.status_number))) ?? "cuda-error";
  }

  function nvml(groups) {
    if (groups.nvml_number) return own(means.numbers.nvml, Number(groups.nvml_number)) ?? "nvml-error";
    const told = groups.nvml.replace(/[ .]+$/, "").replace(/^ERROR_/, "NVML_ERROR_"); // as NVIDIA's Go bindings word it
    const known = own(means.names, told);
    if (known !== undefined) return known;
    return /^NVML(_ERROR|Error)_/.test(told) ? "nvml-error" : own(means.names, told.toLowerCase()) ?? "";
  }

  const sxid = (groups) => own(means.sxids, Number(groups.sxid)) ?? { Fatal: "sxid-fatal", "Non-fatal": "sxid-nonfatal" }[groups.sxid_word] ?? "sxid-unknown";
  const xid = (groups) => own(means.xids, Number(groups.xid)) ?? "xid-other";
  const tables = [
    ["cuda-error", "cuda_name", cuda], ["cuda-error", "cuda_text", cuda], ["cuda-error", "cuda_number", cuda],
    ["cuda-error", "cuda_old_number", cuda], ["cuda-error", "status", status], ["cuda-error", "status_number", status],
    ["nvml-error", "nvml", nvml], ["nvml-error", "nvml_number", nvml], ["xid-other", "xid", xid], ["sxid-unknown", "sxid", sxid],
  ];

  function meaning(cause, groups) {
    const found = tables.find(([home, group]) => home === cause && group in groups);
    return found ? found[2](groups) : cause;
  }

  // -- a find and the lines around it -------------------------------------------------------------------------------

  function fits([, , text, alone], place) {
    if (!text) return {};
    const scope = alone ? place.own : place.window();
    let found = expression(text).exec(scope);
    if (!found) {
      const joined = oneLine(scope);
      found = joined === scope ? null : expression(text).exec(joined);
    }
    return found && Object.fromEntries(Object.entries(found.groups ?? {}).filter(([, value]) => value));
  }

  function foreign(cause, area, line, place) {
    if (data.near.includes(cause) && has(data.module, place.window()) && !has(data.nvidia, place.window())) return true;
    if (area !== "packages") return (data.foreign[area] ?? []).some((rule) => has(rule, line));
    const found = [...line.matchAll(expression(data.address, "gu"))].map((match) => match[1] + match[2]);
    return found.length > 0 && !found.some((address) => has(data.ours, address));
  }

  function scan(text) {
    const letters = Object.entries(data.copied).reduce((told, [copied, letter]) => told.replaceAll(copied, letter), text);
    const clean = letters.replace(expression(data.escapes, "gu"), "").replace(expression(data.table, "gu"), (_, head, rows) => {
      const names = head.split(", ");
      const spelled = (row) => row.split(", ").slice(0, names.length).map((value, number) => `${names[number]}: ${value}`).join(", ");
      return [head, ...rows.split("\n").slice(1).map(spelled)].join("\n");
    });
    const rootless = (matches) => matches.every(({ cause }) => data.causes[cause].weight !== 0);
    let found = look(clean);
    // A terminal may have broken lines between words, or anywhere.
    for (const glue of clean.split("\n").length <= data.few ? [" ", ""] : []) {
      if (!rootless(found)) break;
      const whole = look(clean.replace(expression(data.wrapped, "gu"), (broken) => {
        const parts = broken.split("\n");
        return (glue ? parts.map((part) => part.trim()) : parts).join(glue) + "\n".repeat(parts.length - 1);
      }));
      found = found.length && rootless(whole) ? found : whole;
    }
    return found;
  }

  function look(text) {
    const raw = text.split("\n"), found = new Map();
    const bare = raw.map((line) => line.replace(expression(data.stamp), ""));

    function judge(line, place, patterns, number) {
      const told = new Map();
      let first = line.length;
      for (const [pattern, find] of new Map(patterns.filter(([, text]) => line.includes(text)))) {
        const groups = fits(known[pattern], place);
        const cause = groups && meaning(known[pattern][0], groups);
        if (cause && !foreign(cause, data.causes[cause].area, line, place)) {
          told.set(cause, { ...told.get(cause), ...groups });
          first = Math.min(first, line.indexOf(find));
        }
      }
      const start = line.length > 400 ? Math.max(0, first - 100) : 0;
      const evidence = `${start ? "… " : ""}${line.slice(start, start + 400).trim()}${line.length > start + 400 ? " …" : ""}`;
      for (const [cause, groups] of told) {
        const known = found.get(cause);
        if (!known) found.set(cause, { cause, line: number, groups, evidence: [evidence], times: 1 });
        else {
          known.times += 1;
          if (known.evidence.length < 3 && !known.evidence.includes(evidence)) known.evidence.push(evidence);
        }
      }
    }

    raw.forEach((line, index) => {
      const form = shape(line), hits = [];
      let number = 0;
      for (const [find, patterns] of shapes) {
        for (let at = form.indexOf(find); at >= 0; at = form.indexOf(find, at + 1)) hits.push([at, number, patterns]);
        number += 1;
      }
      if (!hits.length) return;
      hits.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
      const before = bare.slice(Math.max(0, index - AROUND), index).join("\n").slice(-FAR);
      const after = bare.slice(index + 1, index + AROUND + 1).join("\n").slice(0, FAR);
      const place = (mine) => ({ own: mine, window: () => [before, mine, after].join("\n") });
      if (line.length <= 2 * FAR) judge(line, place(bare[index]), hits.flatMap((hit) => hit[2]), index + 1);
      else {
        const parts = new Map();
        for (const [at, , patterns] of hits) {
          const part = Math.floor(at / FAR);
          parts.set(part, (parts.get(part) ?? []).concat(patterns));
        }
        for (const [part, patterns] of parts) {
          const near = line.slice(Math.max(0, part - 1) * FAR, (part + 2) * FAR);
          judge(near, place(near), patterns, index + 1);
        }
      }
    });
    return [...found.values()];
  }

  // Root causes first, without what another finding explains: the causes that it names, and symptoms on its lines alone.
  function findings(matches) {
    const hidden = new Set(matches.flatMap(({ cause }) => data.causes[cause].hides ?? []));
    const roots = matches.filter(({ cause }) => data.causes[cause].weight === 0);
    for (const { cause, evidence, times } of matches.filter((one) => data.causes[one.cause].weight === 1)) {
      if (roots.some((root) => times <= root.times && evidence.every((line) => root.evidence.includes(line)))) hidden.add(cause);
    }
    const left = matches.filter(({ cause }) => !hidden.has(cause));
    return (left.length ? left : matches).sort((a, b) => data.causes[a.cause].weight - data.causes[b.cause].weight || a.line - b.line);
  }

  // -- a text that somebody typed from memory -----------------------------------------------------------------------

  function fromMemory(text) {
    const { memory } = data;
    if (has(has(memory.person, text) ? memory.program : memory.printed, text)) return [];
    const said = Object.entries(memory.spellings).reduce(
      (told, [spelling, meant]) => told.replace(expression(spelling, "gu"), meant), text.toLowerCase());
    const holds = (part) => part.replace("!", "").split("|").some((word) => has(`(?<!\\w)(?:${memory.words[parseInt(word, 16)]})(?!\\w)`, said)) !== part.startsWith("!");
    const [number] = memory.rules.find(([, ...rules]) => rules.some((rule) => rule.split(" ").every(holds))) ?? [0];
    const cause = names[number - 1];
    return cause ? [{ cause, line: 1, groups: {}, evidence: [text], times: 1 }] : [];
  }

  // Whether the words of a text, if they say something, speak half as much for a cause as for the likeliest.
  function plausible(text, cause) {
    const parted = text.replace(expression(similar.place, "gu"), " ").replace(expression(similar.between, "gu"), " ");
    const said = new Set(["", ...(parted.toLowerCase().match(expression(similar.word, "gu")) ?? [])]);
    const score = (known) => [...said].reduce((sum, word) => sum + (own(known, word) ?? 0), 0);
    const likeliest = Math.max(...Object.values(similar.weights).map(score));
    return likeliest < similar.clear || 2 * score(similar.weights[cause]) >= likeliest;
  }

  // -- a text that somebody typed without its capitals --------------------------------------------------------------

  const texts = new Map(known.flatMap(([, finds]) => finds).filter((find) => [...find].length >= LONG).map((find) => [find.toLowerCase(), find]));
  const typed = [...texts.keys()].sort((one, other) => other.length - one.length).map((find) => find.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"));
  const printed = (text) => text.replace(expression(typed.join("|"), "giu"), (found) => texts.get(found.toLowerCase()) ?? found);

  // -- a text that is little more than a number ---------------------------------------------------------------------

  function bareNumbers(text) {
    const asking = /^what(?:'s| is| does) (?:an? |the )?|(?: means?)?\s*\?*$/gi;
    const asked = strip(text.trim().replace(asking, ""), ".!\"'`"), found = {};
    for (const [name, form] of Object.entries(data.bare)) {
      const match = expression(form).exec(asked);
      if (match) found[name] = match[1];
    }
    const one = (cause, groups) => [{ cause, line: 1, groups, evidence: [text.trim()] }];
    if ("sxid" in found) return one(sxid(found), { sxid: found.sxid });
    if ("xid" in found) return scan(`NVRM: Xid (PCI:0000:00:00): ${found.xid}, `).map((match) => ({ ...match, evidence: [text.trim()] }));
    if ("api" in found) return one("driver-too-old", { driver_api: found.api });
    if ("needs" in found) return one("container-cuda-requirement", { needs_cuda: found.needs });
    const number = Number(found.error);
    if ("error" in found && own(means.cudaNumbers, number) !== undefined) {
      return one(means.cudaNumbers[number] in data.causes ? means.cudaNumbers[number] : "cuda-error", { cuda_number: found.error });
    }
    return [];
  }

  // -- what a text is about instead ---------------------------------------------------------------------------------

  function outside(text) {
    const told = [];
    let frame = false;
    for (const line of lines(text.replace(/\n$/, ""))) {
      const after = frame;
      frame = (expression(data.frame).exec(line) ?? { index: -1 }).index === 0;
      const code = (expression(data.code).exec(line) ?? { index: -1 }).index === 0;
      if (!frame && !(after && code)) told.push(plain(line.slice(0, FAR)).trim().slice(0, FAR));
    }
    const possible = kinds.filter(([, , , , , framed]) => !framed || has(framed, text));
    const troubled = [...told.keys()].filter((index) => has(data.trouble, told[index]));
    const shown = new Map(), outputs = new Map();
    for (const [id, title, advice, , , framed] of possible) {
      if (framed) outputs.set(id, { id, title, advice, line: expression(framed).exec(text)[0].trim().slice(0, 400) });
    }
    for (const index of troubled.length ? troubled : told.length > FEW ? [] : told.keys()) {
      const gpu = told.slice(Math.max(0, index - AROUND), index + AROUND + 1).some((line) => has(data.gpu, line));
      const kind = possible.find(([, , , always, form]) => (always || !gpu) && has(form, told[index]));
      if (kind && !shown.has(kind[0])) shown.set(kind[0], { id: kind[0], title: kind[1], advice: kind[2], line: told[index].slice(0, 400) });
      if (!kind && troubled.length) return [];
    }
    const real = [...shown.values()].filter(({ id }) => !data.routine.includes(id) && !outputs.has(id));
    return real.length ? real : outputs.size ? [...outputs.values()] : [...shown.values()];
  }

  // { findings } | { reference } | { outside } | {}: what the program answers to a text.
  function answer(text) {
    const named = expression(data.reference).exec(text);
    if (named) return { reference: `GS-${named[1]}` };
    const small = has("^\\P{Lu}*\\p{Ll}\\P{Lu}*$", text);
    let matches = small && !text.includes(":") ? fromMemory(text.trim()) : [];
    if (!matches.length) matches = scan(text);
    if (!matches.length && small && text.length <= SHORT) matches = scan(printed(text));
    if (!matches.length) matches = fromMemory(text.trim()).filter(({ cause }) => small || plausible(text, cause));
    if (!matches.length && text.length <= SHORT) matches = bareNumbers(text);
    if (matches.length) return { findings: findings(matches) };
    for (const [mentioned] of text.matchAll(expression(data.mentioned, "gu"))) if (own(data.references, mentioned)) return { reference: mentioned };
    const other = outside(text);
    return other.length && !other.every(({ id }) => data.routine.includes(id)) ? { outside: other } : {};
  }

  // What the numbers of a finding mean.
  function told(cause, groups) {
    const first = (text) => strip(text.split(", ")[0], " .,()");
    const key = (text, form) => (form ? (expression(form).exec(text) ?? []).slice(1).filter(Boolean).join(".") : text);
    const lines = data.told.flatMap(([causes, names, form, table]) => {
      if (causes.length && !causes.includes(cause)) return [];
      const found = names.map((name) => key(first(groups[name] ?? ""), form)).find(Boolean);
      return own(table, found ?? "") ?? [];
    });
    return [...new Set(lines)];
  }

  return { answer, told };
};
