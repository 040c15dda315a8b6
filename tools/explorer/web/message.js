// The form for a message: what doctor.js makes of it, in words. Both it and its data come when somebody asks.
"use strict";

(() => {
  const { made, copied, script } = Pieces;
  const at = (id) => document.getElementById(id);
  const MOST = 1000000, SHOWN = 5;
  const kinds = ["Cause", "Symptom", "Harmless"];
  let doctor;

  const load = () => {
    doctor ??= Promise.all([script("doctor.js"), script("messages.js"), script("similar.js")])
      .then(() => Doctor(EXPLORER.messages, EXPLORER.similar));
    return doctor;
  };

  const page = (folder, name) => made("a", `More about ${name}: how to confirm it, and where it is known from`, { href: `../${folder}/${name}.html` });
  const quoted = (line) => made("blockquote", line);

  function finding({ told }, { cause, line, groups, evidence }) {
    const { title, weight, text, needs, fixes = [] } = EXPLORER.messages.causes[cause];
    const facts = [...told(cause, groups), ...(needs ? [`It needs ${needs}.`] : [])];
    return [made("h3", `${kinds[weight]}: ${title}`), ...evidence.map((shown) => quoted(line > 1 ? `line ${line}: ${shown}` : shown)),
      made("p", text), ...(facts.length ? [made("ul", facts.map((fact) => made("li", fact)))] : []),
      ...fixes.flatMap(([fix, commands]) => [made("p", fix), ...commands.map(copied)]),
      made("p", page(EXPLORER.messages.pages, cause))];
  }

  function words(known, { findings, reference, outside }) {
    if (reference) {
      const said = EXPLORER.messages.references[reference];
      return said ? [made("h3", `${reference}: a message of gpusetup itself`), quoted(said), made("p", page(EXPLORER.messages.errors, reference))]
        : [made("p", `No message of gpusetup has the reference ${reference}.`)];
    }
    if (outside) {
      return [made("p", made("b", "No fault of the GPU installation in this text.")),
        ...outside.flatMap(({ title, line, advice }) => [made("h3", title), quoted(line), made("p", advice)])];
    }
    if (!findings) return [made("p", made("b", "Not recognised.")), made("p", ["None of this matches a cause that is known here. On the machine itself, ", made("code", "gpusetup doctor"), " looks at the installation."])];
    const more = findings.slice(SHOWN).map(({ cause }) => made("li", made("a", EXPLORER.messages.causes[cause].title, { href: `../${EXPLORER.messages.pages}/${cause}.html` })));
    return [...findings.slice(0, SHOWN).flatMap((one) => finding(known, one)), ...(more.length ? [made("h3", "Also found"), made("ul", more)] : [])];
  }

  at("doctor").addEventListener("submit", async (event) => {
    event.preventDefault();
    const text = at("message").value;
    if (!text.trim()) {
      at("meaning").replaceChildren(made("p", "Paste a message first."));
      at("message").focus();
      return;
    }
    try {
      const known = await load();
      at("meaning").replaceChildren(...(text.length > MOST ? [made("p", ["This is long: ", made("code", "gpusetup doctor --text FILE"), " reads it on your machine."])] : words(known, known.answer(text))));
    } catch (failure) {
      at("meaning").replaceChildren(made("p", `The catalogue could not be loaded: ${failure.message}.`));
    }
  });
})();
