"use strict";
// The theme's search runs in a worker, and browsers allow no workers on pages that are opened from disk. There a hidden
// frame runs the same script instead. The theme asks for the name IFrameWorker.
(() => {
  if (location.protocol !== "file:") return;

  const before = `
    postMessage = (message) => parent.postMessage({ worker: "told", message }, "*");
    importScripts = (...addresses) => addresses.reduce((earlier, address) => earlier.then(() => new Promise((done) => {
      const script = document.createElement("script");
      script.src = address;
      script.onload = done;
      document.body.append(script);
    })), Promise.resolve());`;
  const after = 'parent.postMessage({ worker: "ready" }, "*");';

  class IFrameWorker extends EventTarget {
    constructor(address) {
      super();
      this.onmessage = null;
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.title = "search";
      document.body.append(this.frame);
      addEventListener("message", (event) => this.hear(event));
      const scripts = [`>${before}`, ` src="${address}">`, `>${after}`].map((script) => `<script${script}<\/script>`);
      const content = this.frame.contentDocument;
      content.open();
      content.write(`<!doctype html><body>${scripts.join("")}`);
      content.close();
    }

    hear(event) {
      if (event.source !== this.frame.contentWindow || !event.data.worker) return;
      if (event.data.worker === "ready") {
        const messages = this.waiting;
        this.waiting = null;
        for (const message of messages) this.postMessage(message);
        return;
      }
      const told = new MessageEvent("message", { data: event.data.message });
      this.dispatchEvent(told);
      if (this.onmessage) this.onmessage(told);
    }

    postMessage(message) {
      if (this.waiting) this.waiting.push(message);
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data: message }));
    }

    terminate() {
      this.frame.remove();
    }
  }
  window.IFrameWorker = window.Worker = IFrameWorker;
})();
