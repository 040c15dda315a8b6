// Why nothing fits, in the words of `gpusetup why-not`: each rule of the conflict about the very versions that it leaves.
// The steps are those of gpusetup/resolve/sentences.py; what single values and GPUs say came with the problem.
"use strict";

const Reasons = (about, given, told) => {
  const numbers = (text) => text.split(".").map(Number);
  function older(one, other) {
    const [mine, theirs] = [numbers(one), numbers(other)];
    for (let place = 0; place < Math.max(mine.length, theirs.length); place += 1) {
      const way = (mine[place] ?? 0) - (theirs[place] ?? 0);
      if (way) return way;
    }
    return 0;
  }
  const listed = (texts) => (texts.length > 1 ? `${texts.slice(0, -1).join(", ")} and ${texts[texts.length - 1]}` : texts[0]);
  const title = (name) => (name === "driver" || name === "python" ? name : about.titles[name]);
  const each = (values) => [...new Set(values)];
  // A component's releases have their own order; CUDA minors, Pythons and drivers are numbers.
  function span(texts, name) {
    const places = about.releases[name];
    const ordered = each(texts).sort(places ? (a, b) => places.indexOf(b) - places.indexOf(a) : older);
    return ordered.length <= 3 ? ordered.join(", ") : `${ordered[0]} to ${ordered[ordered.length - 1]}`;
  }

  function conflict(asked, said) {
    const members = Lookup.conflict(given, asked), { full } = Lookup.question(given, asked);
    const lines = members.map((member) => {
      const text = sentence(member, context(members.filter((item) => item !== member && !item.sides), full), asked, said);
      return { rule: member.rule, text, source: member.place === undefined ? "" : (about.rules[`${member.rule} ${member.of}`] ?? about.rules[member.rule])[1] };
    });
    return lines.filter((line, place) => lines.findIndex((other) => other.text === line.text && other.rule === line.rule) === place);
  }

  // What the other members leave of each component.
  function context(others, full) {
    const masks = { ...full };
    for (const item of others) masks[item.of] = masks[item.of] & item.allowed || masks[item.of];
    const places = (name) => [...given.versions[name].keys()].filter((place) => masks[name] >> BigInt(place) & 1n);
    return { places, narrow: (name) => masks[name] !== full[name], versions: (name) => places(name).map((place) => given.versions[name][place]) };
  }

  const label = (name, place) => given.told.words[name][place].replace(/^.+?==/, `${title(name)} `);
  const minors = (name, places) => each(places.map((place) => given.told.minors[name][place])).sort(older);
  const majors = (name, places) => each(places.flatMap((place) => (name === "cupy" ? told.cupy[place] : [numbers(given.told.minors[name][place])[0]]))).sort((a, b) => a - b);

  function sentence(member, left, asked, said) {
    const key = `${member.rule}:${member.and ?? member.of}`;
    const ofGpu = asked.gpu === undefined ? undefined : told.gpus[asked.gpu][key]?.replaceAll("{}", said.gpu);
    const constant = told.base[key] ?? ofGpu ?? told.systems[asked.system]?.[key] ?? about.rules[member.rule][0];
    const writer = writers[member.rule];
    return writer ? writer(member, left, constant, said, asked) : constant;
  }

  const code = ({ of: name }, left, constant, said, { gpu }) => (left.narrow(name)
    ? `${said.gpu} has compute capability ${about.kinds[gpu].cc}; ${left.places(name).slice(-3).map((place) => told.code[name][place]).join("; ")}`
    : constant);

  const takesCudnn = ({ of: name }, left) => {
    const last = left.places(name).pop();
    return `${label(name, last)} requires cuDNN ${told.pins[name][last] || `for CUDA ${majors(name, [last])[0]}`}`;
  };

  const writers = {
    requested: ({ of: name }, left, constant, said) => `${name}==${said.wishes[name]} was asked for`,
    "installed-driver-stays": (member, left, constant, said, { driver }) => `driver ${driver} is installed and stays ${told.stays[driver.split(".")[0]]}`,
    "torch-needs-code-for-gpu": code,
    "tensorflow-needs-code-for-gpu": code,
    "jax-needs-code-for-gpu": code,
    "jax-gpu-floor": (member, left, constant) => {
      const [least] = left.places("jax").map((place) => told.jax[place][1]).sort(older);
      return constant.replace(/capability \S+ or/, `capability ${least} or`);
    },
    "driver-runs-cuda": ({ and: name }, left) => runs(name, left),
    "one-cuda-major": ({ of, and }, left) => {
      const parts = [of, and].flatMap((name) => {
        const places = left.places(name), found = majors(name, places);
        const shown = each(left.versions(name)).length === 1 ? label(name, places[0]) : title(name);
        return found.length <= 2 ? [`${shown} is for CUDA ${found.join(" or ")}`] : [];
      });
      return parts.length === 2 ? `one environment holds one CUDA major, and ${parts[0]} while ${parts[1]}`
        : `one environment can hold only one CUDA major, shared by ${listed([of, and].map(title))}`;
    },
    "cudnn-takes-cuda": (member, left) => {
      const versions = left.versions("cudnn");
      return each(versions).length > 3 ? `each cuDNN is supported with some CUDA versions, and none of those here with CUDA ${span(left.versions("cuda"), "cuda")}`
        : `cuDNN ${span(versions, "cudnn")} is supported with CUDA ${span(left.places("cudnn").flatMap((place) => told.cudnn[place][0]))}`;
    },
    "cudnn-driver-floor": (member, left) => `cuDNN needs driver ${left.places("cudnn").map((place) => told.cudnn[place][1]).filter(Boolean).sort(older)[0]} or newer`,
    "torch-pins-cudnn": (member, left) => {
      const parts = left.places("torch").slice(-3).map((place) => `${label("torch", place)} includes ${told.torch[place] ? `cuDNN ${told.torch[place]}` : `a cuDNN for CUDA ${majors("torch", [place])[0]}`}`);
      return `${parts.join("; ")}; a second cuDNN in the same environment shadows it`;
    },
    "tensorflow-takes-cudnn": takesCudnn,
    "jax-takes-cudnn": takesCudnn,
    "framework-pins-agree": ({ of, and }, left) => `${label(of, left.places(of).pop())} and ${label(and, left.places(and).pop())} pin different versions of the same CUDA wheels`,
    "jax-driver-floor": (member, left) => `JAX needs driver ${left.places("jax").map((place) => told.jax[place][0]).sort(older)[0]} or newer`,
    "glibc-tag": ({ of: name }, left, constant) => constant.replace(/glibc [^;]*;/, `glibc ${span(left.places(name).map((place) => told.glibc[name][place]))};`),
    "python-tag": ({ of: name }, left) => wheels(name, left),
  };

  function runs(name, left) {
    const places = left.places(name), found = minors(name, places);
    const old = left.narrow("driver") ? `; the driver here is ${span(left.versions("driver"))}` : "";
    const kinds = each(found.map((minor) => numbers(minor)[0]));
    if (kinds.length > 1) {
      return listed(kinds.map((kind) => `CUDA ${kind} needs ${told.floors[found.find((minor) => numbers(minor)[0] === kind)].split(" (")[0]}`)) + old;
    }
    const what = found.length <= 2 ? found.join(" and ") : `${found[0]} to ${found[found.length - 1]}`;
    const inside = name === "cuda" ? "" : places.length <= 2 ? ` inside ${places.map((place) => label(name, place)).join(", ")}` : ` inside ${title(name)} ${span(left.versions(name), name)}`;
    return `CUDA ${what}${inside} needs ${told.floors[found[0]]}${old}`;
  }

  function wheels(name, left) {
    const versions = left.versions(name), pythons = left.versions("python"), { tags, versions: known } = given.told.python;
    const offers = (place) => known.filter((_, index) => tags[name][place] >> index & 1);
    const here = pythons.length === 1 ? `; Python here is ${pythons[0]}` : "";
    if (each(versions).length > 1 && here) {
      const fitting = left.places(name).filter((place) => offers(place).includes(pythons[0])).map((place) => given.versions[name][place]);
      if (fitting.length) return `${title(name)} has wheels for Python ${pythons[0]} in ${span(fitting, name)}`;
    }
    const offered = left.places(name).flatMap(offers);
    if (!offered.length) return `${title(name)} has no CUDA wheels for ${given.arch} in ${span(versions, name)}`;
    if (each(versions).length > 3) return `each ${title(name)} release has wheels for some Python versions only${here}`;
    const shown = versions.length === 1 ? label(name, left.places(name)[0]) : `${title(name)} ${span(versions, name)}`;
    return `${shown} has wheels for Python ${span(offered)}${here}`;
  }

  return { conflict };
};

if (typeof module !== "undefined") module.exports = Reasons;
