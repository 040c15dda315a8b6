// Small pieces of a page; text is always text. Scripts come when they are asked for: a page from a folder may fetch nothing.
"use strict";

const Pieces = (() => {
  function made(name, text, attributes = {}) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    for (const part of [text].flat()) if (part !== undefined) element.append(part);
    return element;
  }

  function copied(line) {
    const button = made("button", "Copy", { type: "button", "aria-label": `Copy ${line}` });
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(line);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(button.previousSibling);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    return made("div", [made("code", line), button], { class: "line" });
  }

  const script = (source) => new Promise((done, failed) => {
    const element = made("script", undefined, { src: source });
    element.addEventListener("load", done);
    element.addEventListener("error", () => failed(new Error(`${source} cannot be read`)));
    document.head.append(element);
  });

  return { made, copied, script };
})();
