// The page: a question from the form or the address, its answer in words. What is true is decided by lookup.js.
"use strict";

(() => {
  const about = window.EXPLORER;
  const { made, copied, script } = Pieces;
  const at = (id) => document.getElementById(id);
  const fields = ["framework", "release", "gpu", "os", "arch", "driver"];
  const loaded = {};

  // -- small pieces of a page; text is always text ----------------------------------------------------------------

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
    const words = plain(text).split(" ");
    return Object.keys(about.gpus).filter((name) => words.every((word) => plain(name).includes(word))).slice(0, 5);
  }

  const newestOf = (versions, beginning) => versions.find((version) => version === beginning || version.startsWith(`${beginning}.`));

  function fromAddress() {
    const given = new URLSearchParams(location.search || location.hash.slice(1));
    const framework = Object.keys(about.frameworks).find((name) => given.has(name)) ?? "torch";
    at("framework").value = framework;
    at("gpu").value = given.get("gpu") ?? "";
    at("driver").value = given.get("driver") ?? "";
    at("os").value = about.systems.some(([id]) => id === given.get("os")) ? given.get("os") : "";
    at("arch").value = given.get("arch") === "aarch64" ? "aarch64" : "x86_64";
    listReleases();
    at("release").value = newestOf(about.frameworks[framework].releases, (given.get(framework) ?? "").replace(/[=*]|\.\*$/g, "")) ?? "";
  }

  function address() {
    const told = new URLSearchParams({ [at("framework").value]: at("release").value });
    for (const name of ["gpu", "os", "driver"]) if (at(name).value) told.set(name, at(name).value);
    if (at("arch").value !== "x86_64") told.set("arch", at("arch").value);
    return `?${told}`;
  }

  function listReleases() {
    const before = at("release").value;
    const { releases } = about.frameworks[at("framework").value];
    options(at("release"), [["", "newest that fits"], ...releases.map((version) => [version, version])]);
    at("release").value = releases.includes(before) ? before : "";
  }

  function asked() {
    const kind = kindOf(at("gpu").value), driver = at("driver").value.trim();
    const known = driver ? newestOf([...about.drivers].reverse(), driver) : "";
    at("gpu-said").textContent = kind === null
      ? (near(at("gpu").value).length ? `which one? ${near(at("gpu").value).join(", ")}` : "not a GPU that is known here")
      : kind === undefined ? "" : `${about.kinds[kind].arch}, compute capability ${about.kinds[kind].cc}`;
    at("driver-said").textContent = driver && !known ? "not a driver that is known here: write it as nvidia-smi does" : "";
    at("gpu").setAttribute("aria-invalid", kind === null);
    at("driver").setAttribute("aria-invalid", Boolean(driver && !known));
    if (kind === null || (driver && !known)) return null;
    const cpu = kind !== undefined && about.kinds[kind].cpu;
    if (cpu) at("arch").value = cpu;
    return { gpu: kind, driver: known, release: at("release").value, system: at("os").value };
  }

  // -- problems come one by one, as scripts: a page that was opened from a folder may fetch nothing ----------------

  function problem(framework, arch) {
    const name = `${framework}-${arch}`;
    loaded[name] ??= script(`problems/${name}.js`).then(() => Lookup.prepare(about.problems[name]));
    return loaded[name];
  }

  // -- the answer in words ----------------------------------------------------------------------------------------

  const titled = { driver: "Driver", torch: "torch", tensorflow: "TensorFlow", jax: "JAX", cupy: "CuPy", cuda: "CUDA", python: "Python" };

  function relation(told, name, solution) {
    const { rows, driver, words } = told.relations[name];
    return words[rows[driver[solution.driver]][solution[name]]];
  }

  function pip(given, solution, framework) {
    const { note, texts, lines } = given.told.pip;
    if (note !== undefined) return { note };
    const branch = given.versions.driver[solution.driver].split(".")[0];
    const told = lines[solution[framework]][framework === "cupy" ? solution.cuda : 0];
    return { line: `pip install ${texts[told[branch] ?? told["*"]]}` };
  }

  function applyLine(given, question, solution, framework) {
    const words = [given.told.words[solution[framework]]];
    if (given.told.cudas) words.push(given.told.cudas[solution.cuda]);
    if (!question.driver) words.push(`driver==${given.versions.driver[solution.driver]}`);
    return `sudo gpusetup apply ${words.map((word) => `-w ${word}`).join(" ")}`;
  }

  function why(given, question, solution, framework) {
    const { told, versions, modules } = given;
    const branch = versions.driver[solution.driver].split(".")[0];
    const kind = question.gpu === undefined ? null : about.kinds[question.gpu];
    const reasons = [];
    if (question.driver) reasons.push([`driver ${question.driver} stays`]);
    reasons.push([told.driver[branch] ?? `R${branch}`]);
    if (kind?.last) reasons.push([kind.last]);
    reasons.push([kind?.module ? kind.module : `${modules[solution.driver]} kernel modules: NVIDIA's default for R${branch}`]);
    for (const name of Object.keys(told.relations)) {
      const inside = name === "cuda" ? "" : ` inside ${titled[name]}`;
      reasons.push([`CUDA ${told.minors[name][solution[name]]}${inside} ${relation(told, name, solution)}`]);
    }
    const newest = newestLeft(given, question, solution, framework);
    if (newest) reasons.push(newest);
    return reasons;
  }

  // Why not the newest release: the first rule that it breaks beside the rest of this stack.
  function newestLeft(given, question, solution, framework) {
    if (question.release) return null;
    const versions = given.versions[framework], top = about.frameworks[framework].releases[0];
    if (versions[solution[framework]] === top) return null;
    const candidates = versions.flatMap((version, index) => (version === top ? [index] : []));
    const broken = Lookup.against(given, question, solution, framework, candidates[candidates.length - 1]);
    return broken.length ? [`not ${titled[framework]} ${top}: `, ...rule(broken[0].rule)] : null;
  }

  function answered(given, question, solution, framework) {
    const { versions, modules, told } = given;
    const index = solution[framework];
    const list = made("dl");
    const row = (name, text, more = "") => list.append(made("dt", name), made("dd", [made("b", text), more && ` ${more}`]));
    row("Driver", versions.driver[solution.driver], `${modules[solution.driver]} modules${question.driver ? ", stays" : ""}`);
    row(titled[framework], versions[framework][index], told.shown[index]);
    if (framework !== "cuda" && solution.cuda !== undefined) row("CUDA", versions.cuda[solution.cuda]);
    if (told.python[index]) row("Python", question.system ? versions.python[solution.python] : told.python[index], question.system ? `of ${told.python[index]}` : "");
    const installs = [copied(applyLine(given, question, solution, framework))];
    const { line, note } = pip(given, solution, framework);
    installs.push(line ? copied(line) : made("p", note, { class: "said" }));
    return [list, made("h3", "Install"), ...installs, made("h3", "Why"),
      made("ul", why(given, question, solution, framework).map((text) => made("li", text)))];
  }

  function refused(given, question) {
    const rules = [...new Set(Lookup.conflict(given, question).map((item) => item.rule))];
    return [made("p", made("b", "No stack fits.")), made("p", "These cannot hold together:"), made("ul", rules.map((name) => made("li", rule(name))))];
  }

  function everything(given, question, framework, chosen) {
    const body = made("tbody");
    for (const version of about.frameworks[framework].releases) {
      const one = { ...question, release: version };
      const solution = Lookup.best(given, one);
      const choose = made("button", version, { type: "button", "aria-label": `Ask for ${titled[framework]} ${version}` });
      choose.addEventListener("click", () => { at("release").value = version; show(); at("answer-title").scrollIntoView(); });
      const cells = solution
        ? [made("span", "fits", { class: "verdict pass" }), given.told.shown[solution[framework]] || "", given.versions.driver[solution.driver],
          solution.cuda !== undefined && framework !== "cuda" ? given.versions.cuda[solution.cuda] : given.told.python[solution[framework]]]
        : [made("span", "no", { class: "verdict fail" }), rule(refusal(given, one)), "", ""];
      const labels = ["", "", "driver", framework === "cupy" ? "CUDA" : "Python"];
      body.append(made("tr", [made("th", choose, { scope: "row" }), ...cells.map((cell, place) => made("td", cell, labels[place] ? { "data-label": labels[place] } : {}))],
        version === chosen ? { class: "chosen", "aria-current": "true" } : {}));
    }
    const names = ["Release", "Fits", "Build", "Driver", framework === "cupy" ? "CUDA" : "Python"];
    const head = made("thead", made("tr", names.map((text) => made("th", text, { scope: "col" }))));
    return made("table", [head, body]);
  }

  // The rule that tells most about why a release does not fit: of the conflict, what is not the question itself.
  function refusal(given, question) {
    const found = Lookup.conflict(given, question).map((item) => item.rule);
    return found.find((name) => !["requested", "installed-driver-stays"].includes(name)) ?? found[0];
  }

  let turn = 0;
  async function show() {
    const mine = ++turn;
    const question = asked();
    if (!question) return;
    const framework = at("framework").value, arch = at("arch").value;
    const given = await problem(framework, arch);
    if (mine !== turn) return;
    if (question.system && given.systems[question.system] === undefined) {
      at("answer").replaceChildren(made("p", `${at("os").selectedOptions[0].textContent} does not run on ${arch}.`));
      at("all").replaceChildren();
      return;
    }
    const solution = Lookup.best(given, question);
    at("answer").replaceChildren(...(solution ? answered(given, question, solution, framework) : refused(given, question)));
    try {
      history.replaceState(null, "", address());
    } catch {
      location.replace(`#${address().slice(1)}`);  // a page from a folder may not change its address
    }
    setTimeout(() => {
      if (mine === turn) at("all").replaceChildren(everything(given, question, framework, solution && given.versions[framework][solution[framework]]));
    });
  }

  at("stamp").textContent = `Matrix of ${about.date} · ${Object.keys(about.products).length} GPUs, ${about.drivers.length} drivers`;
  options(at("framework"), Object.keys(about.frameworks).map((name) => [name, titled[name]]));
  options(at("os"), [["", "any Linux"], ...about.systems]);
  options(at("arch"), [["x86_64", "x86_64"], ["aarch64", "aarch64 (Arm)"]]);
  options(at("gpus"), Object.keys(about.products).map((name) => [name, ""]));
  options(at("drivers"), about.drivers.map((version) => [version, ""]));
  fromAddress();
  at("question").addEventListener("submit", (event) => event.preventDefault());
  for (const id of fields) {
    at(id).addEventListener("change", () => {
      if (id === "framework") listReleases();
      show();
    });
  }
  addEventListener("popstate", () => { fromAddress(); show(); });
  show();
})();
