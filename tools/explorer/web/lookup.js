// The search of the resolver, for a problem that tools/explorer/compiled.py wrote down. Domains are bit masks, as there:
// bit i of a component's mask says that its value i is still possible. It knows no rule: rules come as masks.
"use strict";

const Lookup = (() => {
  const mask = (text) => BigInt("0x" + text);
  const one = (set) => (set & (set - 1n)) === 0n;
  const lowest = (set) => (set & -set).toString(2).length - 1;

  function* bits(set) {
    while (set) {
      const low = set & -set;
      yield low.toString(2).length - 1;
      set ^= low;
    }
  }

  const count = (set) => {
    let found = 0;
    for (; set; set &= set - 1n) found += 1;
    return found;
  };

  // Hexadecimal text becomes numbers once, when it is first needed; a problem is asked many questions.
  function prepare(problem) {
    const known = new Map();
    const constraint = (item) => {
      if (!known.has(item)) known.set(item, "allowed" in item ? { ...item, allowed: mask(item.allowed) } : { ...item, sides: sides(item) });
      return known.get(item);
    };
    const sides = (item) => {
      const goes = item.goes.map(([group, partners]) => [mask(group), mask(partners)]);
      const back = [];  // the same from the other side: values of `and` by the groups that they go with
      problem.versions[item.and].forEach((_, index) => {
        const bit = 1n << BigInt(index);
        const partners = goes.reduce((all, [group, theirs]) => (theirs & bit ? all | group : all), 0n);
        const same = back.find(([, others]) => others === partners);
        if (same) same[0] |= bit;
        else back.push([bit, partners]);
      });
      return [goes, back];
    };
    const all = (name) => (1n << BigInt(problem.versions[name].length)) - 1n;
    return { ...problem, constraint, usual: mask(problem.usual), full: Object.fromEntries(problem.variables.map((name) => [name, all(name)])) };
  }

  // What is asked: { wishes: { component: versions that will do, or null for any }, gpu: a kind's number, system: an id,
  // driver: a version }; all but the wishes may be missing.
  function question(problem, asked) {
    const names = problem.wishes.filter((name) => name in asked.wishes);
    const [variables, free, named] = problem.sets[names.join("+")];
    const there = variables.map((place) => problem.variables[place]);
    const added = [];
    if (asked.gpu !== undefined) added.push(problem.additions[problem.gpus[asked.gpu]]);
    if (asked.system) added.push(problem.additions[problem.systems[asked.system]]);
    const versions = (name, wanted) =>
      problem.versions[name].reduce((all, version, index) => (wanted.includes(version) ? all | (1n << BigInt(index)) : all), 0n);
    const stays = asked.driver ? versions("driver", [asked.driver]) : 0n;
    const constraints = names.filter((name) => asked.wishes[name])
      .map((name) => ({ rule: "requested", of: name, allowed: versions(name, asked.wishes[name]) }))
      .filter((item) => item.allowed !== problem.full[item.of]);
    if (stays) constraints.push({ rule: "installed-driver-stays", of: "driver", allowed: stays });
    const rules = [problem.base, ...added.flatMap((item) => (stays ? [item.always] : [item.always, item.free]))].flat()
      .filter((item) => there.includes(item.of) && (item.and === undefined || there.includes(item.and)));
    constraints.push(...rules.sort((a, b) => a.place - b.place).map(problem.constraint));
    // Whoever names a CUDA names the driver that it was made with: then the order is another one.
    const order = (named && asked.wishes.cuda ? named : free).map((place) => {
      const other = added.map((item) => item.ranks[place]).find((ranks) => ranks);
      return other ? { ...problem.order[place], ranks: other } : problem.order[place];
    });
    const full = Object.fromEntries(there.map((name) => [name, problem.full[name]]));
    full.driver = problem.usual | stays;
    return { variables: there, full, constraints, order };
  }

  function search({ variables, full }, constraints) {
    const touching = Object.fromEntries(variables.map((name) => [name, []]));
    for (const item of constraints) {
      if (!item.sides) continue;
      touching[item.of].push([item, 1]);
      touching[item.and].push([item, 0]);
    }

    function propagate(domains, changed) {
      while (changed.length) {
        const variable = changed.pop();
        for (const [item, side] of touching[variable]) {
          const target = side ? item.and : item.of;
          const mine = domains[target], other = domains[side ? item.of : item.and];
          let kept = 0n;
          for (const [group, partners] of item.sides[side]) if (group & mine && partners & other) kept |= group;
          kept &= mine;
          if (kept === mine) continue;
          if (!kept) return null;
          domains[target] = kept;
          if (!changed.includes(target)) changed.push(target);
        }
      }
      return domains;
    }

    function restrict(domains, variable, allowed) {
      const limited = domains[variable] & allowed;
      if (!limited) return null;
      return limited === domains[variable] ? domains : propagate({ ...domains, [variable]: limited }, [variable]);
    }

    function solve(domains) {
      if (!domains) return null;
      const open = variables.filter((name) => !one(domains[name]));
      if (!open.length) return domains;
      const variable = open.reduce((best, name) => (count(domains[name]) < count(domains[best]) ? name : best));
      for (const index of bits(domains[variable])) {
        const found = solve(restrict(domains, variable, 1n << BigInt(index)));
        if (found) return found;
      }
      return null;
    }

    function initial() {
      const domains = { ...full };
      for (const item of constraints) if (!item.sides) domains[item.of] &= item.allowed;
      if (variables.some((name) => !domains[name])) return null;
      return propagate(domains, [...variables]);
    }

    return { propagate, restrict, solve, initial };
  }

  // Each criterion keeps the best of what the ones before it left.
  function best(problem, asked) {
    const posed = question(problem, asked), { constraints, order } = posed;
    let engine = search(posed, constraints);
    let domains = engine.initial();
    let witness = engine.solve(domains);
    if (!witness) return null;
    for (const item of order) {
      if ("ranks" in item) [domains, witness] = ranked(problem, engine, domains, witness, item);
      else {
        const kept = related(posed, constraints, domains, witness, item);
        if (kept.added) {
          constraints.push(kept.added);
          engine = search(posed, constraints);
        }
        ({ domains, witness } = kept);
      }
    }
    const solution = engine.solve(domains);
    return Object.fromEntries(posed.variables.map((name) => [name, lowest(solution[name])]));
  }

  function ranked(problem, engine, domains, witness, item) {
    const domain = domains[item.of];
    if (one(domain)) return [domains, witness];
    const masks = new Map();
    for (const index of bits(domain)) masks.set(item.ranks[index], (masks.get(item.ranks[index]) ?? 0n) | (1n << BigInt(index)));
    for (const rank of [...masks.keys()].sort((a, b) => a - b)) {
      let wanted = masks.get(rank);
      if (item.alike) {
        const same = new Set([...bits(wanted)].map((index) => problem.versions[item.of][index]));
        for (const index of bits(domain)) if (same.has(problem.versions[item.of][index])) wanted |= 1n << BigInt(index);
      }
      const limited = engine.restrict(domains, item.of, wanted);
      if (witness[item.of] & wanted) return [limited, witness];
      const solution = engine.solve(limited);
      if (solution) return [limited, solution];
    }
    return [domains, witness];
  }

  function related(posed, constraints, domains, witness, item) {
    const level = (mine, theirs) => item.levels[item.first[mine]][item.second[theirs]];
    const mine = [...bits(domains[item.of])], theirs = [...bits(domains[item.and])];
    const distinct = [...new Set(mine.flatMap((a) => theirs.map((b) => level(a, b))))].sort((a, b) => a - b);
    const reached = level(lowest(witness[item.of]), lowest(witness[item.and]));
    for (const limit of distinct.slice(0, -1)) {
      const side = (own, others, goes) => own.map((a) => [1n << BigInt(a),
        others.reduce((all, b) => (goes(a, b) ? all | (1n << BigInt(b)) : all), 0n)]);
      const added = {
        rule: item.name, of: item.of, and: item.and,
        sides: [side(mine, theirs, (a, b) => level(a, b) <= limit), side(theirs, mine, (b, a) => level(a, b) <= limit)],
      };
      const narrowed = search(posed, [...constraints, added]);
      const limited = narrowed.propagate({ ...domains }, [item.of, item.and]);
      const solution = reached <= limit ? witness : narrowed.solve(limited);
      if (limited && solution) return { added, domains: limited, witness: solution };
    }
    return { domains, witness };
  }

  // The rules that a candidate breaks while the rest of a stack stays as it is.
  function against(problem, asked, solution, name, candidate) {
    const there = Object.fromEntries(Object.entries(solution).map(([other, index]) => [other, 1n << BigInt(index)]));
    there[name] = 1n << BigInt(candidate);
    return question(problem, asked).constraints.filter((item) => broken(item, there, name));
  }

  function broken(item, there, name) {
    if (!item.sides) return item.of === name && !(item.allowed & there[name]);
    if (item.of !== name && item.and !== name) return false;
    const side = item.of === name ? 0 : 1;
    const [mine, other] = [there[name], there[side ? item.of : item.and]];
    return !item.sides[side].some(([group, partners]) => group & mine && partners & other);
  }

  // Constraints that cannot hold together, none of which can be left out; the least telling are left out first.
  function conflict(problem, asked) {
    const telling = (item) => (item.place === undefined ? 3 : item.given ? 2 : item.sides ? 1 : 0);
    const posed = question(problem, asked);
    let kept = posed.constraints.sort((a, b) => telling(a) - telling(b));
    for (let index = 0; index < kept.length; ) {
      const rest = kept.filter((_, other) => other !== index);
      const engine = search(posed, rest);
      if (engine.solve(engine.initial())) index += 1;
      else kept = rest;
    }
    return kept.sort((a, b) => telling(b) - telling(a));
  }

  return { prepare, question, best, against, conflict };
})();

if (typeof module !== "undefined") module.exports = Lookup;
