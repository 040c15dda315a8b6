// An answer in words: rows, reasons, lines to copy. Every word came with the problem; what is true is decided by lookup.js.
"use strict";

const Words = (about) => {
  const FRAMEWORKS = ["torch", "tensorflow", "jax"];
  const RUNTIMES = ["cuda", ...FRAMEWORKS];
  const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word}'`);
  const branchOf = (given, solution) => given.versions.driver[solution.driver].split(".")[0];
  const wanted = (given, asked) => given.wishes.filter((name) => name in asked.wishes);

  // The CUDA major that libraries are for: that of what lies beside them.
  function major(given, solution) {
    const beside = RUNTIMES.find((name) => name in solution);
    return given.told.minors[beside][solution[beside]].split(".")[0];
  }

  function pythons(given, solution) {
    const { tags, words } = given.told.python;
    const names = Object.keys(tags).filter((name) => name in solution);
    return names.length ? words[names.reduce((all, name) => all & tags[name][solution[name]], -1)] : "";
  }

  // How a CUDA stands on the driver, by a letter.
  const relation = ({ told }, solution, name) => told.relations[name].rows[told.relations[name].driver[solution.driver]][solution[name]];

  function rows(given, asked, solution) {
    const { versions, modules, told } = given;
    const shown = (name) => [about.titles[name], versions[name][solution[name]],
      name === "cudnn" ? `for CUDA ${major(given, solution)}` : told.shown[name][solution[name]]];
    const range = pythons(given, solution);
    return [
      [about.titles.driver, versions.driver[solution.driver], `${modules[solution.driver]} modules${asked.driver ? ", stays" : ""}`],
      ...wanted(given, asked).map(shown),
      ...("cuda" in solution && !("cuda" in asked.wishes) ? [shown("cuda")] : []),
      ...(range ? [asked.system ? [about.titles.python, versions.python[solution.python], `of ${range}`] : [about.titles.python, range, ""]] : []),
    ];
  }

  function why(given, asked, solution) {
    const { told, modules, versions } = given, branch = branchOf(given, solution);
    const kind = asked.gpu === undefined ? null : about.kinds[asked.gpu];
    const stands = (name) => told.relations[name].words[relation(given, solution, name)];
    return [
      ...(asked.driver ? [[`driver ${asked.driver} stays`]] : []),
      [told.driver[branch] ?? `R${branch}`],
      ...(kind?.last ? [[kind.last]] : []),
      [kind?.module ? kind.module : `${modules[solution.driver]} kernel modules: NVIDIA's default for R${branch}`],
      ...RUNTIMES.filter((name) => name in solution).map((name) =>
        [`CUDA ${told.minors[name][solution[name]]}${name === "cuda" ? "" : ` inside ${about.titles[name]}`} ${stands(name)}`]),
      ...wanted(given, asked).filter((name) => !asked.wishes[name]).flatMap((name) => newestLeft(given, asked, solution, name, versions[name])),
    ];
  }

  // Why not the newest release of a wish: the first rule that it breaks beside the rest of this stack.
  function newestLeft(given, asked, solution, name, versions) {
    const top = about.releases[name][0];
    if (versions[solution[name]] === top) return [];
    const candidates = versions.flatMap((version, index) => (version === top ? [index] : []));
    const broken = Lookup.against(given, asked, solution, name, candidates[candidates.length - 1]);
    const telling = broken.find((item) => !item.sides) ?? broken[0];
    return telling ? [[`not ${about.titles[name]} ${top}: `, telling.rule]] : [];
  }

  function pip(given, asked, solution) {
    const { options, pins, toolkit, libraries, kept, limits, none } = given.told.install;
    const there = Object.keys(pins).filter((name) => name in solution);
    const framework = there.some((name) => FRAMEWORKS.includes(name));
    const wheels = "cupy" in solution ? toolkit.wheels[toolkit.extra[solution.cupy]][solution.cuda] : "";
    if (!framework && !wheels) return { note: none };
    const alone = framework ? [] : [wheels,
      ...["cudnn", "nccl"].filter((name) => name in solution).map((name) => libraries[name][solution[name]][major(given, solution)])];
    const brings = { driver: true, torch: "torch" in solution, jax: "jax" in solution, cuda: "cupy" in solution && toolkit.extra[solution.cupy] };
    const place = Object.keys(limits.kinds).reduce((found, name, index) =>
      found * limits.sizes[index] + (brings[name] ? limits.kinds[name][solution[name]] : 0), 0);
    const within = Object.keys(kept).filter((name) => name in solution && asked.gpu !== undefined).map((name) => kept[name][asked.gpu][solution[name]]);
    const words = ["torch" in solution ? options[solution.torch] : "", ...there.map((name) => pins[name][solution[name]]), ...alone, ...new Set(within), limits.texts[limits.table[place]]];
    return { line: `pip install ${words.filter(Boolean).join(" ")}` };
  }

  function apply(given, asked, solution) {
    const words = given.wishes.filter((name) => name in solution).map((name) => given.told.words[name][solution[name]]);
    if (!asked.driver) words.push(`driver==${given.versions.driver[solution.driver]}`);
    return `sudo gpusetup apply ${words.map((word) => `-w ${quoted(word)}`).join(" ")}`;
  }

  // What to keep in mind about this stack.
  function warnings(given, asked, solution, gpu) {
    const { none, gpus, rows: known, texts, ended, vulnerable, floors, minor, untested, systems } = given.told.warnings;
    const { versions, told } = given, branch = branchOf(given, solution), version = versions.driver[solution.driver];
    const values = asked.gpu === undefined ? none : gpus[asked.gpu];
    const floor = asked.gpu === undefined ? undefined : given.additions[given.gpus[asked.gpu]].free.find(({ rule }) => rule === "gpu-product-floor");
    const low = floor && !(given.constraint(floor).allowed >> BigInt(solution.driver) & 1n);
    const minors = RUNTIMES.filter((name) => name in solution && relation(given, solution, name) === "m")
      .map((name) => minor[asked.gpu === undefined ? 0 : asked.gpu + 1].replace("{}", `CUDA ${told.minors[name][solution[name]]}${name === "cuda" ? "" : ` inside ${name}`}`).replaceAll("{branch}", `R${branch}`));
    const tested = given.order.find(({ name }) => name === "tested-together");
    const odd = "cupy" in solution && tested.levels[tested.first[solution.cupy]][tested.second[solution.cuda]] > 0;
    const inferred = Object.entries(about.inferred).find(([name]) => name === gpu.name);
    return [
      ...(ended[branch] ? [ended[branch][asked.driver ? 0 : 1]] : []),
      ...(vulnerable[solution.driver] ? [vulnerable[solution.driver]] : []),
      ...(low ? [`${floors[asked.gpu].replace("{}", gpu.label)}; ${version} is older`] : []),
      ...minors,
      ...(odd ? [untested.replace("{}", versions.cupy[solution.cupy]).replace("{cuda}", told.minors.cuda[solution.cuda])] : []),
      ...Object.entries(values).filter(([name]) => name in solution)
        .flatMap(([name, row]) => (known[row][solution[name]] ?? []).map((text) => texts[text].replaceAll("{}", gpu.label))),
      ...(inferred ? [inferred[1]] : []),
      ...("python" in solution && systems[asked.system] ? [systems[asked.system]] : []),
    ];
  }

  // The command that asks the same: `words` are requirements, options are what else is known.
  function command(name, words, options) {
    const told = Object.entries(options).flatMap(([option, values]) => values.filter(Boolean).map((value) => `--${option} ${quoted(value)}`));
    return ["gpusetup", name, ...words.map(quoted), ...told].join(" ");
  }

  return { rows, pythons, why, pip, apply, warnings, command };
};

if (typeof module !== "undefined") module.exports = Words;
