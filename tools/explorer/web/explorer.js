// The page: a question from the form or the address, its answer shown. What is true is decided by lookup.js.
"use strict";

(() => {
  const about = window.EXPLORER;
  const { made, copied, script } = Pieces;
  const asking = Asked(about), words = Words(about);
  const at = (id) => document.getElementById(id);
  const rows = at("wishes"), loaded = {}, reasoned = {};
  const SLICE = 12;  // milliseconds
  let beyond = [];  // what an address asks that this page cannot answer

  function options(list, pairs) {
    list.replaceChildren(...pairs.map(([value, text]) => made("option", text, { value })));
  }

  const rule = (name) => {
    const [text, source] = about.rules[name] ?? [name, ""];
    return source.startsWith("https://") ? [text, " (", made("a", "source", { href: source }), ")"] : [text];
  };

  // -- what is asked ----------------------------------------------------------------------------------------------

  const plain = (text) => text.toLowerCase().split(/[^a-z0-9]+/).filter((word) => word && !["nvidia", "gpu", "graphics", "card", "geforce"].includes(word)).join(" ");
  const kinds = new Map(Object.entries(about.gpus).map(([name, kind]) => [plain(name), kind]));

  // A kind's number; undefined: none was named; null: it is not known, or means several kinds.
  function kindOf(text) {
    if (!plain(text)) return undefined;
    return kinds.get(plain(text)) ?? null;
  }

  function near(text) {
    const parts = plain(text).split(" ");
    return Object.keys(about.gpus).filter((name) => parts.every((word) => plain(name).includes(word))).slice(0, 5);
  }

  const newestOf = (versions, beginning) => versions.find((version) => version === beginning || version.startsWith(`${beginning}.`));

  // One row for each wish; the first is in the page already.
  const wishes = () => [...rows.children].map((row) => ({ name: row.component.value, text: row.release.value }));

  function addWish({ name, text }) {
    const first = rows.children.length === 0;
    const component = made("select", undefined, first ? { id: "framework" } : { "aria-label": "And also" });
    const release = made("select", undefined, { "aria-label": "Release", ...(first ? { id: "release" } : {}) });
    const pair = made("span", [component, release], { class: "pair" });
    const row = made("p", [first ? made("label", "I need", { for: "framework" }) : made("span", "and", { class: "and" }), pair]);
    if (!first) {
      const away = made("button", "×", { type: "button", class: "small" });
      away.addEventListener("click", () => { row.remove(); at("more").focus(); named(); show(); });
      pair.append(away);
    }
    Object.assign(row, { component, release });
    rows.append(row);
    named(row, name);
    listReleases(row, text);
    component.addEventListener("change", () => { named(); listReleases(row, ""); show(); });
    release.addEventListener("change", show);
    return row;
  }

  // A component is asked for once: each row offers its own and what no other row has.
  function named(fresh, name) {
    const taken = [...rows.children].map((row) => (row === fresh ? name : row.component.value));
    [...rows.children].forEach((row, place) => {
      const free = Object.keys(about.releases).filter((other) => other === taken[place] || !taken.includes(other));
      options(row.component, free.map((other) => [other, about.titles[other]]));
      row.component.value = taken[place];
      row.release.setAttribute("aria-label", `Release of ${about.titles[taken[place]]}`);
      row.querySelector("button")?.setAttribute("aria-label", `Without ${about.titles[taken[place]]}`);
    });
    document.body.style.setProperty("--wishes", taken.length);
    at("more").hidden = taken.length === Object.keys(about.releases).length;
  }

  function listReleases(row, text) {
    const name = row.component.value;
    const several = Object.entries(about.series[name]).filter(([, versions]) => versions.length > 1);
    const group = (label, pairs) => {
      const part = made("optgroup", undefined, { label });
      options(part, pairs);
      return part;
    };
    const single = text && !about.releases[name].includes(text) && !several.some(([series]) => series === text) ? [[text, text]] : [];
    row.release.replaceChildren(made("option", "newest that fits", { value: "" }),
      group("Any of a series", [...single, ...several.map(([series]) => [series, series])]),
      group("A release", about.releases[name].map((version) => [version, version])));
    row.release.value = text;
  }

  function fromAddress() {
    const given = asking.read(location.search || location.hash.slice(1));
    ({ beyond } = given);
    rows.replaceChildren();
    given.wishes.forEach(addWish);
    if (!rows.children.length) addWish({ name: "torch", text: "" });
    for (const name of ["gpu", "driver"]) at(name).value = given[name];
    at("os").value = about.systems.some(([id]) => id === given.os) ? given.os : "";
    at("arch").value = given.arch === "aarch64" ? "aarch64" : "x86_64";
    if (beyond.length) told(given);
  }

  // A question for the command line: it is said, with the command, and nothing else is answered.
  function told({ wishes: known, gpu, os, arch, driver }) {
    const line = words.command("resolve", [...beyond.filter((word) => !word.startsWith("--")), ...known.map(({ name, text }) => asking.word(name, text))],
      { gpu: [gpu], os: [os], arch: [arch], driver: [driver] });
    const more = beyond.filter((word) => word.startsWith("--") && !line.includes(word)).map((word) => ` ${word}`).join("");
    const ask = made("button", "Ask without it", { type: "button", class: "small" });
    ask.addEventListener("click", () => { beyond = []; show(); at("framework").focus(); });
    at("answer").replaceChildren(made("p", made("b", "This question is one for the command line.")),
      made("p", `The page does not answer for ${beyond.join(", ")}; this does:`), copied(line + more), ask);
    at("all").replaceChildren();
    at("all").parentElement.hidden = true;
  }

  const typed = () => ({ wishes: wishes(), gpu: at("gpu").value, os: at("os").value, arch: at("arch").value, driver: at("driver").value.trim() });

  function asked() {
    const { wishes: wanted, gpu, driver, os } = typed(), kind = kindOf(gpu);
    const known = driver ? newestOf([...about.drivers].reverse(), driver) : "";
    at("gpu-said").textContent = kind === null
      ? (near(gpu).length ? `which one? ${near(gpu).join(", ")}` : "not a GPU that is known here")
      : kind === undefined ? "" : `${about.kinds[kind].arch}, compute capability ${about.kinds[kind].cc}`;
    at("driver-said").textContent = driver && !known ? "not a driver that is known here: write it as nvidia-smi does" : "";
    at("gpu").setAttribute("aria-invalid", kind === null);
    at("driver").setAttribute("aria-invalid", Boolean(driver && !known));
    if (kind === null || (driver && !known)) return null;
    const cpu = kind !== undefined && about.kinds[kind].cpu;
    if (cpu) at("arch").value = cpu;
    return {
      wishes: Object.fromEntries(wanted.map(({ name, text }) => [name, text && (about.series[name][text] ?? [text])])),
      gpu: kind, driver: known, system: os,
    };
  }

  // -- problems come one by one, as scripts: a page that was opened from a folder may fetch nothing ----------------

  function problem(arch) {
    loaded[arch] ??= script(`problems/${arch}.js`).then(() => Lookup.prepare(about.problems[arch]));
    return loaded[arch];
  }

  // -- the answer --------------------------------------------------------------------------------------------------

  function command(name) {
    const { wishes: wanted, gpu, os, arch, driver } = typed();
    const alone = about.kinds[kindOf(gpu)]?.cpu === arch ? "" : arch;
    return words.command(name, wanted.map((wish) => asking.word(wish.name, wish.text)), { gpu: [gpu.trim()], os: [os], arch: [alone === "x86_64" ? "" : alone], driver: [driver] });
  }

  function answered(given, question, solution) {
    const list = made("dl");
    for (const [name, version, more] of words.rows(given, question, solution)) list.append(made("dt", name), made("dd", [made("b", version), more && ` ${more}`]));
    const { line, note } = words.pip(given, question, solution);
    const typedGpu = plain(at("gpu").value);
    const cautions = words.warnings(given, question, solution, { label: labelOf(at("gpu").value.trim()), name: Object.keys(about.inferred).find((name) => plain(name) === typedGpu) });
    return [list, ...(cautions.length ? [made("h3", "Keep in mind"), made("ul", cautions.map((text) => made("li", text)), { class: "cautions" })] : []), made("h3", "Install"), copied(words.apply(given, question, solution)), line ? copied(line) : made("p", note, { class: "said" }),
      made("h3", "Why"), made("ul", words.why(given, question, solution).map(([text, name]) => made("li", name ? [text, ...rule(name)] : text))),
      made("p", ["The same on the command line: ", made("code", command("resolve"))], { class: "said same" })];
  }

  // The words of a refusal come when there is one.
  function reasons(given) {
    reasoned[given.arch] ??= Promise.all([script("reasons.js"), script(`reasons/${given.arch}.js`)]).then(() => Reasons(about, given, about.reasons[given.arch]));
    return reasoned[given.arch];
  }

  async function refused(given, question) {
    const said = { gpu: labelOf(at("gpu").value.trim()), wishes: Object.fromEntries(wishes().map(({ name, text }) => [name, text])) };
    const told = (await reasons(given)).conflict(question, said);
    const lines = told.map(({ text, source }) => made("li", source.startsWith("https://") ? [text, " (", made("a", "source", { href: source }), ")"] : text));
    const ways = instead(given, question).map(([text, choose]) => {
      const button = made("button", text, { type: "button" });
      button.addEventListener("click", () => { choose(); show(); at("answer-title").scrollIntoView(); });
      return made("li", button);
    });
    return [made("p", made("b", "No stack fits.")), made("p", "These cannot hold together:"), made("ul", lines),
      ...(ways.length ? [made("p", "Each of these alone would fit:"), made("ul", ways, { class: "ways" })] : []),
      made("p", ["The same on the command line: ", made("code", command("resolve"))], { class: "said same" })];
  }

  const labelOf = (text) => Object.entries(about.labels).find(([name]) => plain(name) === plain(text))?.[1] ?? text;

  // What fits when one thing that was asked for is left open.
  function instead(given, question) {
    const found = [];
    [...rows.children].forEach((row) => {
      const name = row.component.value;
      if (!question.wishes[name]) return;
      const solution = Lookup.best(given, { ...question, wishes: { ...question.wishes, [name]: null } });
      const version = solution && given.versions[name][solution[name]];
      if (version) found.push([`${about.titles[name]} ${version}`, () => { listReleases(row, version); }]);
    });
    const solution = question.driver && Lookup.best(given, { ...question, driver: undefined });
    if (solution) found.push([`Driver ${given.versions.driver[solution.driver]}`, () => { at("driver").value = given.versions.driver[solution.driver]; }]);
    return found;
  }

  // Every release of the first wish, beside the others: a few rows at a time, so that the page stays usable meanwhile.
  function everything(given, question, chosen, current) {
    const [{ name }] = wishes(), body = made("tbody"), left = [...about.releases[name]];
    const last = "cuda" in (chosen ?? {}) && name !== "cuda" ? "cuda" : "python";
    at("all-title").textContent = `All releases of ${about.titles[name]}${wishes().length > 1 ? ", beside the rest" : ""}`;
    const names = ["Release", "Fits", "Build", "Driver", about.titles[last]];
    at("all").replaceChildren(made("table", [made("thead", made("tr", names.map((text) => made("th", text, { scope: "col" })))), body]));
    at("all").setAttribute("aria-busy", "true");
    const some = () => {
      if (!current()) return;
      for (const end = performance.now() + SLICE; left.length && performance.now() < end;) body.append(releaseRow(given, question, chosen, name, last, left.shift()));
      if (left.length) setTimeout(some);
      else at("all").setAttribute("aria-busy", "false");
    };
    setTimeout(some);
  }

  function releaseRow(given, question, chosen, name, last, version) {
    const one = { ...question, wishes: { ...question.wishes, [name]: [version] } };
    const solution = Lookup.best(given, one);
    const choose = made("button", version, { type: "button", "aria-label": `Ask for ${about.titles[name]} ${version}` });
    choose.addEventListener("click", () => { at("release").value = version; show(); at("answer-title").scrollIntoView(); });
    const cells = solution ? fits(given, question, solution, name, last)
      : [made("span", "no", { class: "verdict fail" }), rule(refusal(given, one, name)), "", ""];
    const labels = ["", "", "driver", about.titles[last]];
    const here = chosen && given.versions[name][chosen[name]] === version;
    return made("tr", [made("th", choose, { scope: "row" }), ...cells.map((cell, place) => made("td", cell, labels[place] ? { "data-label": labels[place] } : {}))],
      here ? { class: "chosen", "aria-current": "true" } : {});
  }

  function fits(given, question, solution, name, last) {
    const shown = words.rows(given, question, solution);
    const [, , build] = shown.find(([title]) => title === about.titles[name]);
    const [, end] = shown.find(([title]) => title === about.titles[last]) ?? ["", ""];
    return [made("span", "fits", { class: "verdict pass" }), build, given.versions.driver[solution.driver], end];
  }

  // The rule that tells most about why a release does not fit: one that forbids it by itself, else of the conflict what is
  // not the question itself.
  function refusal(given, question, name) {
    const { constraints } = Lookup.question(given, question), [wanted] = constraints.filter((item) => item.rule === "requested" && item.of === name);
    const alone = constraints.find((item) => item.place !== undefined && item.of === name && !item.sides && !(item.allowed & (wanted?.allowed ?? item.allowed)));
    if (alone) return alone.rule;
    const found = Lookup.conflict(given, question).map((item) => item.rule);
    return found.find((rule) => !["requested", "installed-driver-stays"].includes(rule)) ?? found[0];
  }

  let turn = 0;
  async function show() {
    const mine = ++turn;
    const question = asked();
    if (!question || beyond.length) return;
    const arch = at("arch").value, given = await problem(arch);
    if (mine !== turn) return;
    at("all").parentElement.hidden = false;
    if (question.system && given.systems[question.system] === undefined) {
      at("answer").replaceChildren(made("p", `${at("os").selectedOptions[0].textContent} does not run on ${arch}.`));
      at("all").replaceChildren();
      return;
    }
    const solution = Lookup.best(given, question);
    const parts = solution ? answered(given, question, solution) : await refused(given, question);
    if (mine !== turn) return;
    at("answer").replaceChildren(...parts);
    const address = asking.write(typed());
    try {
      history.replaceState(null, "", address);
    } catch {
      location.replace(`#${address.slice(1)}`);  // a page from a folder may not change its address
    }
    everything(given, question, solution, () => mine === turn);
  }

  options(at("os"), [["", "any Linux"], ...about.systems]);
  options(at("arch"), [["x86_64", "x86_64"], ["aarch64", "aarch64 (Arm)"]]);
  // Hundreds of proposals are made when somebody comes to their field.
  for (const [field, list, texts] of [["gpu", "gpus", about.products], ["driver", "drivers", about.drivers]]) {
    at(field).addEventListener("focus", () => options(at(list), texts.map((text) => [text, ""])), { once: true });
  }
  fromAddress();
  at("question").addEventListener("submit", (event) => event.preventDefault());
  for (const id of ["gpu", "os", "arch", "driver"]) at(id).addEventListener("change", show);
  at("more").addEventListener("click", () => {
    const taken = wishes().map(({ name }) => name);
    addWish({ name: Object.keys(about.releases).find((name) => !taken.includes(name)), text: "" }).component.focus();
    show();
  });
  addEventListener("popstate", () => { fromAddress(); show(); });
  show();
})();
