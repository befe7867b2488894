// Search when the site is opened from a folder. Browsers start no worker from a file, so a hidden
// frame runs the worker's script. On a server, the browser's own workers do it.
class FrameWorker extends EventTarget {
  constructor(address) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    frame.srcdoc = "<!doctype html>";
    this.started = new Promise((resolve) => frame.addEventListener("load", resolve)).then(() => {
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = async (...addresses) => {
        for (const address of addresses) await FrameWorker.load(inside, address);
      };
      return FrameWorker.load(inside, address).then(() => inside);
    });
    document.body.append(frame);
  }

  static load(inside, address) {
    return new Promise((resolve, reject) => {
      const script = inside.document.createElement("script");
      script.src = address;
      script.onload = resolve;
      script.onerror = reject;
      inside.document.head.append(script);
    });
  }

  postMessage(data) {
    this.started.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
  }
}

if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = FrameWorker; // the first name is the one the search looks for
}
