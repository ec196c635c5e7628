"use strict";
// Certificates are built when someone opens them; everything else is on the page without this script.
(() => {
  const holder = document.getElementById("runs");
  if (!holder) return;
  let data = null;

  const make = (tag, text) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    return element;
  };

  const certificate = (number) => {
    const box = make("div");
    box.className = "certificate";
    let list = null;
    for (const line of data.certificates[number]) {
      const [kind, text] = data.lines[line];
      if (kind === "i") {
        list = list || box.appendChild(make("ul"));
        list.append(make("li", text));
      } else {
        list = null;
        box.append(make(kind === "h" ? "h4" : "p", text));
      }
    }
    return box;
  };

  const table = (rows) => {
    const box = make("div");
    box.className = "scroll";
    const made = box.appendChild(make("table"));
    const head = made.createTHead().insertRow();
    for (const name of data.heads) {
      const cell = head.appendChild(make("th", name));
      cell.scope = "col";
    }
    const body = made.createTBody();
    for (const row of rows) {
      const line = body.insertRow();
      for (const value of row) line.insertCell().textContent = value === null ? "–" : value;
    }
    return box;
  };

  const open = (event) => {
    const cell = event.target;
    if (!cell.open || !cell.dataset || cell.dataset.cell === undefined || cell.dataset.built) return;
    cell.dataset.built = "yes";
    data = data || JSON.parse(holder.textContent);
    const shown = data.cells[Number(cell.dataset.cell)];
    cell.append(table(shown.runs));
    for (const number of shown.certificates) cell.append(certificate(number));
    if (!shown.certificates.length) cell.append(make("p", "No certificate was recorded."));
  };
  // A toggle event does not bubble; the third argument catches it on its way down.
  document.addEventListener("toggle", open, true);

  // A link of a leaderboard leads to a line that is closed, inside a list that is closed.
  const reveal = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (!target || target.dataset.cell === undefined) return;
    for (let box = target; box; box = box.parentElement) if (box.tagName === "DETAILS") box.open = true;
    target.scrollIntoView();
  };
  window.addEventListener("hashchange", reveal);
  reveal();
})();
