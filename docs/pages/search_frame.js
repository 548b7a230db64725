// Pages that are opened from a folder may not start a worker. There the worker of the search runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inner = this.frame.contentWindow;
      const script = inner.document.createElement("script");
      script.src = new URL(url, location.href);
      this.loaded = new Promise((resolve) => { script.onload = resolve; });
      script.onerror = (event) => this.onerror?.(event);
      // As of a worker: what is sent is copied, and arrives when the sender has done what it does.
      inner.postMessage = (data) => setTimeout(() => this.onmessage?.({ data: structuredClone(data) }));
      inner.document.body.append(script);
    }

    postMessage(data) {
      const inner = this.frame.contentWindow;
      const copy = inner.structuredClone(data);
      this.loaded.then(() => inner.dispatchEvent(new inner.MessageEvent("message", { data: copy })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
