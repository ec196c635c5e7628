"use strict";
// Asks for a prediction and shows it. What the server says goes into the page as text, never as markup.
(() => {
  const form = document.getElementById("ask");
  const answer = document.getElementById("answer");
  const button = form.querySelector("button");

  const make = (tag, text) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    return element;
  };

  const bar = (part) => {
    const box = make("span");
    box.className = "bar";
    box.setAttribute("aria-hidden", "true");
    box.appendChild(make("i")).style.width = `${100 * part}%`;
    return box;
  };

  const table = (classes, probabilities) => {
    const made = make("table");
    const head = made.createTHead().insertRow();
    for (const name of ["class", "probability"]) head.appendChild(make("th", name)).scope = "col";
    const body = made.createTBody();
    const order = [...classes.keys()].sort((a, b) => probabilities[b] - probabilities[a]);
    for (const place of order) {
      const row = body.insertRow();
      row.appendChild(make("th", classes[place])).scope = "row";
      const cell = row.insertCell();
      cell.textContent = `${(100 * probabilities[place]).toFixed(1)} %`;
      cell.append(bar(probabilities[place]));
    }
    return made;
  };

  const show = (reply) => {
    const lead = make("p", "The model's guess for you: ");
    lead.append(make("strong", reply.prediction));
    const box = make("div");
    box.className = "scroll";
    box.append(table(reply.classes, reply.probabilities));
    const advice = make("p", "It is a guess, and it is computed from your own data too: whoever you show it to may learn from it about you.");
    answer.replaceChildren(lead, box, advice);
  };

  const refuse = (text) => answer.replaceChildren(make("p", text));

  const ask = async () => {
    const headers = { "Content-Type": "application/json", Authorization: `Bearer ${form.token.value.trim()}` };
    const body = JSON.stringify({ node: form.node.value });
    const got = await fetch("v1/prediction", { method: "POST", headers, body, credentials: "omit" });
    if (got.ok) return show(await got.json());
    const known = { 401: "This token does not belong to this name.", 503: "Too many people are asking at once; try again in a moment." };
    refuse(known[got.status] || "This could not be answered; check name and token.");
  };

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      await ask();
    } catch {
      refuse("The service cannot be reached.");
    }
    button.disabled = false;
  });
})();
