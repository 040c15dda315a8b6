// What is asked, read from the address and written there, as the command line reads it: torch=2.6 is every release of 2.6.
"use strict";

const Asked = (about) => {
  const NOT_WISHES = ["gpu", "os", "arch", "driver"];

  // What a version in the address names: { text, versions }; null where only the command line can tell.
  function release(name, text) {
    const given = text.trim();
    const number = given.replace(/^={1,2}/, "");
    if (!number) return { text: "", versions: null };
    const exact = given.startsWith("==") || number.split(".").length > 2;
    const series = number.endsWith(".*") ? number : `${number}.*`;
    if (exact && about.releases[name].includes(number)) return { text: number, versions: [number] };
    if (given.startsWith("==") && !number.endsWith(".*")) return null;
    return about.series[name][series] ? { text: series, versions: about.series[name][series] } : null;
  }

  // A wish as the command line takes it.
  const word = (name, text, equal = "==") => (text ? `${name}${/^[<>=!~+]/.test(text) ? "" : equal}${text}` : name);
  const said = (text) => (text.endsWith(".*") ? (text.split(".").length > 3 ? text : text.slice(0, -2)) : text.split(".").length > 2 ? text : `==${text}`);

  // The address: wishes in their order, the rest, and what the page cannot answer, as the command line takes it.
  function read(search) {
    const given = new URLSearchParams(search);
    const found = { wishes: [], beyond: [], gpu: "", os: "", arch: "", driver: "" };
    for (const [key, text] of given) {
      const lowered = key.toLowerCase(), name = about.aliases[lowered] ?? lowered;
      const known = about.titles[name] && name !== "driver" && name !== "python";
      if (known && release(name, text) && !found.wishes.some((wish) => wish.name === name)) found.wishes.push({ name, text: release(name, text).text });
      else if (known || about.elsewhere.includes(name)) found.beyond.push(word(name, text.trim(), "="));
    }
    for (const name of NOT_WISHES) {
      const [first, ...more] = given.getAll(name);
      found[name] = first ?? "";
      found.beyond.push(...more.map((text) => `--${name} ${text}`));
    }
    if (found.os && !about.systems.some(([id]) => id === found.os)) found.beyond.push(`--os ${found.os}`);
    if (found.arch && !["x86_64", "aarch64"].includes(found.arch)) found.beyond.push(`--arch ${found.arch}`);
    if (!found.wishes.length) found.wishes.push({ name: found.beyond.length ? "" : "torch", text: "" });
    found.wishes = found.wishes.filter((wish) => wish.name);
    return found;
  }

  function write({ wishes, gpu, os, arch, driver }) {
    const told = new URLSearchParams(wishes.map(({ name, text }) => [name, text && said(text)]));
    for (const [name, text] of Object.entries({ gpu, os, driver, arch: arch === "x86_64" ? "" : arch })) if (text) told.set(name, text);
    return `?${told}`;
  }

  return { release, word, read, write };
};

if (typeof module !== "undefined") module.exports = Asked;
